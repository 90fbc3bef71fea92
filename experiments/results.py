"""Our results: a line of results.csv for each run that has finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.records import COMMIT, DATE, INTEGER, NUMBER, TEXT, WORDS, RecordFile, maybe
from experiments.tables import HERE, Row, Table, why_not_run
from linnet.runs.records import write_atomically

RESULTS = HERE / "results.csv"
RECORD = RecordFile(
    {
        **{"date": DATE, "commit": COMMIT, "cpu": WORDS, "threads": INTEGER, "table": WORDS, "row": WORDS},
        **{"changed": TEXT, "epochs": maybe(INTEGER), "steps": maybe(INTEGER), "parameters": INTEGER},
        **{"valid": maybe(NUMBER), "test": NUMBER, "tokens_per_second": maybe(INTEGER), "note": TEXT},
        **{"baseline": maybe(NUMBER), "solved": maybe(rf"never|{INTEGER}")},
        **{"repeats": maybe(rf"{NUMBER}( {NUMBER})*"), "also": TEXT},
    },
    key=("table", "row", "changed"),
)
COLUMNS = tuple(RECORD.columns)
Result = dict[str, str]


def read_results(path: Path = RESULTS) -> list[Result]:
    return RECORD.read(path) if path.exists() else []


def store(result: Result, path: Path = RESULTS) -> None:
    """Add a line, or replace the line of the same row with the same changes."""
    lines = [*{key(old): old for old in [*read_results(path), result]}.values()]
    write_atomically(path, RECORD.content(lines))


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


def further(result: Mapping[str, str]) -> dict[str, str]:
    """Return what the column `also` has by its names: "mase 0.87, owa 0.47"."""
    parts = [part.rpartition(" ") for part in result.get("also", "").split(", ")]
    return {name: value for name, _, value in parts if name}


def text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
