"""Our results: a line of results.csv for each run that has finished."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.tables import HERE, Row, Table, why_not_run
from linnet.runs.records import write_atomically

RESULTS = HERE / "results.csv"
COLUMNS = (
    *("date", "commit", "cpu", "threads", "table", "row", "changed", "epochs", "steps"),
    *("parameters", "valid", "test", "tokens_per_second", "note", "baseline", "solved", "repeats", "also"),
)
Result = dict[str, str]


def read_results(path: Path = RESULTS) -> list[Result]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not set(reader.fieldnames or ()) <= set(COLUMNS):
            raise ValueError(f"{path} has other columns than {', '.join(COLUMNS)}; give another --results")
        # Older files do not have all columns.
        return [{**dict.fromkeys(COLUMNS, ""), **result} for result in reader]


def store(result: Result, path: Path = RESULTS) -> None:
    """Add a line, or replace the line of the same row with the same changes."""
    lines = {key(old): old for old in [*read_results(path), result]}.values()
    write_atomically(path, csv_of(COLUMNS, lines))


def csv_of(columns: Sequence[str], lines: Iterable[Result]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()


def key(result: Result) -> tuple[str, str, str]:
    return result["table"], result["row"], result["changed"]


def ours(results: Sequence[Result], table: Table, row: Row) -> list[Result]:
    """Return our results for a row."""
    return [result for result in results if (result["table"], result["row"]) == (table.name, row.name)]


def state(table: Table, row: Row, results: Sequence[Result]) -> str:
    """Return when the row was measured with which changes, or why it was not."""
    measured = ours(results, table, row)
    if measured:
        return "; ".join(" ".join(filter(None, [result["date"], result["changed"]])) for result in measured)
    return why_not_run(table, row)


def text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
