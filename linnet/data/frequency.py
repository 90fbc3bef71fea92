"""The distance of the times of a series, and the grid of times that follows from it.

    frequency = Frequency(15, "min")
    frequency.times("2024-01-31T23:45", 2)                  # 23:45 and 00:00 of the next day
    Frequency(1, "M", ends=True).times("2024-01-31", 3)     # January 31, February 29, March 31

Months, quarters and years are those of the calendar: their lengths differ. Without a time column, times are
integers and the unit is "step".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from linnet.data.errors import DataError

STEP = "step"
SECONDS = {"s": 1, "min": 60, "h": 3600, "D": 86_400, "W": 604_800}
MONTHS = {"M": 1, "Q": 3, "Y": 12}
UNITS = (*SECONDS, *MONTHS, STEP)
# Lengths of the cycles that may be a season, in seconds, weeks or months. The first with at least 24 steps is
# taken, else the last: a minute has a season of an hour, 15 minutes have one of a day.
CYCLES: dict[str, tuple[int, ...]] = {
    "s": (60, 3600, 86_400),
    "min": (3600, 86_400),
    "h": (86_400,),
    "D": (604_800,),
    "W": (52 * 604_800,),
    **dict.fromkeys(MONTHS, (12,)),
    STEP: (1,),
}
# The horizons of the M4 competition, which has none for seconds and minutes: there it is one season.
HORIZONS = {"h": 48, "D": 14, "W": 13, "M": 18, "Q": 8, "Y": 6, STEP: 10}
WRITTEN = re.compile(rf"(\d{{0,6}})({'|'.join(UNITS)})(-end)?")


@dataclass(frozen=True)
class Frequency:
    """The distance between two times of a grid.

    count   the number of units from one time to the next, at least 1
    unit    s, min, h, D, W, M, Q, Y, or step: the times are integers
    ends    of M, Q and Y: the times are the last days of months
    """

    count: int = 1
    unit: str = STEP
    ends: bool = False

    @classmethod
    def parse(cls, text: str) -> Frequency:
        """Return the frequency that `str` wrote: "15min", "D", "M-end"."""
        found = WRITTEN.fullmatch(text)
        if not found or int(found[1] or 1) == 0 or (found[3] and found[2] not in MONTHS):
            raise DataError(
                f"the frequency is {text!r}; expected a number and a unit such as 15min, h or 2W. "
                f"Units: {', '.join(UNITS)}; M-end, Q-end and Y-end are the last days of months"
            )
        return cls(int(found[1] or 1), found[2], bool(found[3]))

    def __str__(self) -> str:
        return f"{self.count if self.count > 1 else ''}{self.unit}{'-end' if self.ends else ''}"

    @property
    def length(self) -> int:
        """The distance in seconds, in months (M, Q and Y) or in integers (step)."""
        return self.count * {**SECONDS, **MONTHS, STEP: 1}[self.unit]

    @property
    def season(self) -> int:
        """The usual number of steps in a season; 1: no season."""
        fitting = [cycle // self.length for cycle in CYCLES[self.unit] if cycle % self.length == 0]
        return next((steps for steps in fitting if steps >= 24), fitting[-1] if fitting else 1)

    @property
    def horizon(self) -> int:
        """The usual number of steps to forecast."""
        return HORIZONS.get(self.unit) or max(self.season, 2)

    def times(self, start: Any, count: int) -> np.ndarray:
        """Return `count` times from `start` on."""
        return self.at(start, np.arange(count))

    def at(self, start: Any, steps: np.ndarray) -> np.ndarray:
        """Return the times at these numbers of steps after `start`, one time or one for each number."""
        if self.unit == STEP:
            return np.asarray(start, dtype=np.int64) + self.length * steps
        start = np.asarray(start, dtype="datetime64[s]")
        if self.unit in SECONDS:
            return start + (self.length * steps).astype("timedelta64[s]")
        return in_month(start, month_number(start) + self.length * steps, self.ends)

    def steps(self, start: Any, times: np.ndarray) -> np.ndarray:
        """Return how many whole steps each time is after `start`; between two times, the earlier counts."""
        if self.unit in MONTHS:
            start = np.asarray(start, dtype="datetime64[s]")
            return (month_number(times) - month_number(start)) // self.length
        return np.asarray((times - start).astype(np.int64)) // self.length


# ------------------------------------------------------------------------------------------- months


def month_number(times: np.ndarray) -> np.ndarray:
    return times.astype("datetime64[M]").astype(np.int64)


def in_month(start: np.ndarray, months: np.ndarray, ends: bool) -> np.ndarray:
    """Return the times in these months at the day and the hour of `start`, or on the last day."""
    first_days = months.astype("datetime64[M]").astype("datetime64[D]")
    last = (months + 1).astype("datetime64[M]").astype("datetime64[D]") - 1
    day = start.astype("datetime64[D]")
    days = last if ends else np.minimum(first_days + (day - first_of_month(day)), last)
    return days.astype("datetime64[s]") + (start - day.astype("datetime64[s]"))


def first_of_month(days: np.ndarray) -> np.ndarray:
    return days.astype("datetime64[M]").astype("datetime64[D]")


def are_month_ends(times: np.ndarray) -> bool:
    days = times.astype("datetime64[D]")
    return bool(are_last_days(days).all())


def are_last_days(days: np.ndarray) -> np.ndarray:
    return np.asarray(first_of_month(days + 1) == days + 1)


def are_monthly(times: np.ndarray) -> bool:
    """Whether all times have the same day of their month, or the last one, at the same time of day.

    Of shorter months, the same day is the last one.
    """
    days = times.astype("datetime64[D]")
    numbers = days - first_of_month(days)
    hours = times - days.astype("datetime64[s]")
    same_day = bool(((numbers == numbers.max()) | are_last_days(days)).all())
    return same_day and bool((hours == hours[0]).all())


# ---------------------------------------------------------------------------------------- found


def find_frequency(times: np.ndarray, same_series: np.ndarray) -> Frequency | None:
    """Return the most frequent distance of neighbouring times; None if there are no two of one series.

    times         sorted within each series, one series after another
    same_series   for each time but the first: whether it is of the series of the time before it
    """
    distances = np.diff(times)[same_series].astype(np.int64)
    if not len(distances):
        return None
    if times.dtype.kind != "M":
        return Frequency(most_frequent(distances), STEP)
    if distances.min() >= 28 * SECONDS["D"] and are_monthly(times):
        months = np.diff(month_number(times))[same_series]
        return in_largest_unit(most_frequent(months), MONTHS, ends=has_ends(times))
    return in_largest_unit(most_frequent(distances), SECONDS)


def has_ends(times: np.ndarray) -> bool:
    """Whether times that are monthly are on the last days of months and not on the same day of each."""
    days = times.astype("datetime64[D]")
    numbers = (days - first_of_month(days)).astype(np.int64)
    return are_month_ends(times) and bool(numbers.max() >= 28)


def most_frequent(distances: np.ndarray) -> int:
    """Return the most frequent distance; of two that are equally frequent, the smaller."""
    found, counts = np.unique(distances, return_counts=True)
    return int(found[counts.argmax()])


def in_largest_unit(length: int, units: dict[str, int], ends: bool = False) -> Frequency:
    unit = [unit for unit, size in units.items() if length % size == 0][-1]
    return Frequency(length // units[unit], unit, ends)
