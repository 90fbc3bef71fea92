"""Labelled texts of the user's own, single or in pairs: a table with named columns, or a folder per class.

    read_labelled("reviews.csv", text="review", label="stars")   # also .tsv, .jsonl, and each as .gz or .xz
    read_labelled("reviews/")                                    # reviews/good/1.txt, reviews/bad/7.txt, ...
    read_rows("pairs.tsv", Columns({"premise": "first", "hypothesis": "second"}, "relation"))

An error names the file, the line and what was expected there.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from linnet.base.suggest import did_you_mean
from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import LARGEST_OF_YOURS, UNPACK, unpacked
from linnet.data.text import decode_utf8, parse_json


class Labelled(NamedTuple):
    """A text, or a pair of texts, and its class."""

    text: str
    label: str
    where: str = ""  # the file and the line, for messages
    second: str | None = None  # the other text of a pair

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.second is None else (self.text, self.second)


class Columns(NamedTuple):
    """The names of the columns with the texts, by the option that sets each name, and with the label.

    kind        what the label is: a class, several labels, or a value (a number)
    separator   of several labels
    """

    texts: Mapping[str, str]
    label: str = "label"
    kind: str = "class"
    separator: str = ""

    @property
    def by_option(self) -> dict[str, str]:
        return {**self.texts, "value" if self.kind == "value" else "label": self.label}


# What a column with labels is expected to have, and the types that it may have in JSON.
EXPECTED: dict[str, tuple[str, tuple[type, ...]]] = {
    "class": ("a string or an integer", (str, int)),
    "labels": ("a string or a list of strings", (str, int, list)),
    "value": ("a number", (str, int, float)),
}


def read_labelled(path: str | Path, text: str = "text", label: str = "label") -> list[Labelled]:
    """Read all labelled texts of a table or of a folder; `text` and `label` are names of columns."""
    return read_rows(path, Columns({"text": text}, label))


def read_rows(path: str | Path, columns: Columns) -> list[Labelled]:
    """Read all rows of a table or of a folder; a folder has one text in each file, so it has no pairs."""
    path = Path(path)
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}")
    is_folder = path.is_dir() and len(columns.texts) == 1
    found = list(read_folder(path) if is_folder else read_file(path, columns))
    if not found:
        raise DataError(f"{path} has no rows; expected a {', a '.join(columns.texts)} and a label in each")
    return found


def read_folder(path: Path) -> Iterator[Labelled]:
    """Yield each *.txt of each folder in `path`; the name of the folder is its class."""
    files = sorted(file for file in path.glob("*/**/*") if is_text(file))
    if not files:
        raise DataError(f"the folder {path} has no class; expected files such as {path / 'CLASS' / '1.txt'}")
    for file in files:
        text = decode_utf8(str(file), unpacked(file, LARGEST_OF_YOURS))
        yield Labelled(text.strip(), file.relative_to(path).parts[0], str(file))


def is_text(file: Path) -> bool:
    return file.is_file() and format_of(file) == ".txt"


def format_of(path: Path) -> str:
    """Return the ending of a file without that of its compression."""
    return Path(path.stem).suffix if path.suffix in UNPACK else path.suffix


def read_file(path: Path, columns: Columns) -> Iterator[Labelled]:
    kind = format_of(path)
    if kind not in FORMATS:
        folder = " or a folder with one folder per class" if len(columns.texts) == 1 else ""
        raise DataError(
            f"{path} ends with {kind or 'nothing'!r}; expected a table ({', '.join(FORMATS)}, each also as "
            f".gz or .xz){folder}"
        )
    contents = decode_utf8(str(path), unpacked(path, LARGEST_OF_YOURS))
    return FORMATS[kind](str(path), contents, columns)


# ------------------------------------------------------------------------------------- csv and tsv


def read_csv(path: str, contents: str, columns: Columns) -> Iterator[Labelled]:
    return read_delimited(path, contents, columns)


def read_tsv(path: str, contents: str, columns: Columns) -> Iterator[Labelled]:
    """Tabs separate columns, and quotation marks are part of the text, as in GLUE."""
    return read_delimited(path, contents, columns, delimiter="\t", quoting=csv.QUOTE_NONE)


def read_delimited(path: str, contents: str, columns: Columns, **form: Any) -> Iterator[Labelled]:
    reader = csv.DictReader(io.StringIO(contents, newline=""), strict=True, **form)
    try:
        with any_field_size(len(contents)):
            rows = numbered_rows(path, reader, columns)
    except csv.Error as error:
        # The reader counts a line after it has read it.
        raise DataError(f"{path}, line {reader.line_num + 1:,} is not a row of a table: {error}") from None
    return (labelled(where, row, columns) for where, row in rows)


def numbered_rows(
    path: str, reader: csv.DictReader, columns: Columns
) -> list[tuple[str, dict[str | Any, str | Any]]]:
    """Return the rows, each with the file and its line."""
    header, rows = reader.fieldnames or (), []
    check_columns(f"{path}, line 1 (the header)", header, columns)
    check_twins(f"{path}, line 1 (the header)", header, columns)
    for row in reader:
        where = f"{path}, line {reader.line_num:,}"
        check_width(where, row, len(header))
        rows.append((where, row))
    return rows


@contextmanager
def any_field_size(most: int) -> Iterator[None]:
    """Within this, the csv module reads fields of up to `most` characters; the limit is the process's."""
    before = csv.field_size_limit(max(most, csv.field_size_limit()))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def check_twins(where: str, found: Sequence[str], columns: Columns) -> None:
    """Raise if a column that is read has the name of another: it is not known which is meant."""
    for option, name in columns.by_option.items():
        numbers = [str(number) for number, each in enumerate(found, 1) if each == name]
        if len(numbers) > 1:
            raise DataError(
                f"{where} has the column {name!r} {len(numbers)} times (columns {', '.join(numbers)}); "
                f"rename all but one, or name another column of the {option} with --{option}"
            )


