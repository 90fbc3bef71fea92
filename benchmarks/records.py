"""Recorded files, which only programs write: every line is checked when a file is read.

    RESULTS = RecordFile({"date": DATE, "unit": TEXT, "p50_ms": NUMBER}, key=("date", "unit"))
    RESULTS.read(path)

A line that was edited by hand, with an unquoted comma for example, is an error that names it, before anything
is measured or trained.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Row = dict[str, str]

# What a field has, as a regular expression.
TEXT = r"(?s:.*)"
WORDS = r"(?s:.+)"
INTEGER = r"[0-9]+"
NUMBER = r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?"
YES_NO = r"yes|no"
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DATE}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z"
COMMIT = r"([0-9a-f]{7,}\+?)?"  # empty outside a checkout


def maybe(kind: str) -> str:
    """A field that may be empty."""
    return rf"({kind})?"


@dataclass(frozen=True)
class RecordFile:
    """The form of a csv file.

    columns   what a field of each column has
    key       the columns in which no two lines agree (empty: all columns)
    """

    columns: Mapping[str, str]
    key: Sequence[str] = ()

    def read(self, path: Path) -> list[Row]:
        """Return the rows of a file; ValueError names a line that is not as a program writes it."""
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            try:
                header = next(lines, [])
                self.check_header(path, header)
                rows = [self.row(f"{path}, line {lines.line_num}", header, line) for line in lines]
            except csv.Error as error:
                raise ValueError(f"{path}, line {lines.line_num} is not a line of csv: {error}") from None
        self.check_keys(path, rows)
        return rows

    def check_header(self, path: Path, header: Sequence[str]) -> None:
        if not header or len(set(header)) < len(header) or not set(header) <= set(self.columns):
            raise ValueError(
                f"{path} has other columns than {', '.join(self.columns)}; give another --results"
            )

    def row(self, where: str, header: Sequence[str], line: Sequence[str]) -> Row:
        """Return a line by columns; a file that was written before a column was added does not have it."""
        if len(line) != len(header):
            raise ValueError(
                f"{where} has {len(line)} fields; expected {len(header)}. Only programs write this file; a "
                "field with a comma is in quotation marks"
            )
        found = dict(zip(header, line, strict=True))
        self.check_values(where, found)
        return {**dict.fromkeys(self.columns, ""), **found}

    def check_values(self, where: str, row: Row) -> None:
        for name, value in row.items():
            if not re.fullmatch(self.columns[name], value):
                raise ValueError(f"{where}: {name} is {value!r}; expected {self.columns[name]}")

    def check_keys(self, path: Path, rows: Iterable[Row]) -> None:
        known: set[tuple[str, ...]] = set()
        for row in rows:
            key = tuple(row[name] for name in self.key or self.columns)
            if key in known:
                raise ValueError(f"{path} has two lines of {', '.join(key)}; expected one")
            known.add(key)

    def content(self, rows: Sequence[Row]) -> bytes:
        """Return the content of a file with these rows, which `read` can read."""
        for row in rows:
            self.check_values("a new line", row)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
