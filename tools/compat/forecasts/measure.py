"""Run a contestant on a set and measure its forecasts; the rows of experiments/forecast_rivals.csv."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import linnet
from benchmarks import rows
from benchmarks.records import COMMIT, INTEGER, NUMBER, TEXT, TIME, WORDS, RecordFile, Row, maybe
from linnet.base.files import write_atomically
from linnet.tasks.forecast_measures import Window, score, summary
from tools.compat.environments import FOLDER, ROOT, python_of
from tools.compat.forecasts.contestants import LIBRARIES, Contestant
from tools.compat.forecasts.inside import Answer, Asked
from tools.compat.forecasts.sets import ForecastSet, Question

RESULTS = ROOT / "experiments" / "forecast_rivals.csv"
RECORD = RecordFile(
    {
        **{
            "set": WORDS,
            "contestant": WORDS,
            "seed": INTEGER,
            "smape": NUMBER,
            "mase": NUMBER,
            "owa": NUMBER,
        },
        **{"budget_seconds": NUMBER, "train_seconds": NUMBER, "forecast_seconds": NUMBER, "steps": INTEGER},
        **{"parameters": INTEGER, "context": INTEGER, "settings": WORDS, "version": WORDS},
        **{"threads": INTEGER, "load": maybe(NUMBER), "date": TIME, "commit": COMMIT, "torch": WORDS},
        **{"cpu": WORDS, "note": TEXT},
    },
    key=("set", "contestant", "seed"),
)
COLUMNS = tuple(RECORD.columns)
SLACK = 4.0
"""A process ends after this many times its CPU time: the machine may be busy."""


def read(path: Path) -> list[Row]:
    return RECORD.read(path) if path.exists() else []


def save(path: Path, row: Row) -> None:
    """Add a row, or replace that of the same set, contestant and seed."""
    key = [row[column] for column in RECORD.key]
    kept = [old for old in read(path) if [old[column] for column in RECORD.key] != key]
    write_atomically(path, RECORD.content(sorted([*kept, row], key=lambda each: each["set"])))


def measured(chosen: ForecastSet, contestant: Contestant, asked: Question, seed: int) -> Row:
    """Return the row of a contestant."""
    budget = chosen.seconds * contestant.share
    given = Asked(
        known=asked.known,
        histories=[window.history for window in asked.windows],
        model=contestant.model,
        settings=contestant.settings,
        context=chosen.context,
        horizon=chosen.horizon,
        seconds=budget,
        seed=seed,
        season=chosen.season,
    )
    busy = os.getloadavg()[0]
    answer = answered(contestant, given)
    values = {
        **rows.circumstances(threads=1),
        **figures(asked.windows, answer.values),
        **{key: value for key, value in vars(answer).items() if key != "values"},
        **{"set": chosen.name, "contestant": contestant.name, "seed": seed, "context": chosen.context},
        **{"budget_seconds": budget, "load": busy, "settings": described(contestant)},
        "version": version_of(contestant),
    }
    return {column: rows.text(values.get(column)) for column in COLUMNS}


def version_of(contestant: Contestant) -> str:
    project = LIBRARIES[contestant.library]
    return linnet.__version__ if project is None else project.version


def described(contestant: Contestant) -> str:
    return " ".join([contestant.model, *(f"{key}={value}" for key, value in contestant.settings.items())])


def figures(windows: list[Window], values: np.ndarray) -> dict[str, float]:
    return summary(score(window, row[:, None], (0.5,)) for window, row in zip(windows, values, strict=True))


def answered(contestant: Contestant, asked: Asked) -> Answer:
    """Ask in a process of the library's own environment, with one thread."""
    project = LIBRARIES[contestant.library]
    python = Path(sys.executable) if project is None else python_of(project)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    FOLDER.mkdir(exist_ok=True)
    log = FOLDER / f"forecasts-{contestant.name}.log"
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as output:
        asked.write(Path(folder))
        command = [str(python), "-m", "tools.compat.forecasts.inside", contestant.library, folder]
        limit = SLACK * asked.seconds + 600
        # In the temporary folder, since both libraries write logs to where they run.
        subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=output, timeout=limit, check=True
        )
        return Answer.read(Path(folder))


def shown(row: Row) -> str:
    """Return a row as the command prints it."""
    figures = json.dumps({name: float(row[name]) for name in ("smape", "mase", "owa")})
    return f"{row['set']:10} {row['contestant']:20} seed {row['seed']}  {figures}  {row['train_seconds']} s"
