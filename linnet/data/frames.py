"""Frames of pandas and polars, and dicts of arrays: to tables, and forecasts back to the same kind.

Neither package is imported before the user gives one of its frames.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from linnet.data.columnar import Table
from linnet.data.errors import DataError
from linnet.data.grid import shown
from linnet.data.layouts import SeriesColumns

TIME = "time"
"""The column of times, if the user's table has none."""


def kind_of_frame(frame: Any) -> str:
    """Return "pandas", "polars", "dict", or "" if it is no frame; a subclass is of the same kind."""
    for base in type(frame).__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("pandas", "polars") and base.__name__ in ("DataFrame", "LazyFrame"):
            return package
    return "dict" if isinstance(frame, Mapping) else ""


def as_frame(frame: Any) -> Any:
    """Return a Series of pandas or polars as a frame, and everything else as it is."""
    return frame.to_frame() if hasattr(frame, "to_frame") and not kind_of_frame(frame) else frame


def table_of_frame(frame: Any) -> Table:
    """Return the table of a pandas frame, a polars frame or a dict of arrays."""
    kind = kind_of_frame(frame)
    if not kind:
        raise DataError(
            f"expected a frame of pandas or polars, or a dict of arrays; got {type(frame).__name__}"
        )
    if kind == "polars" and hasattr(frame, "collect"):
        frame = frame.collect()
    if kind == "pandas":
        frame = with_index(frame)
    names = [str(name) for name in frame] if kind == "dict" else [str(name) for name in frame.columns]
    columns = [READ_COLUMN[kind](frame, number) for number in range(len(names))]
    return checked_lengths(Table("the frame", names, columns))


def checked_lengths(table: Table) -> Table:
    for name, column in zip(table.names, table.columns, strict=True):
        if np.ndim(column) != 1:
            raise DataError(f"the column {name!r} of the frame has {np.ndim(column)} dimensions; expected 1")
        if len(column) != len(table):
            first = f"{len(table):,} as the column {table.names[0]!r}"
            raise DataError(f"the column {name!r} of the frame has {len(column):,} values; expected {first}")
    if not len(table):
        raise DataError("the frame has no rows")
    return table


def with_index(frame: Any) -> Any:
    """Return a pandas frame whose index is a column, if it has a name or contains times."""
    index = frame.index
    if any(name is not None for name in index.names):
        return frame.reset_index()
    if hasattr(index, "freqstr"):  # an index of times or periods
        return frame.rename_axis("time").reset_index()
    return frame


def pandas_column(frame: Any, number: int) -> np.ndarray:
    column = frame.iloc[:, number]
    if type(column.dtype).__name__ == "PeriodDtype":
        column = column.dt.to_timestamp()
    return np.asarray(column.to_numpy())


def polars_column(frame: Any, number: int) -> np.ndarray:
    column = frame.to_series(number)
    if getattr(column.dtype, "time_zone", None):
        return np.array(column.to_list(), dtype=object)
    if column.dtype.is_decimal():
        column = column.cast(float)
    return np.asarray(column.to_numpy())


def dict_column(frame: Mapping[Any, Any], number: int) -> np.ndarray:
    return np.asarray(list(frame.values())[number])


READ_COLUMN: dict[str, Callable[[Any, int], np.ndarray]] = {
    "pandas": pandas_column,
    "polars": polars_column,
    "dict": dict_column,
}


# ---------------------------------------------------------------------------------------- forecasts


class ForecastRows(NamedTuple):
    """One row for each series and each time.

    series    the name of the series of each row
    times     datetime64, or integers without a time column
    columns   the numbers, by the name of their column
    """

    series: Sequence[str]
    times: np.ndarray
    columns: Mapping[str, np.ndarray]


def forecast_frame(rows: ForecastRows, like: Any, columns: SeriesColumns | None = None) -> Any:
    """Return rows as a pandas frame, a polars frame or a dict of arrays, as `like` is."""
    columns = columns or SeriesColumns()
    named = name_columns(rows.series, columns.group)
    time = columns.time or TIME
    contents = {
        **{name: np.array(texts, dtype=object) for name, texts in named.items()},
        time: shown_times(rows.times),
        **rows.columns,
    }
    return frame_like(contents, like, time)


def frame_like(contents: Mapping[str, np.ndarray], like: Any, time: str = "") -> Any:
    """Return columns as a pandas frame, a polars frame or a dict of arrays, as `like` is.

    time   the name of the column of times
    """
    kind = kind_of_frame(like)
    if kind == "pandas":
        return importlib.import_module("pandas").DataFrame(contents)
    if kind == "polars":
        return polars_frame(contents, time, like)
    return {key: np.asarray(each) for key, each in contents.items()}


def forecast_table(rows: ForecastRows, columns: SeriesColumns) -> dict[str, list[Any]]:
    """Return the columns of `forecast_frame` as texts and numbers."""
    times = [shown(time) if rows.times.dtype.kind == "M" else int(time) for time in rows.times]
    numbers = {name: [float(f"{value:.8g}") for value in values] for name, values in rows.columns.items()}
    return {**name_columns(rows.series, columns.group), columns.time or TIME: times, **numbers}


def name_columns(series: Sequence[str], group: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns that name the series of each row, as the user named them, else "series".

    None if there is one series without a name.
    """
    if not any(series):
        return {}
    parts = [name.split("/") for name in series] if len(group) > 1 else [[name] for name in series]
    if not group or any(len(each) != len(group) for each in parts):
        return {"series": list(series)}
    return {name: list(column) for name, column in zip(group, zip(*parts, strict=True), strict=True)}


def shown_times(times: np.ndarray) -> np.ndarray:
    """Return times of a type that pandas and polars have."""
    return times.astype("datetime64[us]") if times.dtype.kind == "M" else times


def polars_frame(contents: Mapping[str, np.ndarray], time: str, like: Any) -> Any:
    """Return a polars frame; its column of times is of the type that it has in `like`, if that has one."""
    polars = importlib.import_module("polars")
    texts = {name: each.tolist() if each.dtype.kind == "O" else each for name, each in contents.items()}
    frame = polars.DataFrame(texts)
    schema = like.collect_schema()
    if time in schema and schema[time] == polars.Date:
        frame = frame.with_columns(polars.col(time).cast(polars.Date))
    return frame
