"""The curves of runs: a CSV file in curves/ for each row of a table, with what its runs have recorded.

    split     train or valid
    run       the repetition of a row that has several: fold0, or the seed 2; else empty
    seconds   of training until then, without validations, as the run itself measured them

Then the figures of the run. Files of an earlier time have no `split`, `run` or `seconds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.records import INTEGER, NUMBER, TEXT, RecordFile, maybe
from experiments.results import Result, text
from experiments.tables import HERE
from linnet.runs.records import read_metrics, read_rows, write_atomically

CURVES = HERE / "curves"
POSITION = ("split", "run", "step", "epoch", "seconds")
FORMS = {"split": "train|valid", "run": TEXT, "step": INTEGER, "epoch": INTEGER}


def curve_file(columns: Sequence[str]) -> RecordFile:
    """The form of a file of curves; rows of training do not have all figures that validations have."""
    forms = {name: FORMS.get(name, maybe(NUMBER)) for name in columns}
    return RecordFile(forms, [name for name in ("split", "run", "step") if name in columns])


def curve_path(table: str, row: str, changed: str = "", curves: Path = CURVES) -> Path:
    """The file of a row; its name contains the changed settings."""
    return curves / f"{'-'.join([table, row, *changed.split()])}.csv"


def store_curves(result: Result, splits: Sequence[str], runs: Mapping[str, Path], curves: Path) -> None:
    """Write the curves of these splits of a row's runs, which are named by their repetition."""
    rows = [row for name, folder in runs.items() for row in recorded(name, folder, splits)]
    columns = list(dict.fromkeys([*POSITION, *(name for row in rows for name in row)]))
    lines = [{name: text(row.get(name, "")) for name in columns} for row in rows]
    curves.mkdir(parents=True, exist_ok=True)
    path = curve_path(result["table"], result["row"], result["changed"], curves)
    write_atomically(path, curve_file(columns).content(lines))


def recorded(name: str, folder: Path, splits: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run in the order of its splits, each with the seconds of training until then."""
    # After a run was resumed, its last line about an update is the one that counts.
    seconds = {row["step"]: row["seconds"] for row in read_rows(folder / "speed.jsonl")}
    for split in splits:
        for row in read_metrics(folder, split):
            yield {"run": name, "seconds": float(seconds[row["step"]]), **row}


def read_curves(path: Path) -> list[Result]:
    with path.open(encoding="utf-8") as file:
        columns = file.readline().strip().split(",")
    return curve_file(columns).read(path)
