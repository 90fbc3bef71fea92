"""Rows of results: each number with its conditions, in one CSV file from which tables and plots are made."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from benchmarks.records import COMMIT, INTEGER, NUMBER, TEXT, TIME, WORDS, YES_NO, RecordFile, Row, maybe
from linnet.base.checkout import commit
from linnet.base.files import write_atomically
from linnet.base.machine import installed_version, processor_name
from linnet.bench.timing import Say

RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "what": WORDS, "unit": TEXT, "backend": TEXT, "mode": TEXT},
        **{"L": maybe(INTEGER), "B": maybe(INTEGER), "d": maybe(INTEGER), "dtype": WORDS, "threads": INTEGER},
        **{"memory": maybe("new|reused|huge pages"), "p20_ms": maybe(NUMBER), "p50_ms": maybe(NUMBER)},
        **{"p80_ms": maybe(NUMBER), "peak_mb": maybe(NUMBER), "ratio": maybe(NUMBER), "ratio_to": TEXT},
        **{
            "target": maybe(f"{NUMBER}( ms| µs)?"),
            "met": maybe(YES_NO),
            "torch": WORDS,
            "llvmlite": TEXT,
            "linnet": TEXT,
        },
        "cpu": WORDS,
    }
)
COLUMNS = tuple(RECORD.columns)
# The memory of new tensors: from the system, or that of freed ones (linnet.reuse_memory).
MEMORY = ("new", "reused")


class Book:
    """Collects rows, and appends them to the file `path` as they are measured (None: no file)."""

    def __init__(self, path: Path | None, threads: int, say: Say, device: str = "cpu", memory: str = "new"):
        self.path, self.say = path, say
        if path is not None and path.exists():
            # Before anything is measured.
            read(path)
        self.circumstances = {**circumstances(threads, device), "memory": memory}
        self.rows: list[Row] = []

    def add(self, *measured: dict[str, Any]) -> list[Row]:
        rows = [make_row({**self.circumstances, **values}) for values in measured]
        self.rows += rows
        if self.path is not None:
            append(self.path, rows)
        return rows


def make_row(values: dict[str, Any]) -> Row:
    unknown = set(values) - set(COLUMNS)
    if unknown:
        raise KeyError(f"there is no column {', '.join(sorted(unknown))}; the columns are {COLUMNS}")
    return {column: text(values.get(column)) for column in COLUMNS}


def text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def append(path: Path, rows: Sequence[Row]) -> None:
    """Write atomically, so that a reader sees all of the new rows or none."""
    old = path.read_text(encoding="utf-8") if path.exists() else header()
    if not old.startswith(header()):
        raise ValueError(
            f"{path} has other columns than {', '.join(COLUMNS)}; rename it, or give another --results"
        )
    write_atomically(path, (old + lines(rows)).encode())


def header(columns: Sequence[str] = COLUMNS) -> str:
    return ",".join(columns) + "\n"


def lines(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> str:
    file = io.StringIO()
    csv.DictWriter(file, columns, lineterminator="\n").writerows(rows)
    return file.getvalue()


def read(path: Path) -> list[Row]:
    if not path.exists():
        raise FileNotFoundError(
            f"there are no rows yet: {path} does not exist; `python -m benchmarks` writes it"
        )
    return RECORD.read(path)


def circumstances(threads: int, device: str = "cpu") -> dict[str, Any]:
    """Return the columns that all rows share. The column `cpu` names the processor, which may be a GPU."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "dtype": "float32",
        "threads": threads,
        "torch": torch.__version__,
        "llvmlite": installed_version("llvmlite"),
        "linnet": installed_version("linnet-rnn"),
        "cpu": torch.cuda.get_device_name() if device == "cuda" else processor_name(),
    }
