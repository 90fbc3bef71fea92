"""Labelled series from files: long tables, the .ts files of the UEA archive, and arrays in .npz files.

rows = read_labelled_series("gestures.csv", LongColumns(group=("id",), answer="kind"))
rows.series[0].label           # "wave"
"""

from __future__ import annotations

from pathlib import Path

from linnet.data.columnar import FORMATS, read_table
from linnet.data.errors import DataError
from linnet.data.labelled_series import DEFAULT, LongColumns, SeriesRows, series_of_long_table
from linnet.data.npz_series import read_npz
from linnet.data.tables import format_of
from linnet.data.ts_file import read_ts

ENDINGS = (*FORMATS, ".ts", ".npz")


def read_labelled_series(path: str | Path, columns: LongColumns = DEFAULT) -> SeriesRows:
    """Read a .ts or .npz file, or a long table: csv, tsv (each also .gz or .xz) or parquet."""
    kind = format_of(Path(path))
    if kind in (".ts", ".npz"):
        check_no_columns(path, kind, columns)
        return read_ts(path) if kind == ".ts" else read_npz(path, columns)
    return series_of_long_table(read_table(path), columns)


def check_no_columns(path: str | Path, kind: str, columns: LongColumns) -> None:
    """Raise for options that name columns of a table; those of an .npz file are arrays."""
    for option in ("group", "channels", "time") if kind == ".ts" else ("group", "channels"):
        if getattr(columns, option):
            raise DataError(
                f"{path} has no columns: --{option} is for tables (.csv, .tsv, .parquet); leave it out"
            )
