"""The record of results, benchmarks/compat.csv: a row for each project, contestant, and check or timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import rows
from benchmarks.records import COMMIT, INTEGER, NUMBER, TEXT, TIME, WORDS, YES_NO, RecordFile, Row, maybe
from linnet.base.files import write_atomically
from tools.compat.projects import MODELS, PROJECTS, Project

RESULTS = Path(__file__).parents[2] / "benchmarks" / "compat.csv"
RECORD = RecordFile(
    {
        **{"project": WORDS, "version": TEXT, "what": WORDS, "contestant": TEXT, "works": maybe(YES_NO)},
        **{"why": TEXT, "p50_ms": maybe(NUMBER), "ratio": maybe(NUMBER), "threads": maybe(INTEGER)},
        "difference": maybe(NUMBER),
        **{"date": TIME, "commit": COMMIT, "torch": WORDS, "cpu": WORDS},
    },
    key=("project", "what", "contestant"),
)
COLUMNS = tuple(RECORD.columns)


def rows_of(project: Project, what: str, results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return a row for each contestant; `results` has its further columns by its name."""
    shared = {**rows.circumstances(threads=0), "threads": None}
    shared |= {"project": project.name, "version": project.version, "what": what}
    return [
        {column: rows.text({**shared, "contestant": name, **result}.get(column)) for column in COLUMNS}
        for name, result in results.items()
    ]


def failure(project: Project, what: str, why: str) -> list[Row]:
    """Return the row of a project that failed as a whole."""
    return rows_of(project, what, {"": {"works": False, "why": why}})


def read(path: Path) -> list[Row]:
    return RECORD.read(path) if path.exists() else []


def save(path: Path, new: Sequence[Row]) -> None:
    """Replace what the file has on the same projects, and keep the order of the list of projects."""
    replaced = {(row["project"], row["what"]) for row in new}
    kept = [row for row in read(path) if (row["project"], row["what"]) not in replaced]
    order = list(PROJECTS | MODELS)
    every = sorted([*kept, *new], key=lambda row: (order.index(row["project"]), row["what"]))
    write_atomically(path, RECORD.content(every))
