"""The rows of a table on a regular grid of times: sorted, without duplicates, each at a whole step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from linnet.data.errors import DataError
from linnet.data.frequency import MONTHS, STEP, Frequency, find_frequency, has_ends

# A grid with more times than this for each row comes from a wrong time, not from gaps.
MOST_TIMES_PER_ROW, MOST_TIMES = 100, 10_000


class Grid(NamedTuple):
    """The rows of a table in the order of their series and times, and their steps on the grid.

    order     the number of the row in the table
    firsts    where each series starts in `order`; one more for the end
    starts    the first time of each series
    steps     how many steps each row is after the first time of its series
    """

    order: np.ndarray
    firsts: np.ndarray
    starts: np.ndarray
    steps: np.ndarray
    frequency: Frequency
    notes: tuple[str, ...]


def grid_of_times(
    times: np.ndarray, codes: np.ndarray, names: Sequence[str], frequency: str, place: Callable[[int], str]
) -> Grid:
    """Sort the rows and find the step of each; `codes` are the numbers of their series in `names`."""
    order = np.lexsort((times, codes))
    sorted_times, sorted_codes = times[order], codes[order]
    same = np.diff(sorted_codes) == 0
    check_duplicates(sorted_times, same, order, lambda row: series_at(names, codes[row], place(row)))
    found = chosen_frequency(frequency, sorted_times) or find_frequency(sorted_times, same)
    if found is None:
        raise DataError(
            f"{place(0)}: no series has two times, so their distance is not known; give more rows, or the "
            "distance with --frequency"
        )
    firsts = np.flatnonzero(np.concatenate(([True], ~same)))
    starts = np.repeat(sorted_times[firsts], np.diff(np.append(firsts, len(order))))
    steps = found.steps(starts, sorted_times)
    wrong = found.at(starts, steps) != sorted_times
    if wrong.any():
        raise off_grid(
            int(wrong.argmax()),
            sorted_times,
            order,
            found,
            lambda row: series_at(names, codes[row], place(row)),
        )
    notes = sorting_note(order, codes)
    return Grid(order, np.append(firsts, len(order)), sorted_times[firsts], steps, found, notes)


def series_at(names: Sequence[str], code: int, where: str) -> str:
    return f"{where}, series {names[code]!r}" if names[code] else where


def chosen_frequency(text: str, times: np.ndarray) -> Frequency | None:
    """Return the frequency that the user gave, if any; months may be those of the ends."""
    if not text:
        return None
    chosen = Frequency.parse(text)
    if (chosen.unit == STEP) != (times.dtype.kind != "M"):
        kind = "integers" if chosen.unit != STEP else "dates"
        raise DataError(f"the frequency is {text!r}, but the times are {kind}")
    ends = chosen.ends or (chosen.unit in MONTHS and has_ends(times))
    return Frequency(chosen.count, chosen.unit, ends)


def sorting_note(order: np.ndarray, codes: np.ndarray) -> tuple[str, ...]:
    """Rows of several series may be mixed; only the order within a series counts."""
    by_series = np.argsort(codes, kind="stable")
    moved = int((by_series != order).sum())
    return (f"{moved:,} rows were not in the order of their times and were sorted",) if moved else ()


def check_duplicates(
    times: np.ndarray, same: np.ndarray, order: np.ndarray, place: Callable[[int], str]
) -> None:
    twins = same & (times[1:] == times[:-1])
    if twins.any():
        at = int(twins.argmax())
        first, second = sorted((int(order[at]), int(order[at + 1])))
        raise DataError(
            f"{place(second)}: the time {shown(times[at])} was already at {place(first)}; a series has one "
            "row for each time. If the rows are of several series, name them with --group"
            f"{set_back(times[at])}"
        )


def set_back(time: Any) -> str:
    """Say what to do about the hour that occurs twice when a clock is set back; a date has no hour."""
    has_clock = "T" in shown(time)
    return ". If a clock was set back, give the times in UTC or with their offset" if has_clock else ""


def off_grid(
    at: int, times: np.ndarray, order: np.ndarray, frequency: Frequency, place: Callable[[int], str]
) -> DataError:
    return DataError(
        f"{place(int(order[at]))}: the time {shown(times[at])} is not on the grid: the distance of the times "
        f"is {frequency}, and the time before it is {shown(times[at - 1])}. Correct the time, or give "
        f"another distance with --frequency{as_months(times[at], times[at - 1])}"
    )


def as_months(time: Any, before: Any) -> str:
    """Say what to do about times that are a month apart, but not at the same day of it."""
    if not isinstance(time, np.datetime64) or not 26 <= (time - before) / np.timedelta64(1, "D") <= 33:
        return ""
    return f". If each time is a month, write it as {str(time)[:7]}"


def shown(time: Any) -> str:
    """Return a time without a clock that is midnight."""
    return str(time).removesuffix("T00:00:00")


def grid_length(
    steps: np.ndarray, rows: np.ndarray, frequency: Frequency, place: Callable[[int], str]
) -> int:
    """Return the number of times of a grid; a single wrong time must not need all memory."""
    count = int(steps[-1]) + 1
    if count > max(MOST_TIMES, MOST_TIMES_PER_ROW * len(steps)):
        at = int(np.diff(steps).argmax()) + 1
        gap = steps[at] - steps[at - 1] - 1
        raise DataError(
            f"{place(int(rows[at]))}: there are {gap:,} times without a row before this one, at a "
            f"distance of {frequency}. Correct the time, or give a larger distance with --frequency"
        )
    return count
