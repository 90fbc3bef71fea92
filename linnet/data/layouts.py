"""Which columns of a table are series, and which of them has the times.

A table has one of three layouts:

    long      one row for each time and each series; the targets are channels of one series
    columns   a column of times, and a column for each series
    rows      one row for each series: its name, then its values; shorter series end in empty fields

The layout "auto" is `long` if a target, a group or a covariate is named. Else it is `columns` if the time
column is named, `rows` if the first column has names (neither times nor numbers), and `columns` if not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from linnet.data.columnar import Table, is_number
from linnet.data.errors import DataError
from linnet.data.times import look_like_dates, read_times

LAYOUTS = ("auto", "long", "columns", "rows")
SAMPLE = 100  # rows that are looked at to find the layout
TIMES = ("date", "datetime", "ds", "month", "period", "quarter", "time", "timestamp", "week", "year")
"""Names of columns that have the times, whatever is in them."""
INDEX = "index"  # the name of a first column that has none: pandas writes its index without a name


class SeriesColumns(NamedTuple):
    """The columns of a table, by their names, and how to read it.

    time          "": the first column if it has times, else rows are one step apart
    targets       the values; (): in `long`, the only column of numbers that has no other use
    group         the columns that name the series of a row, in `long`
    known         covariates that are also known in the future
    observed      covariates that are known up to now
    layout        one of LAYOUTS
    time_format   of strptime, for other forms of times than those in linnet.data.times
    frequency     as Frequency writes it ("15min", "D"); "": the most frequent distance of two times
    """

    time: str = ""
    targets: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    layout: str = "auto"
    time_format: str = ""
    frequency: str = ""


def with_layout(table: Table, columns: SeriesColumns) -> tuple[SeriesColumns, list[str]]:
    """Return the columns with their layout and time column, and notes about what was found."""
    if columns.layout not in LAYOUTS:
        raise DataError(f"the layout is {columns.layout!r}; expected one of {', '.join(LAYOUTS)}")
    notes = []
    if columns.layout == "auto":
        layout, reason = find_layout(table, columns)
        columns = columns._replace(layout=layout)
        notes.append(f"layout {layout}: {reason}")
    if columns.layout != "rows" and not columns.time:
        columns = columns._replace(time=find_time(table, columns))
        notes.append(time_note(columns.time))
    return columns, notes


def with_named_index(table: Table) -> Table:
    if not table.names or table.names[0] or INDEX in table.names:
        return table
    return replace(table, names=[INDEX, *table.names[1:]])


def time_note(name: str) -> str:
    return f"times are in the column {name!r}" if name else "no column has times; rows are one step apart"


def find_layout(table: Table, columns: SeriesColumns) -> tuple[str, str]:
    for option in ("targets", "group", "known", "observed"):
        if getattr(columns, option):
            return "long", f"--{option.removesuffix('s')} is given"
    if columns.time:
        return "columns", "each column is a series"
    if len(table.names) > 1 and has_names(table, 0) and not is_named_like_times(table, 0):
        return "rows", f"the first column, {table.names[0]!r}, has names"
    return "columns", "each column is a series"


def sample(table: Table, position: int) -> Any:
    return table.columns[position][:SAMPLE]


def has_numbers(table: Table, position: int) -> bool:
    """Whether most fields of a column are numbers; reading it says which of them is not."""
    fields = sample(table, position)
    return 2 * sum(is_number(str(field)) for field in fields) > len(fields)


def has_names(table: Table, position: int) -> bool:
    """Whether a column has texts that are neither numbers nor times."""
    fields = sample(table, position)
    if isinstance(fields, np.ndarray) and fields.dtype.kind not in "OUT":
        return False
    return not has_times(table, position) and not has_numbers(table, position)


def is_named_like_times(table: Table, position: int) -> bool:
    """Whether a column of texts is to have times; reading it says what is wrong with them."""
    is_named = table.names[position].lower() in TIMES
    return is_named and any(letter.isdigit() for letter in str(table.columns[position][0]))


def has_times(table: Table, position: int) -> bool:
    """Whether a column has dates; integers are times only if they cannot be values, see `are_like_times`."""
    fields = sample(table, position)
    if isinstance(fields, np.ndarray) and fields.dtype.kind == "M":
        return True
    try:
        times = read_times(fields, table.place)
    except DataError:
        # A column of dates with a mistake is still one: reading it says where the mistake is.
        return look_like_dates([str(field) for field in fields])
    numeric = isinstance(fields, np.ndarray) and fields.dtype.kind in "iuf"
    if numeric or (times.values.dtype.kind != "M") or all(is_number(str(field)) for field in fields):
        return position == 0 and are_like_times(times.values, table.names[0])
    return True


def are_like_times(values: np.ndarray, name: str) -> bool:
    """Whether integers rise and are in a range of times; in a column of the name "index", any that rise."""
    rising = len(values) > 1 and bool((np.diff(values).astype(np.int64) > 0).all())
    return rising and (values.dtype.kind == "M" or name.lower() in (INDEX, *TIMES))


def find_time(table: Table, columns: SeriesColumns) -> str:
    """Return the first column that has times and no other use, or ""."""
    used = {*columns.targets, *columns.group, *columns.known, *columns.observed}
    free = [number for number, name in enumerate(table.names) if name not in used]
    if columns.time_format:
        raise DataError("--time-format is given; name the column of times with --time")
    likely = [number for number in free if has_names(table, number) and is_named_like_times(table, number)]
    found = next((number for number in free if has_times(table, number)), next(iter(likely), None))
    return "" if found is None else table.names[found]
