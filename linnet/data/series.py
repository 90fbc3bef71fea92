"""Series of numbers on a regular grid of times, from a file, a frame or arrays.

    table = read_series("sales.csv", SeriesColumns(time="date", targets=("sales",), group=("shop",)))
    table.series[0].values         # float64 [T, targets], NaN where a value is missing
    table.frequency                # Frequency(1, "D")
    table.notes                    # what was decided on the way: the layout, gaps, rows that were sorted

A series starts with its first value and ends with its last. Covariates that are known in the future may go
on. Times between them without a row, and empty fields, are NaN. linnet.data.layouts describes the tables that
can be read, linnet.data.times the times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from linnet.data.columnar import (
    MISSING,
    Table,
    as_numbers,
    is_number,
    listed,
    read_table,
)
from linnet.data.errors import DataError
from linnet.data.frames import as_frame, kind_of_frame, table_of_frame
from linnet.data.frequency import STEP, Frequency
from linnet.data.grid import Grid, grid_length, grid_of_times, series_at, shown
from linnet.data.layouts import INDEX, SeriesColumns, has_numbers, with_layout, with_named_index
from linnet.data.times import look_like_dates, read_times

DEFAULT = SeriesColumns()
LARGEST = 1e30
"""The square of a larger number, or a float32, may overflow."""
USED_AS = {"targets": "target"}
"""The options whose name differs from that of their field."""


@dataclass(frozen=True, eq=False)
class Series:
    """One series, with a value for each time of its grid.

    name       of its group or its column; "" for the only series
    start      the time of the first value: datetime64[s], or an int without a time column
    values     float64 [T, targets]; NaN where a value is missing
    known      float64 [T + future, K]: covariates that are known in the future, never NaN
    observed   float64 [T, U]: covariates that are known up to now; NaN where a value is missing
    where      the file and the line of its first row, for messages
    """

    name: str
    start: Any
    values: np.ndarray
    known: np.ndarray
    observed: np.ndarray
    where: str

    def __len__(self) -> int:
        return len(self.values)

    @property
    def future(self) -> int:
        """The number of times after the last value for which covariates are known."""
        return len(self.known) - len(self.values)


class SeriesTable(NamedTuple):
    """All series of a table; `targets`, `known` and `observed` are names, in the order of the arrays.

    columns   as given, with what was found: layout, time column and frequency
    notes     sentences about decisions that the user may want to know
    """

    series: tuple[Series, ...]
    frequency: Frequency
    targets: tuple[str, ...]
    known: tuple[str, ...]
    observed: tuple[str, ...]
    columns: SeriesColumns
    notes: tuple[str, ...] = ()


def read_series(path: str | Path, columns: SeriesColumns = DEFAULT) -> SeriesTable:
    """Read the series of a csv, tsv (each also .gz or .xz) or parquet file."""
    return series_of_table(read_table(path), columns)


def series_of_frame(frame: Any, columns: SeriesColumns = DEFAULT) -> SeriesTable:
    """Return the series of a pandas or polars frame, a dict of arrays, an array or a list of arrays.

    An array [T] or [T, targets] is one series, a list of them are several.
    """
    frame = as_frame(frame)
    if kind_of_frame(frame):
        return series_of_table(table_of_frame(frame), columns)
    return series_of_arrays(frame, columns)


def series_of_table(table: Table, columns: SeriesColumns) -> SeriesTable:
    check_header(table)
    table = with_named_index(table)
    columns, found = with_layout(table, columns)
    result = READ[columns.layout](table, columns)
    constant = [each.name for each in result.series if is_constant(each.values)]
    notes = (*found, *result.notes, *constant_note(constant, len(result.series)))
    columns = result.columns._replace(frequency=str(result.frequency))
    return result._replace(columns=columns, notes=notes)


def check_header(table: Table) -> None:
    """Raise if the first line of a file is not a header but has values, after a time or not.

    pandas writes a frame without names as an empty field and 0, 1, 2 ...
    """
    first, *others = table.names
    numbers = others if look_like_dates([first]) else table.names
    counted = not first and others == [str(number) for number in range(len(others))]
    if table.count_lines is None or counted or not any(numbers) or not all(map(is_number, numbers)):
        return
    raise DataError(
        f"{table.source}, line 1 has values ({listed(table.names, 4)}); expected the names of the columns. "
        "Add a line with names"
    )


def is_constant(values: np.ndarray) -> bool:
    return len(values) > 1 and all(len(np.unique(column[~np.isnan(column)])) < 2 for column in values.T)


def constant_note(names: Sequence[str], count: int) -> list[str]:
    if not names:
        return []
    which = f": {listed(names, 3)}" if any(names) else ""
    return [f"{len(names):,} of {count:,} series always have the same value{which}"]


# --------------------------------------------------------------------------------------- one series


class Block(NamedTuple):
    """The columns of one series on its grid; `rows` has the row of the table at each time, -1 in a gap."""

    name: str
    start: Any
    values: np.ndarray
    known: np.ndarray
    observed: np.ndarray
    rows: np.ndarray


def series_of_block(block: Block, frequency: Frequency, table: Table, known: Sequence[str]) -> Series:
    """Cut a series to its values; its known covariates go on to the last row."""
    has_value = ~np.isnan(block.values).all(1)
    first_row = int(block.rows[block.rows >= 0][0]) if (block.rows >= 0).any() else 0
    if not has_value.any():
        where = series_at([block.name], 0, table.place(first_row))
        raise DataError(
            f"{where} has no value: all its fields are empty. Add its values, or remove the series"
        )
    first, end = int(has_value.argmax()), len(has_value) - int(has_value[::-1].argmax())
    start = frequency.at(block.start, np.array([first]))[0]
    series = Series(
        block.name,
        int(start) if frequency.unit == STEP else start,
        block.values[first:end],
        block.known[first:],
        block.observed[first:end],
        table.place(int(block.rows[first])),
    )
    check_known(series, block.rows[first:], frequency, table, known)
    return series if known else cut_future(series)


def cut_future(series: Series) -> Series:
    return Series(**{**vars(series), "known": series.known[: len(series)]})


def check_known(
    series: Series, rows: np.ndarray, frequency: Frequency, table: Table, names: Sequence[str]
) -> None:
    """Raise if a covariate that is said to be known is not."""
    missing = np.isnan(series.known)
    if not missing.any():
        return
    step, column = (int(number) for number in np.argwhere(missing)[0])
    time = shown(frequency.times(series.start, step + 1)[-1])
    part = "after its last value" if step >= len(series) else "among its values"
    name = f"series {series.name!r}: " if series.name else ""
    if rows[step] < 0:
        reason = f"the time {time}, {part}, has no row. Add a row with {names[column]!r} and an empty target"
        raise DataError(f"{series.where}, {name}{reason}, or give {names[column]!r} to --observed")
    raise DataError(
        f"{table.place(int(rows[step]))}, {name}the known covariate {names[column]!r} is missing at {time}, "
        f"{part}; fill it in, or give it to --observed"
    )


def gap_note(series: Sequence[Series]) -> list[str]:
    missing = [int(np.isnan(each.values).any(1).sum()) for each in series]
    total, times = sum(missing), sum(map(len, series))
    if not total:
        return []
    where = f"in {sum(map(bool, missing)):,} of {len(series):,} series"
    return [f"{total:,} of {times:,} times have no value, {where}"]


# --------------------------------------------------------------------------------------------- long


def read_long(table: Table, columns: SeriesColumns) -> SeriesTable:
    columns = columns._replace(targets=columns.targets or find_target(table, columns))
    options = ("time", "targets", "group", "known", "observed")
    check_uses(table, {option: getattr(columns, option) for option in options})
    codes, names = groups(table, columns.group)
    times, notes = row_times(table, columns, codes)
    grid = grid_of_times(times, codes, names, distance(columns, columns.time), table.place)
    parts = [
        numbers_of(table, getattr(columns, option), option.removesuffix("s"))[grid.order]
        for option in ("targets", "known", "observed")
    ]
    series = tuple(
        series_of_block(
            block_of_group(number, name, grid, parts, table.place), grid.frequency, table, columns.known
        )
        for number, name in enumerate(names)
    )
    notes = (*notes, *grid.notes, *gap_note(series))
    return SeriesTable(
        series, grid.frequency, columns.targets, columns.known, columns.observed, columns, notes
    )


def find_target(table: Table, columns: SeriesColumns) -> tuple[str, ...]:
    """Return the only column of numbers without another use."""
    used = {columns.time, *columns.group, *columns.known, *columns.observed}
    free = [
        name for number, name in enumerate(table.names) if name not in used and has_numbers(table, number)
    ]
    if len(free) != 1:
        raise DataError(
            f"{table.source}: name the column of the values with --target; "
            f"{'possible are ' + listed(free) if free else 'no column has numbers'}"
        )
    return (free[0],)


def check_uses(table: Table, given: Mapping[str, str | Sequence[str]]) -> None:
    """Raise if a column is not there or has two uses: a target among the covariates would tell the answer.

    given   the names of the columns by the option that names them
    """
    uses: dict[str, str] = {}
    for option, names in given.items():
        option = USED_AS.get(option, option)
        for name in filter(None, [names] if isinstance(names, str) else names):
            table.position(name, option)
            if name in uses:
                raise DataError(
                    f"the column {name!r} is given to --{uses[name]} and to --{option}; give it to one"
                )
            uses[name] = option


def groups(table: Table, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return the number of the series of each row, in the order of their first rows, and their names."""
    if not names:
        return np.zeros(len(table), np.int64), [""]
    keys = zip(*(group_texts(table, name) for name in names), strict=True)
    numbers: dict[tuple[str, ...], int] = {}
    codes = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, len(table))
    joined = list(map("/".join, numbers))
    if len(set(joined)) < len(joined):
        twin = next(name for name in joined if joined.count(name) > 1)
        raise DataError(
            f"{table.source}: several series are named {twin!r}, as the groups {listed(names)} contain '/'; "
            "replace it in these columns"
        )
    return codes, joined


