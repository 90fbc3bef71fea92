"""Columns of times to datetime64 of seconds, or to integers.

The form of the first time is the form of all. A form is recognised as a whole column, and NumPy reads it as a
whole; single rows are looked at only on the way to an error.

    2024-01-31, 2024-01-31 13:45, 2024-01-31T13:45:00Z     ISO 8601; a zone is Z or an offset such as +02:00
    2024-01, 2024Q1, 2024                                  months, quarters and years: their first days
    31/01/2024, 1/31/2024 13:45, 2024/1/31                 if one of the times tells the day from the month
    20240131                                               if all of them are dates
    1706659200                                             seconds since 1970, or milliseconds
    0, 1, 2                                                any other integers: steps
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np

from linnet.data.errors import DataError

Place = Callable[[int], str]  # the file and the line of a row
CLOCK = r"(?:[T ]\d{2}(?::\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?)?"
ISO = re.compile(rf"\d{{4}}-\d{{2}}(?:-\d{{2}}{CLOCK})?", re.ASCII)
ZONED = re.compile(rf"(\d{{4}}-\d{{2}}-\d{{2}}{CLOCK}) ?(Z|[+-]\d{{2}}(?::?\d{{2}})?)", re.ASCII)
QUARTER = re.compile(r"(\d{4})[- ]?[Qq]([1-4])", re.ASCII)
YEAR_FIRST = re.compile(r"(\d{4})([/.-])(\d{1,2})\2(\d{1,2})(?:[T ](\d{1,2}:\d{2}(?::\d{2})?))?", re.ASCII)
YEAR_LAST = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})(?:[T ](\d{1,2}:\d{2}(?::\d{2})?))?", re.ASCII)
INTEGER = re.compile(r"[+-]?\d{1,18}(?:\.0*)?", re.ASCII)
KNOWN_FORMS = "2024-01-31, 2024-01-31 13:45:00, 2024-01, 2024Q1, 2024, Unix seconds or integers"
# Integers in these ranges are times: years, dates (YYYYMMDD), seconds and milliseconds since 1970.
YEARS, DATES = (1500, 2500), (15_000_101, 25_001_231)
UNIX_SECONDS, UNIX_MILLISECONDS = (10**8, 10**10), (10**11, 10**13)
EARLIEST, LATEST = np.datetime64("0001-01-01", "s"), np.datetime64("9990-01-01", "s")


class Times(NamedTuple):
    """A column of times.

    values   datetime64[s], or int64 if the times are integers
    note     how they were read, if there was a choice; else ""
    """

    values: np.ndarray
    note: str = ""


def read_times(column: Any, place: Place, time_format: str = "") -> Times:
    """Return the times of a column: strings, numbers, datetime64 or objects of the datetime module.

    time_format   a format of strptime for strings; "": the forms above
    """
    array = column if isinstance(column, np.ndarray) else None
    if array is not None and array.dtype.kind == "M":
        return Times(whole_seconds(array, place))
    if array is not None and array.dtype.kind in "iuf" and not time_format:
        return from_numbers(array, place)
    if array is not None and array.dtype.kind == "O" and len(array) and hasattr(array[0], "year"):
        return from_objects(array, place)
    texts = [str(each).strip() for each in column]
    if "" in texts:
        raise unreadable("", place(texts.index("")), "expected a time in each row")
    return from_format(texts, place, time_format) if time_format else from_texts(texts, place)


def unreadable(text: str, where: str, expected: str) -> DataError:
    return DataError(f"{where}: the time is {shortened(text)!r}; {expected}")


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


def whole_seconds(times: np.ndarray, place: Place) -> np.ndarray:
    """Return datetime64[s]; raise for a missing time, a fraction of a second and a year out of range."""
    cut = times.astype("datetime64[s]")
    checks = (
        (np.isnat(times), "expected a time in each row"),
        ((cut < EARLIEST) | (cut > LATEST), "expected a year from 1 to 9989"),
        (cut != times, "a second is the smallest unit. Without a time column, rows are steps"),
    )
    for wrong, expected in checks:
        if wrong.any():
            row = int(wrong.argmax())
            raise unreadable(str(times[row]), place(row), expected)
    return cut


# -------------------------------------------------------------------------------- numbers and objects


def from_numbers(numbers: np.ndarray, place: Place) -> Times:
    whole = np.isfinite(numbers) & (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))
    if not whole.all():
        row = int((~whole).argmax())
        raise unreadable(str(numbers[row]), place(row), f"expected an integer or one of {KNOWN_FORMS}")
    return from_integers(numbers.astype(np.int64), place)


def from_integers(numbers: np.ndarray, place: Place) -> Times:
    if not len(numbers):
        return Times(numbers)
    low, high = int(numbers.min()), int(numbers.max())
    if within(low, high, YEARS):
        return Times((numbers - 1970).astype("datetime64[Y]").astype("datetime64[s]"), "read as years")
    if within(low, high, DATES) and (dates := calendar_dates(numbers)) is not None:
        return Times(dates, "read as dates, YYYYMMDD")
    if within(low, high, UNIX_SECONDS):
        return Times(numbers.astype("datetime64[s]"), "read as seconds since 1970 (UTC)")
    if within(low, high, UNIX_MILLISECONDS):
        times = numbers.astype("datetime64[ms]")
        return Times(whole_seconds(times, place), "read as milliseconds since 1970 (UTC)")
    return Times(numbers, "read as integers")


def within(low: int, high: int, limits: tuple[int, int]) -> bool:
    return limits[0] <= low and high <= limits[1]


def calendar_dates(numbers: np.ndarray) -> np.ndarray | None:
    """Return the dates of integers such as 20240131; None if one of them is not a date."""
    year, month, day = numbers // 10_000, numbers // 100 % 100, numbers % 100
    months = (year - 1970) * 12 + month - 1
    dates = months.astype("datetime64[M]").astype("datetime64[D]") + (day - 1)
    possible = (month >= 1) & (month <= 12) & (day >= 1) & (month_of(dates) == months)
    return dates.astype("datetime64[s]") if possible.all() else None


def month_of(dates: np.ndarray) -> np.ndarray:
    return dates.astype("datetime64[M]").astype(np.int64)


def from_objects(objects: np.ndarray, place: Place) -> Times:
    """Dates and datetimes of Python; those with a zone keep their clock or become UTC, see `one_clock`."""
    zoned = [getattr(each, "tzinfo", None) is not None for each in objects]
    if len(set(zoned)) > 1:
        row = zoned.index(not zoned[0])
        raise unreadable(str(objects[row]), place(row), "some times have a zone, others have none")
    try:
        clock = [
            each.replace(tzinfo=None) if zone else each for each, zone in zip(objects, zoned, strict=True)
        ]
        local = whole_seconds(np.array(clock, dtype="datetime64[us]"), place)
        if not any(zoned):
            return Times(local)
        in_utc = [each.astimezone(timezone.utc).replace(tzinfo=None) for each in objects]
        return one_clock(local, np.array(in_utc, dtype="datetime64[s]"))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{place(0)} and below: the column of times has mixed types ({error})") from None


def one_clock(local: np.ndarray, in_utc: np.ndarray) -> Times:
    """Choose between the local clock and UTC, so that the times are evenly spaced.

    A clock without a change of offset, and dates without an hour, keep the local time, which calendar
    features are about. A clock that is changed in spring and autumn has hours that are missing or that
    occur twice.
    """
    if (local - in_utc == (local - in_utc)[:1]).all():
        return Times(local, "local times without their zone")
    if (local == local.astype("datetime64[D]")).all():
        return Times(local, "local dates without their zone")
    return Times(in_utc, "converted to UTC, as the offset of the zone changes")


# ------------------------------------------------------------------------------------------- texts


def from_texts(texts: Sequence[str], place: Place) -> Times:
    if not texts:
        return Times(np.zeros(0, "datetime64[s]"))
    fitting = [(pattern, read) for pattern, read in FORMS if pattern.fullmatch(texts[0])]
    if not fitting:
        advice = 'or name its form with --time-format, such as "%d %b %Y" (see strptime)'
        raise unreadable(texts[0], place(0), f"expected one of {KNOWN_FORMS}, {advice}")
    for pattern, read in fitting:
        if all(map(pattern.fullmatch, texts)):
            return read(texts, place)
    row = next(row for row, text in enumerate(texts) if not fitting[-1][0].fullmatch(text))
    raise unreadable(texts[row], place(row), f"expected a time like the first one, {texts[0]!r}")


def from_iso(texts: Sequence[str], place: Place) -> Times:
    return Times(whole_seconds(parsed(texts, texts, place), place))


def parsed(texts: Sequence[str], shown: Sequence[str], place: Place) -> np.ndarray:
    """Return the times of ISO texts; `shown` is what the file has, for the message."""
    try:
        return np.array(texts, dtype="datetime64[us]")
    except ValueError:
        row = next(row for row, text in enumerate(texts) if not is_time(text))
        raise unreadable(shown[row], place(row), "there is no such day or hour") from None


def is_time(text: str) -> bool:
    try:
        np.datetime64(text, "us")
    except ValueError:
        return False
    return True


def from_zoned(texts: Sequence[str], place: Place) -> Times:
    found = [ZONED.fullmatch(text) for text in texts]
    clocks, zones = zip(*(match.groups() for match in found if match), strict=True)
    local = whole_seconds(parsed(clocks, texts, place), place)
    offset_of = {zone: offset_seconds(zone) for zone in set(zones)}
    offsets = np.array([offset_of[zone] for zone in zones], dtype="timedelta64[s]")
    return one_clock(local, local - offsets)


def offset_seconds(zone: str) -> int:
    """Return the offset of "Z", "+02:00", "-0530" or "+02"."""
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def from_quarters(texts: Sequence[str], place: Place) -> Times:
    parts = (QUARTER.fullmatch(text) for text in texts)
    iso = [f"{part[1]}-{3 * int(part[2]) - 2:02d}" for part in parts if part]
    return Times(whole_seconds(parsed(iso, texts, place), place), "read as quarters, each by its first day")


def from_integer_texts(texts: Sequence[str], place: Place) -> Times:
    numbers = (int(text.partition(".")[0]) for text in texts)
    return from_integers(np.fromiter(numbers, np.int64, len(texts)), place)


def from_year_first(texts: Sequence[str], place: Place) -> Times:
    parts = [part.groups() for part in map(YEAR_FIRST.fullmatch, texts) if part]
    iso = [iso_text(year, month, day, clock) for year, _, month, day, clock in parts]
    return Times(whole_seconds(parsed(iso, texts, place), place))


def from_year_last(texts: Sequence[str], place: Place) -> Times:
    """Find the order of day and month from a number above 12; without one, nobody can know it."""
    parts = [part.groups() for part in map(YEAR_LAST.fullmatch, texts) if part]
    day_first = any(int(first) > 12 for first, *_ in parts)
    if day_first == any(int(second) > 12 for _, _, second, *_ in parts):
        raise DataError(ambiguous(texts, place, day_first))
    iso = [
        iso_text(year, second, first, clock) if day_first else iso_text(year, first, second, clock)
        for first, _, second, year, clock in parts
    ]
    order = "day, month, year" if day_first else "month, day, year"
    return Times(whole_seconds(parsed(iso, texts, place), place), f"read as {order}")


def ambiguous(texts: Sequence[str], place: Place, both: bool) -> str:
    mark = next(mark for mark in "/.-" if mark in texts[0])
    reason = "some have the day first, others the month" if both else "it may be day/month or month/day"
    forms = f"--time-format %d{mark}%m{mark}%Y or --time-format %m{mark}%d{mark}%Y"
    problem = f"the time is {texts[0]!r}, and the order of day and month is not clear: {reason}"
    return f"{place(0)}: {problem}. Give {forms}"


def iso_text(year: str, month: str, day: str, clock: str | None) -> str:
    return f"{year}-{month:0>2}-{day:0>2}" + (
        f"T{clock:0>{5 if clock.count(':') == 1 else 8}}" if clock else ""
    )


FORMS: tuple[tuple[re.Pattern[str], Callable[[Sequence[str], Place], Times]], ...] = (
    (ISO, from_iso),
    (ZONED, from_zoned),
    (QUARTER, from_quarters),
    (INTEGER, from_integer_texts),
    (YEAR_FIRST, from_year_first),
    (YEAR_LAST, from_year_last),
)


def look_like_dates(texts: Sequence[str]) -> bool:
    """Whether more than half of the texts have a form of dates; some of them may not be dates."""
    forms = [form for form, _ in FORMS if form is not INTEGER]
    return 2 * sum(any(form.fullmatch(text.strip()) for form in forms) for text in texts) > len(texts)


def from_format(texts: Sequence[str], place: Place, time_format: str) -> Times:
    """Read each different text once, as strptime is slow and the times of several series are the same."""
    read: dict[str, datetime] = {}
    for row, text in enumerate(texts):
        if text not in read:
            try:
                read[text] = datetime.strptime(text, time_format)
            except ValueError as error:
                expected = f"expected the form {time_format!r} of --time-format ({error})"
                raise unreadable(text, place(row), expected) from None
    return from_objects(np.array([read[text] for text in texts], dtype=object), place)
