"""Tables column by column, from csv, tsv and parquet files; linnet.data.frames has those of frames.

    table = read_table("sales.csv")
    table.numbers(table.position("price", "known"))     # float64, NaN where a field is empty
    table.place(3)                                      # "sales.csv, line 5"

A column is a list of strings (csv) or a NumPy array. Rows are looked at one by one only on the way to an
error message.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from linnet.base.project import advice
from linnet.base.suggest import did_you_mean
from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import LARGEST_OF_YOURS, UNPACK, unpacked
from linnet.data.tables import any_field_size, format_of
from linnet.data.text import decode_utf8
from linnet.data.times import Times, read_times, shortened

MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>", "nat")
WORDS = {**dict.fromkeys(MISSING, "nan"), "true": "1", "false": "0"}
Column = Sequence[Any] | np.ndarray


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of the same length.

    source       the file, or "the frame"
    count_lines  returns the line of each row, for messages; None: rows are counted from 0, as in a frame
    """

    source: str
    names: Sequence[str]
    columns: Sequence[Column]
    count_lines: Callable[[], np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @cached_property
    def lines(self) -> np.ndarray:
        return np.arange(len(self)) if self.count_lines is None else self.count_lines()

    def place(self, row: int) -> str:
        return f"{self.source}, {'row' if self.count_lines is None else 'line'} {self.lines[row]:,}"

    def position(self, name: str, option: str) -> int:
        """Return the number of the column that an option names."""
        positions = [number for number, each in enumerate(self.names) if each == name]
        if not positions:
            near = did_you_mean(name, self.names) or ";"
            raise DataError(
                f"{self.source} has no column {name!r}{near} it has {listed(self.names)}. It is that of "
                f"--{option}"
            )
        if len(positions) > 1:
            numbers = ", ".join(str(number + 1) for number in positions)
            raise DataError(
                f"{self.source} has the column {name!r} {len(positions)} times (columns {numbers}); "
                "rename all but one"
            )
        return positions[0]

    def numbers(self, position: int) -> np.ndarray:
        """Return a column as float64; missing values are NaN."""
        name = f"the column {self.names[position]!r}"
        return as_numbers(self.columns[position], self.place, lambda row: name)

    def times(self, position: int, time_format: str = "") -> Times:
        return read_times(self.columns[position], self.place, time_format)


def listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def split_names(text: str) -> tuple[str, ...]:
    """Return the names of columns in an option, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


# ------------------------------------------------------------------------------------------ numbers


def as_numbers(
    fields: Column, place: Callable[[int], str], what: Callable[[int], str] = lambda row: "the value"
) -> np.ndarray:
    """Return float64; empty fields, NA, NaN, null and None are NaN, true and false are 1 and 0.

    place, what   the file and line, and the name, of a field, for messages
    """
    if isinstance(fields, np.ndarray) and fields.dtype.kind in "fiub":
        numbers = fields.astype(np.float64)
    else:
        numbers = numbers_of_texts(
            [each if isinstance(each, str) else str(each) for each in fields], place, what
        )
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise DataError(f"{place(row)}: {what(row)} is infinite; expected a finite number, or an empty field")
    return numbers


def numbers_of_texts(
    texts: Sequence[str], place: Callable[[int], str], what: Callable[[int], str]
) -> np.ndarray:
    try:
        return floats(texts)
    except ValueError:
        pass  # a field is empty, or is not a number
    try:
        return floats([number_text(text) for text in texts])
    except ValueError:
        row = next(row for row, text in enumerate(texts) if not is_number(text))
        raise DataError(f"{place(row)}: {what(row)} is {not_a_number(texts[row])}") from None


def floats(texts: Sequence[str]) -> np.ndarray:
    # Python reads 2024_01 as a number.
    if "_" in "".join(texts):
        raise ValueError
    return np.fromiter(map(float, texts), np.float64, len(texts))


def number_text(text: str) -> str:
    text = text.strip()
    return WORDS.get(text.lower(), text)


def is_number(text: str) -> bool:
    """Whether a field is a number or says that a value is missing."""
    try:
        floats([number_text(text)])
    except ValueError:
        return False
    return True


def not_a_number(text: str) -> str:
    if is_number(text.replace(",", ".", 1)):
        return f"{shortened(text)!r}; expected a number with a decimal point"
    return (
        f"{shortened(text)!r}; expected a number, or an empty field for a missing value. Give categories as "
        "numbers: a column of 0 and 1 for each"
    )


# -------------------------------------------------------------------------------------------- files


def read_table(path: str | Path) -> Table:
    """Read a csv, tsv or parquet file; csv and tsv may be compressed with gzip or xz."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    kind = format_of(path)
    if kind not in FORMATS or (kind == ".parquet" and path.suffix in UNPACK):
        raise DataError(
            f"{path} ends with {path.suffix or 'nothing'!r}; expected a table: .csv or .tsv, each also as "
            ".gz or .xz, or .parquet"
        )
    table = FORMATS[kind](path)
    if not len(table):
        raise DataError(
            f"{path} has no rows; expected a line with the names of the columns, then a row a line"
        )
    return table


def read_csv(path: Path) -> Table:
    contents = decode_utf8(str(path), unpacked(path, LARGEST_OF_YOURS))
    header = contents.partition("\n")[0]
    return delimited(str(path), contents, ";" if ";" in header and "," not in header else ",")


def read_tsv(path: Path) -> Table:
    return delimited(str(path), decode_utf8(str(path), unpacked(path, LARGEST_OF_YOURS)), "\t")


def delimited(path: str, contents: str, delimiter: str) -> Table:
    """Return the table of a text whose first line has the names of the columns."""

    def reader() -> Any:
        return csv.reader(io.StringIO(contents, newline=""), strict=True, delimiter=delimiter)

    def lines() -> np.ndarray:
        if contents.count("\n") + (not contents.endswith("\n")) == count + 1:
            return np.arange(2, count + 2)
        # There are empty lines, or fields with line breaks.
        return np.array([line for line, _ in numbered(reader())][1:])

    rows = reader()
    try:
        with any_field_size(len(contents)):
            header: list[str] = next((row for row in rows if row), [])
            columns = transposed(rows, len(header))
            if columns is None:
                raise wrong_width(path, numbered(reader()), len(header))
    except csv.Error as error:
        # The reader counts a line after it has read it.
        raise DataError(f"{path}, line {rows.line_num + 1:,} is not a row of a table: {error}") from None
    count = len(columns[0]) if columns else 0
    return Table(path, [name.strip() for name in header], columns, lines)


def transposed(rows: Iterator[list[str]], width: int) -> list[list[str]] | None:
    """Return the columns of rows; None if a row has another width.

    Rows are read in pieces, as Python's garbage collector is slow with a million lists.
    """
    columns: list[list[str]] = [[] for _ in range(width)]
    filled = filter(None, rows)
    while piece := list(islice(filled, 1000)):
        if set(map(len, piece)) != {width}:
            return None
        for column, fields in zip(columns, zip(*piece, strict=True), strict=True):
            column.extend(fields)
    return columns


def numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with its line; empty lines are no rows."""
    return ((reader.line_num, row) for row in reader if row)


def wrong_width(path: str, rows: Iterator[tuple[int, list[str]]], expected: int) -> DataError:
    line, row = next((line, row) for line, row in rows if len(row) != expected)
    return DataError(
        f"{path}, line {line:,} has {len(row)} columns; expected {expected}, as in the first line. "
        "A field that contains the delimiter must be in quotation marks"
    )


def read_parquet(path: Path) -> Table:
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"to read {path}, install pyarrow: {advice('series')}") from error
    try:
        frame = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} is not a parquet file that can be read: {error}") from None
    columns = [arrow_column(frame.column(number)) for number in range(frame.num_columns)]
    return Table(str(path), list(frame.column_names), columns)


def arrow_column(column: Any) -> Column:
    """Return a column as NumPy array; one of dictionaries (pandas' categories) as the values themselves."""
    types = importlib.import_module("pyarrow").types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type) and column.type.tz:
        return np.array(column.to_pylist(), dtype=object)
    if types.is_decimal(column.type):
        column = column.cast("float64")
    return column.to_numpy()


FORMATS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
}
