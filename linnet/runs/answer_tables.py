"""Tables of answers as files, by their suffix: .csv with a line of names, or .json with an object a row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linnet.runs.errors import room_for
from linnet.runs.records import write_atomically

Columns = Mapping[str, Sequence[Any]]


def write_table(path: Path, columns: Columns) -> None:
    """Write the whole file, or nothing."""
    with room_for(path):
        write_atomically(path, FORMATS[suffix_of(path)](columns).encode())


def check_table_path(path: Path) -> None:
    """Raise if a table cannot be written to this file; it is called before the answers are computed."""
    if suffix_of(path) not in FORMATS:
        raise ValueError(f"--out {path} ends with {path.suffix or 'nothing'!r}; expected .csv or .json")
    if path.exists():
        raise FileExistsError(f"{path} exists already; delete it, or give another --out")


def suffix_of(path: Path) -> str:
    return path.suffix.lower()


def as_csv(columns: Columns) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*map(list, columns.values()), strict=True))
    return file.getvalue()


def as_json_list(columns: Columns) -> str:
    return "[\n" + ",\n".join(json_rows(columns)) + "\n]\n"


def json_rows(columns: Columns) -> Iterator[str]:
    """Yield a JSON object for each row."""
    for row in zip(*columns.values(), strict=True):
        yield json.dumps(dict(zip(columns, row, strict=True)))


FORMATS: dict[str, Callable[[Columns], str]] = {".csv": as_csv, ".json": as_json_list}
