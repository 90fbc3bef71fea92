"""What the calendar says about a time, as inputs of a model: sine and cosine of its position in each cycle.

    calendar_names(Frequency(1, "D"))     # ("day_of_week_sin", "day_of_week_cos", "day_of_month_sin", ...)
    calendar(frequency.times("2024-01-01", 90), frequency)     # float32 [90, 6]

A frequency has the cycles that are longer than its distance and at most as long as a year. Integers
without a time column ("step") and years have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from linnet.data.frequency import MONTHS, SECONDS, STEP, Frequency

DAY = SECONDS["D"]


class Moment(NamedTuple):
    """Times as whole numbers: arrays, or tensors of floats in a program that is exported.

    Both are small enough for float32, which has no room for the seconds since 1970.

    day      days since 1970-01-01
    second   seconds of the day
    months   months later, which only the month of the year takes note of
    """

    day: Any
    second: Any
    months: Any = 0


class Date(NamedTuple):
    """Month (0: January), and the position in month and year with their lengths, in days."""

    month: Any
    day: Any
    days_of_month: Any
    day_of_year: Any
    days_of_year: Any


def moment_of(times: np.ndarray) -> Moment:
    day = times.astype("datetime64[D]")
    second = (times.astype("datetime64[s]") - day.astype("datetime64[s]")).astype(np.int64)
    return Moment(day.astype(np.int64), second)


def distance_of(steps: np.ndarray, frequency: Frequency) -> Moment:
    """Return how much later a time is after so many steps."""
    length = frequency.length * steps
    nothing = np.zeros_like(length)
    if frequency.unit in MONTHS:
        return Moment(nothing, nothing, length)
    return Moment(length // DAY, length % DAY, nothing)


def later(moment: Moment, distance: Moment) -> Moment:
    second = moment.second + distance.second
    return Moment(moment.day + distance.day + second // DAY, second % DAY, moment.months + distance.months)


def date_of(day: Any) -> Date:
    """Return the date of days since 1970-01-01, by arithmetic that torch has too.

    The year begins in March, so that its last day is that of leap years: month m (0: March) begins after
    (153 m + 2) // 5 days, and 400 years have 146,097.
    """
    day_of_era = (day + 719_468) % 146_097
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year = (day_of_era - leaps) // 365
    since_march = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * since_march + 2) // 153
    # 1 in January and February, which belong to the next year.
    is_next = month // 10
    leap = leap_days(year + is_next) - leap_days(year + is_next - 1)
    first, following = (153 * month + 2) // 5, (153 * month + 155) // 5
    return Date(
        month=(month + 2) % 12,
        day=since_march - first,
        days_of_month=following - first - month // 11 * (2 - leap),
        day_of_year=since_march + (1 - is_next) * (59 + leap) - is_next * 306,
        days_of_year=365 + leap,
    )


def leap_days(year: Any) -> Any:
    """Return how many of the years 1 to `year` are leap years."""
    return year // 4 - year // 100 + year // 400


def share_of_month(moment: Moment) -> Any:
    date = date_of(moment.day)
    return date.day / date.days_of_month


def share_of_year(moment: Moment) -> Any:
    date = date_of(moment.day)
    return date.day_of_year / date.days_of_year


# Each cycle: its name, its length in seconds, and the position in it from 0 to 1. Weeks begin on Monday:
# 1970-01-01 was a Thursday.
CYCLES: tuple[tuple[str, int, Callable[[Moment], Any]], ...] = (
    ("second_of_minute", 60, lambda moment: moment.second % 60 / 60),
    ("minute_of_hour", 3600, lambda moment: moment.second // 60 % 60 / 60),
    ("hour_of_day", DAY, lambda moment: moment.second // 3600 / 24),
    ("day_of_week", 7 * DAY, lambda moment: (moment.day + 3) % 7 / 7),
    ("day_of_month", 28 * DAY, share_of_month),
    ("day_of_year", 365 * DAY, share_of_year),
    ("month_of_year", 365 * DAY, lambda moment: (date_of(moment.day).month + moment.months) % 12 / 12),
)
# The cycles that matter for times at this distance: hours hardly know the day of the month.
OF_UNIT: dict[str, tuple[str, ...]] = {
    "s": ("second_of_minute", "minute_of_hour", "hour_of_day", "day_of_week"),
    "min": ("minute_of_hour", "hour_of_day", "day_of_week", "day_of_year"),
    "h": ("hour_of_day", "day_of_week", "day_of_year"),
    "D": ("day_of_week", "day_of_month", "day_of_year"),
    "W": ("day_of_year",),
    "M": ("month_of_year",),
    "Q": ("month_of_year",),
    "Y": (),
    STEP: (),
}


def cycles(frequency: Frequency) -> list[tuple[str, Callable[[Moment], Any]]]:
    unit = frequency.unit
    size = {**SECONDS, **{name: months * 30 * DAY for name, months in MONTHS.items()}, STEP: 1}[unit]
    used = OF_UNIT[unit]
    return [
        (name, share) for name, length, share in CYCLES if name in used and length > frequency.count * size
    ]


def calendar_names(frequency: Frequency) -> tuple[str, ...]:
    """Return the names of the columns of `calendar`."""
    return tuple(f"{name}_{wave}" for name, _ in cycles(frequency) for wave in ("sin", "cos"))


def waves(
    moment: Moment, frequency: Frequency, sin: Callable[..., Any], cos: Callable[..., Any]
) -> list[Any]:
    """Return a column for each name of `calendar_names`, by the sine and the cosine of numpy or of torch."""
    angles = [2 * np.pi * share(moment) for _, share in cycles(frequency)]
    return [wave(angle) for angle in angles for wave in (sin, cos)]


def calendar(times: np.ndarray, frequency: Frequency) -> np.ndarray:
    """Return float32 [T, F] in [-1, 1], a column for each name of `calendar_names`."""
    found = waves(moment_of(times), frequency, np.sin, np.cos)
    return np.stack(found, 1).astype(np.float32) if found else np.zeros((len(times), 0), np.float32)