def group_texts(table: Table, name: str) -> list[str]:
    texts = [str(field).strip() for field in table.columns[table.position(name, "group")]]
    missing = next((row for row, text in enumerate(texts) if text.lower() in MISSING), None)
    if missing is not None:
        raise DataError(f"{table.place(missing)}: the group {name!r} is {texts[missing]!r}; expected a name")
    return texts


def row_times(table: Table, columns: SeriesColumns, codes: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the time of each row; without a time column, its number within its series."""
    if columns.time:
        times = table.times(table.position(columns.time, "time"), columns.time_format)
        note = f"times ({columns.time!r}): {times.note}"
        return times.values, (note,) if times.note else ()
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    numbers = np.arange(len(codes)) - np.repeat(firsts, np.diff(np.append(firsts, len(codes))))
    result = np.empty_like(numbers)
    result[order] = numbers
    return result, ()


def distance(columns: SeriesColumns, has_times: object) -> str:
    """Return the frequency as given; without times, it is one step."""
    return columns.frequency or ("" if has_times else STEP)


def numbers_of(table: Table, names: Sequence[str], option: str) -> np.ndarray:
    """Return these columns as float64 [rows, columns]."""
    columns = [table.numbers(table.position(name, option)) for name in names]
    return np.stack(columns, 1) if columns else np.zeros((len(table), 0))


def block_of_group(
    number: int, name: str, grid: Grid, parts: Sequence[np.ndarray], place: Callable[[int], str]
) -> Block:
    """Put the rows of one series on its grid."""
    part = slice(grid.firsts[number], grid.firsts[number + 1])
    steps, rows = grid.steps[part], grid.order[part]
    count = grid_length(steps, rows, grid.frequency, lambda row: series_at([name], 0, place(row)))
    numbers = np.full(count, -1)
    numbers[steps] = rows
    spread = [np.full((count, columns.shape[1]), np.nan) for columns in parts]
    for full, columns in zip(spread, parts, strict=True):
        full[steps] = columns[part]
    values, known, observed = spread
    return Block(name, grid.starts[number], values, known, observed, numbers)


# --------------------------------------------------------------------------------- columns and rows


def read_columns(table: Table, columns: SeriesColumns) -> SeriesTable:
    check_no_covariates(columns)
    time = table.position(columns.time, "time") if columns.time else None
    if columns.targets:
        positions = [table.position(name, "target") for name in columns.targets]
    else:
        positions = [number for number in range(len(table.names)) if number != time]
        check_names(table, positions)
    if not positions:
        raise DataError(f"{table.source} has no column besides the times; expected a column for each series")
    codes = np.zeros(len(table), np.int64)
    times, notes = row_times(table, columns, codes)
    grid = grid_of_times(times, codes, [""], distance(columns, columns.time), table.place)
    values = np.stack([table.numbers(position) for position in positions], 1)
    names = [table.names[position] for position in positions]
    series = split_columns(names, values[grid.order], grid, table)
    return SeriesTable(
        series, grid.frequency, ("value",), (), (), columns, (*notes, *grid.notes, *gap_note(series))
    )


def check_no_covariates(columns: SeriesColumns) -> None:
    for option in ("group", "known", "observed"):
        if getattr(columns, option):
            raise DataError(
                f"--{option} needs the layout long; the layout is {columns.layout}, where each "
                f"{columns.layout.removesuffix('s')} is a series"
            )


def check_names(table: Table, positions: Sequence[int]) -> None:
    """Raise if two series have the same name, or one has none."""
    for position in positions:
        if not table.names[position]:
            raise DataError(
                f"{table.source}: column {position + 1} has no name; name it, as a series has a name"
            )
        table.position(table.names[position], "target")


def split_columns(names: Sequence[str], values: np.ndarray, grid: Grid, table: Table) -> tuple[Series, ...]:
    """Return each column as a series of its own."""
    block = values_block(values, grid, table.place)
    return tuple(
        series_of_block(
            block._replace(name=name, values=block.values[:, [number]]), grid.frequency, table, ()
        )
        for number, name in enumerate(names)
    )


def values_block(values: np.ndarray, grid: Grid, place: Callable[[int], str]) -> Block:
    none = np.zeros((len(values), 0))
    return block_of_group(0, "", grid, [values, none, none], place)


def read_rows(table: Table, columns: SeriesColumns) -> SeriesTable:
    check_no_covariates(columns._replace(group=()))
    first = table.position(columns.group[0], "group") if columns.group else 0
    positions = [number for number in range(len(table.names)) if number != first]
    if not positions:
        raise DataError(f"{table.source} has one column; in the layout rows, a row has a name and its values")
    names = row_names(table, first)
    labels = [table.names[position] for position in positions]
    check_labels(table, labels)
    values = np.stack([table.numbers(position) for position in positions])
    times, notes = label_times(labels, columns)

    def place(column: int) -> str:
        return f"{table.source}, column {labels[column]!r}"

    frequency = distance(columns, times.dtype.kind == "M")
    grid = grid_of_times(times, np.zeros(len(labels), np.int64), [""], frequency, place)
    series = split_rows(names, values[grid.order], grid, table, place)
    notes = (*notes, *grid.notes, *gap_note(series))
    # A forecast names its series as the file does; a first column without a name is called "index".
    columns = columns._replace(group=(table.names[first],) if table.names[first] != INDEX else ())
    return SeriesTable(series, grid.frequency, ("value",), (), (), columns, notes)


def split_rows(
    names: Sequence[str], values: np.ndarray, grid: Grid, table: Table, place: Callable[[int], str]
) -> tuple[Series, ...]:
    """Return each row as a series of its own; all its values are in one row of the table."""
    block = values_block(values, grid, place)
    series = []
    for number, name in enumerate(names):
        rows = np.full(len(block.rows), number)
        own = block._replace(name=name, values=block.values[:, [number]], rows=rows)
        series.append(series_of_block(own, grid.frequency, table, ()))
    return tuple(series)


def row_names(table: Table, position: int) -> list[str]:
    names = [str(field).strip() for field in table.columns[position]]
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if first.setdefault(name, row) != row:
            raise DataError(
                f"{table.place(row)}: the series {name!r} was already at {table.place(first[name])}; in the "
                "layout rows, each row is a series"
            )
    return names


def check_labels(table: Table, labels: Sequence[str]) -> None:
    """Raise if the first line of a file has values instead of names; integers that rise by 1 are names."""
    if not all(map(is_number, labels)):
        return
    rising = np.diff(as_numbers(list(labels), table.place))
    if not (rising == 1).all():
        raise DataError(
            f"{table.source}, line 1 has numbers ({listed(labels, 4)}); expected a header. Add a line with "
            "names, or with the times"
        )


def label_times(labels: Sequence[str], columns: SeriesColumns) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the times that the header has, or integers from 0 on."""
    steps = np.arange(len(labels))
    try:
        times = read_times(list(labels), lambda row: f"column {row + 2}", columns.time_format)
    except DataError:
        if columns.time_format:
            raise
        return steps, ("the header has no times; values are one step apart",)
    return (times.values, ("times are in the header",)) if times.values.dtype.kind == "M" else (steps, ())


READ: dict[str, Callable[[Table, SeriesColumns], SeriesTable]] = {
    "long": read_long,
    "columns": read_columns,
    "rows": read_rows,
}


# ------------------------------------------------------------------------------------------- arrays


def series_of_arrays(arrays: Any, columns: SeriesColumns) -> SeriesTable:
    several = isinstance(arrays, list | tuple) and len(arrays) > 0 and np.ndim(arrays[0]) > 0
    values = [array_values(array) for array in (arrays if several else [arrays])]
    widths = {each.shape[1] for each in values}
    if len(widths) > 1:
        raise DataError(
            f"the arrays have different numbers of targets: {', '.join(map(str, sorted(widths)))}"
        )
    targets = columns.targets or tuple(f"target {number}" for number in range(widths.pop()))
    if len(targets) != values[0].shape[1]:
        raise DataError(f"the arrays have {values[0].shape[1]} targets; the names are {listed(targets)}")
    frequency = Frequency.parse(columns.frequency or STEP)
    names = [str(number) for number in range(len(values))] if several else [""]
    series = tuple(array_series(name, each, frequency) for name, each in zip(names, values, strict=True))
    columns = columns._replace(layout="long", frequency=str(frequency), time="", group=())
    return SeriesTable(series, frequency, targets, (), (), columns, tuple(gap_note(series)))


def array_values(array: Any) -> np.ndarray:
    """Return float64 [T, targets]."""
    try:
        values = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"expected a frame, or arrays of numbers [T] or [T, targets]: {error}") from None
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise DataError(f"expected arrays [T] or [T, targets]; got the shape {values.shape}")
    if np.isinf(values).any():
        raise DataError("a value is infinite; expected finite numbers, or NaN for a missing value")
    return values.reshape(len(values), -1)


def array_series(name: str, values: np.ndarray, frequency: Frequency) -> Series:
    none = np.zeros((len(values), 0))
    table = Table(f"array {name}".strip(), (), [values])
    block = Block(name, 0, values, none, none, np.arange(len(values)))
    return series_of_block(block, Frequency(frequency.count, STEP), table, ())