def check_columns(where: str, found: Any, columns: Columns) -> None:
    for option, name in columns.by_option.items():
        if name not in found:
            near = did_you_mean(name, found)
            listed = ", ".join(map(repr, found)) or "none"
            raise DataError(
                f"{where} has no column {name!r}{near or ';'} it has {listed}. Name the column of the "
                f"{option} with --{option}"
            )


def check_width(where: str, row: Mapping[Any, Any], expected: int) -> None:
    missing = sum(value is None for value in row.values())
    found = expected - missing + len(row.get(None) or ())
    if found != expected:
        raise DataError(f"{where} has {found} columns; expected {expected}, as in the first line")


def labelled(where: str, row: Mapping[str, Any], columns: Columns) -> Labelled:
    found = row[columns.label]
    label = (columns.separator.join(found) if isinstance(found, list) else str(found)).strip()
    # A text may have none of several labels.
    if not label and columns.kind != "labels":
        raise DataError(
            f"{where} has an empty {columns.label!r}; expected a {columns.kind.replace('value', 'number')}"
        )
    first, *second = (row[name] for name in columns.texts.values())
    return Labelled(first, label, where, *second)


# ------------------------------------------------------------------------------------------- jsonl


def read_jsonl(path: str, contents: str, columns: Columns) -> Iterator[Labelled]:
    for number, line in enumerate(contents.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number:,}"
            row = json_object(where, line)
            check_columns(where, row, columns)
            check_values(where, row, columns)
            yield labelled(where, row, columns)


def json_object(where: str, line: str) -> dict[str, Any]:
    row = parse_json(where, line)
    if not isinstance(row, dict):
        raise DataError(f"{where} is a JSON {type(row).__name__}; expected an object with named values")
    return row


def check_values(where: str, row: Mapping[str, Any], columns: Columns) -> None:
    for name in columns.texts.values():
        if not isinstance(row[name], str):
            raise DataError(f"{where}: {name!r} is {row[name]!r}; expected a string")
    found, (expected, types) = row[columns.label], EXPECTED[columns.kind]
    strings = not isinstance(found, list) or all(isinstance(each, str) for each in found)
    if not isinstance(found, types) or not strings:
        raise DataError(f"{where}: {columns.label!r} is {found!r}; expected {expected}")


FORMATS: dict[str, Callable[[str, str, Columns], Iterator[Labelled]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
}
