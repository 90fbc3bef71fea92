"""Times: every form that is read, the grid of each frequency, and what the calendar says about them."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data.calendar import (
    Moment,
    calendar,
    calendar_names,
    date_of,
    distance_of,
    later,
    moment_of,
    waves,
)
from linnet.data.errors import DataError
from linnet.data.frequency import UNITS, Frequency, find_frequency
from linnet.data.times import read_times


def place(row: int) -> str:
    return f"x.csv, line {row + 2}"


def texts(column: object, time_format: str = "") -> list[str]:
    return [str(time) for time in read_times(column, place, time_format).values]


def found(times: list[str]) -> Frequency | None:
    values = read_times(times, place).values
    return find_frequency(values, np.ones(len(values) - 1, bool))


# --------------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["2024-01-31", "2024-02-01"], ["2024-01-31T00:00:00", "2024-02-01T00:00:00"]),
        (["2024-01-31 13:45"], ["2024-01-31T13:45:00"]),
        (["2024-01-31T13:45:10", " 2024-01-31T13:45:11 "], ["2024-01-31T13:45:10", "2024-01-31T13:45:11"]),
        (["2024-01-31T13:45:10.000"], ["2024-01-31T13:45:10"]),
        (["2024-01-31T13", "2024-01-31 14"], ["2024-01-31T13:00:00", "2024-01-31T14:00:00"]),
        (["2024-01-31T13Z"], ["2024-01-31T13:00:00"]),
        (["2024-01", "2024-02"], ["2024-01-01T00:00:00", "2024-02-01T00:00:00"]),
        (["2024Q1", "2024Q4"], ["2024-01-01T00:00:00", "2024-10-01T00:00:00"]),
        (["2024-Q2"], ["2024-04-01T00:00:00"]),
        (["1700", "1701"], ["1700-01-01T00:00:00", "1701-01-01T00:00:00"]),
        (["1700.0"], ["1700-01-01T00:00:00"]),
        (["20240131"], ["2024-01-31T00:00:00"]),
        (["20240131", "20240231"], ["20240131", "20240231"]),
        (["1706659200"], ["2024-01-31T00:00:00"]),
        (["1706659200000"], ["2024-01-31T00:00:00"]),
        (["0", "1", "-5"], ["0", "1", "-5"]),
        (["2024/1/5", "2024/01/06"], ["2024-01-05T00:00:00", "2024-01-06T00:00:00"]),
        (["2024-10-05", "2024-1-5"], ["2024-10-05T00:00:00", "2024-01-05T00:00:00"]),
        (["1/2/2024", "31/1/2024 9:30"], ["2024-02-01T00:00:00", "2024-01-31T09:30:00"]),
        (["1/2/2024", "1/31/2024"], ["2024-01-02T00:00:00", "2024-01-31T00:00:00"]),
        (["31.01.2024"], ["2024-01-31T00:00:00"]),
        (np.array([2020, 2021]), ["2020-01-01T00:00:00", "2021-01-01T00:00:00"]),
        (np.array([3.0, 4.0]), ["3", "4"]),
        (np.array(["2024-01-31"], "datetime64[ns]"), ["2024-01-31T00:00:00"]),
        (np.array([date(2024, 1, 31)], object), ["2024-01-31T00:00:00"]),
        (np.array([datetime(2024, 1, 31, 5)], object), ["2024-01-31T05:00:00"]),
    ],
)
def test_forms(column: object, expected: list[str]):
    assert texts(column) == expected


def test_other_forms_by_a_format():
    assert texts(["31 Jan 2024", "1 Feb 2024"], "%d %b %Y") == ["2024-01-31T00:00:00", "2024-02-01T00:00:00"]
    assert texts(["01/02/2024"], "%m/%d/%Y") == ["2024-01-02T00:00:00"]


ZONES = [
    (["2024-01-31T13:00:00Z", "2024-01-31T14:00:00+00:00"], ["13", "14"], "local times"),
    (["2024-01-31T13:00:00+02:00", "2024-01-31T14:00:00+02"], ["13", "14"], "local times"),
    # At the end of summer time, two o'clock is there twice.
    (["2024-10-27 02:00:00+02:00", "2024-10-27 02:00:00+01:00"], ["00", "01"], "converted to UTC"),
    (["2024-10-26 02:00:00-0530", "2024-10-27 02:00:00-0430"], ["07", "06"], "converted to UTC"),
    (["2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00"], ["00", "00"], "local dates"),
]


@pytest.mark.parametrize(("column", "hours", "note"), ZONES)
def test_zones(column: list[str], hours: list[str], note: str):
    assert [text[11:13] for text in texts(column)] == hours
    assert read_times(column, place).note.startswith(note)


@pytest.mark.parametrize(("column", "hours", "note"), ZONES)
def test_zones_of_objects_are_read_as_those_of_texts(column: list[str], hours: list[str], note: str):
    forms = {"+02": "+0200", "Z": "+0000"}
    objects = []
    for text in column:
        clock, offset = text[:19].replace(" ", "T"), text[19:].strip().replace(":", "")
        zone = datetime.strptime(forms.get(offset, offset), "%z").tzinfo
        objects.append(datetime.fromisoformat(clock).replace(tzinfo=zone))
    assert read_times(np.array(objects, object), place).note.startswith(note)
    assert texts(np.array(objects, object)) == texts(column)


def test_zones_may_be_in_a_format():
    assert texts(["31/01/2024 13:00 +0200"], "%d/%m/%Y %H:%M %z") == ["2024-01-31T13:00:00"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["today"], "x.csv, line 2: the time is 'today'; expected one of"),
        (
            ["2024-01-31", "2024Q1"],
            "line 3: the time is '2024Q1'; expected a time like the first one, '2024-01-31'",
        ),
        (["2024-01-31 25:00"], "there is no such day or hour"),
        (["31/31/2024"], "some have the day first, others the month"),
        (["31/02/2024"], "line 2: the time is '31/02/2024'; there is no such day or hour"),
        (["0000-01-01"], "expected a year from 1 to 9989"),
        (np.array([1.5]), "expected an integer"),
        (np.array([np.nan]), "expected an integer"),
        (np.array(["NaT"], "datetime64[s]"), "expected a time in each row"),
        (np.array([datetime(2024, 1, 1), "x"], object), "mixed types"),
        (np.array([datetime(2024, 1, 1, microsecond=1)], object), "smallest unit"),
        (np.array([datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 2)]), "line 3: the time is"),
        (["9" * 60], f"the time is '{'9' * 40}...'"),
    ],
)
def test_times_that_cannot_be_read(column: object, message: str):
    with pytest.raises(DataError) as caught:
        read_times(column, place)
    assert message in str(caught.value)


# ---------------------------------------------------------------------------------------- frequencies


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["2024-01-01", "2024-01-02", "2024-01-05"], Frequency(1, "D")),
        (["2024-01-01", "2024-01-08", "2024-01-15"], Frequency(1, "W")),
        (["2024-01-01", "2024-01-15"], Frequency(2, "W")),
        (["2024-01-01 00:00", "2024-01-01 00:15"], Frequency(15, "min")),
        (["2024-01-01 00:00", "2024-01-01 00:00:30"], Frequency(30, "s")),
        (["2024-01-01 00:00", "2024-01-01 06:00"], Frequency(6, "h")),
        (["2024-01-01", "2024-02-01", "2024-03-01"], Frequency(1, "M")),
        (["2023-01-15", "2023-02-15", "2023-03-15"], Frequency(1, "M")),
        (["2023-01-31", "2023-02-28", "2023-03-31"], Frequency(1, "M", ends=True)),
        (["2023-12-30", "2024-01-30", "2024-02-29", "2024-03-30"], Frequency(1, "M")),
        (["2023-03-31", "2023-06-30"], Frequency(1, "Q", ends=True)),
        (["2023Q1", "2023Q2", "2023Q4"], Frequency(1, "Q")),
        (["2020", "2021", "2022"], Frequency(1, "Y")),
        (["2020-12-31", "2021-12-31"], Frequency(1, "Y", ends=True)),
        (["2020", "2025", "2030"], Frequency(5, "Y")),
        # February 28 is the end of a month in three years of four.
        (["2022-02-28", "2023-02-28", "2024-02-28"], Frequency(1, "Y")),
        (["2022-02-28", "2023-02-28"], Frequency(1, "Y")),
        (["0", "10", "20", "50"], Frequency(10, "step")),
        (["2024-01-01"], None),
    ],
)
def test_the_frequency_is_found(times: list[str], expected: Frequency | None):
    assert found(times) == expected


def test_a_distance_between_two_series_does_not_count():
    times = np.array([0, 5, 1, 6])
    assert find_frequency(times, np.array([True, False, True])) == Frequency(5, "step")


def test_times_are_those_of_the_calendar():
    ends = Frequency(1, "M", ends=True).times("2023-11-30", 4).astype("datetime64[D]")
    assert ends.astype(str).tolist() == ["2023-11-30", "2023-12-31", "2024-01-31", "2024-02-29"]
    # The end of February is also its 28th; `ends` tells which is meant.
    assert str(Frequency(1, "M", ends=True).times("2023-02-28", 2)[1]) == "2023-03-31T00:00:00"
    assert str(Frequency(1, "M").times("2023-02-28", 2)[1]) == "2023-03-28T00:00:00"
    assert str(Frequency(1, "Q").times("2023-11-01T06:00", 2)[1]) == "2024-02-01T06:00:00"
    assert Frequency(2, "step").times(5, 3).tolist() == [5, 7, 9]


units = st.builds(
    lambda unit, count, ends: Frequency(count, unit, ends and unit in "MQY"),
    st.sampled_from(UNITS),
    st.integers(1, 50),
    st.booleans(),
)
starts = st.datetimes(datetime(1800, 1, 1), datetime(2100, 1, 1)).map(
    lambda time: time.replace(microsecond=0)
)


@settings(deadline=None)
@given(units, starts, st.integers(1, 40))
def test_steps_are_the_inverse_of_times(frequency: Frequency, start: datetime, count: int):
    if frequency.ends:
        start = start.replace(day=1) + timedelta(days=31)
        start = start.replace(day=1) - timedelta(days=1)
    first = 17 if frequency.unit == "step" else np.datetime64(start, "s")
    times = frequency.times(first, count)
    assert times[0] == first
    assert (np.diff(times).astype(np.int64) > 0).all()
    np.testing.assert_array_equal(frequency.steps(first, times), np.arange(count))
    assert Frequency.parse(str(frequency)) == frequency


@pytest.mark.parametrize("text", ["", "0D", "x", "D-end", "1.5h", "-1D", "9999999s"])
def test_frequencies_that_cannot_be_read(text: str):
    with pytest.raises(DataError, match="expected a number and a unit"):
        Frequency.parse(text)


@pytest.mark.parametrize(
    ("text", "season", "horizon"),
    [
        *(("s", 60, 60), ("min", 60, 60), ("15min", 96, 96), ("30min", 48, 48), ("5min", 288, 288)),
        *(("h", 24, 48), ("6h", 4, 48), ("D", 7, 14), ("2D", 1, 14), ("W", 52, 13), ("M", 12, 18)),
        *(("M-end", 12, 18), ("Q", 4, 8), ("Y", 1, 6), ("5Y", 1, 6), ("step", 1, 10), ("7min", 1, 2)),
    ],
)
def test_usual_seasons_and_horizons(text: str, season: int, horizon: int):
    frequency = Frequency.parse(text)
    assert (frequency.season, frequency.horizon) == (season, horizon)


# ------------------------------------------------------------------------------------------ calendar


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("count", [1, 3])
def test_calendar_has_a_column_for_each_name(unit: str, count: int):
    frequency = Frequency(count, unit)
    start = 0 if unit == "step" else "2023-12-30T22:58:57"
    features = calendar(frequency.times(start, 50), frequency)
    assert features.shape == (50, len(calendar_names(frequency)))
    assert features.dtype == np.float32
    assert np.abs(features).max(initial=0) <= 1
    assert bool(features.shape[1]) == (unit not in ("Y", "step"))


@pytest.mark.parametrize(
    ("text", "name", "start", "angle"),
    [
        ("h", "hour_of_day", "2024-05-05T06:00", 6 / 24),
        ("min", "minute_of_hour", "2024-05-05T06:20", 20 / 60),
        ("s", "second_of_minute", "2024-05-05T06:20:10", 10 / 60),
        ("D", "day_of_week", "2024-01-01", 0),  # a Monday
        ("D", "day_of_week", "2024-01-07", 6 / 7),
        ("D", "day_of_month", "2024-02-15", 14 / 29),
        ("W", "day_of_year", "2024-12-31", 365 / 366),
        ("W", "day_of_year", "2023-12-31", 364 / 365),
        ("M", "month_of_year", "2024-12-01", 11 / 12),
        ("Q", "month_of_year", "1960-07-01", 6 / 12),
    ],
)
def test_calendar_by_hand(text: str, name: str, start: str, angle: float):
    frequency = Frequency.parse(text)
    names = calendar_names(frequency)
    features = calendar(frequency.times(start, 1), frequency)[0]
    for wave in ("sin", "cos"):
        expected = np.float32(getattr(np, wave)(2 * np.pi * angle))
        np.testing.assert_allclose(features[names.index(f"{name}_{wave}")], expected, rtol=0, atol=1e-7)


def test_dates_are_those_of_numpy():
    days = np.arange(np.datetime64("1895-12-30"), np.datetime64("2105-03-02"))
    months, years = days.astype("datetime64[M]"), days.astype("datetime64[Y]")
    date = date_of(days.astype(np.int64))

    def lengths(units: np.ndarray) -> np.ndarray:
        return ((units + 1).astype(days.dtype) - units.astype(days.dtype)).astype(np.int64)

    np.testing.assert_array_equal(date.month, months.astype(np.int64) % 12)
    np.testing.assert_array_equal(date.day, (days - months.astype(days.dtype)).astype(np.int64))
    np.testing.assert_array_equal(date.days_of_month, lengths(months))
    np.testing.assert_array_equal(date.day_of_year, (days - years.astype(days.dtype)).astype(np.int64))
    np.testing.assert_array_equal(date.days_of_year, lengths(years))


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit not in ("Y", "step")])
@pytest.mark.parametrize("count", [1, 3])
def test_the_calendar_of_later_steps_in_float32(unit: str, count: int):
    """As exported programs compute it: from the day and the second of the first step."""
    frequency = Frequency(count, unit)
    for start in ("1969-12-31T23:59:59", "2024-02-29T13:01:07", "2100-01-01"):
        first = moment_of(frequency.times(start, 1))
        given = (torch.tensor(each, dtype=torch.float32) for each in (first.day, first.second))
        ahead = distance_of(np.arange(800), frequency)
        moments = later(Moment(*given), Moment(*(torch.tensor(each).float() for each in ahead)))
        found = torch.stack(waves(moments, frequency, torch.sin, torch.cos), 1)
        expected = calendar(frequency.times(start, 800), frequency)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)
