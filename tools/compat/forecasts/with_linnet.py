"""Linnet's own task, by its defaults but for the unit; it keeps two horizons of each series to itself."""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from linnet.runs.config import RunConfig, override
from linnet.runs.load import load
from linnet.train.loop import train
from tools.compat.forecasts.inside import Answer, Asked


def write(path: Path, series: Sequence[np.ndarray]) -> None:
    """Write a file with a column for each series; shorter ones begin later."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([f"series{number}" for number in range(len(series))])
        backwards = zip_longest(*(values[::-1] for values in series), fillvalue="")
        writer.writerows(reversed(list(backwards)))


def config(asked: Asked, path: Path) -> RunConfig:
    given: dict[str, Any] = {"set": "own", "path": str(path), "layout": "columns", "threads": 1}
    sizes = {"context": asked.context, "horizon": asked.horizon, "season": asked.season}
    budget = {"minutes": asked.seconds / 60, "seed": asked.seed}
    return override(RunConfig(task="forecast"), {**given, **sizes, **budget, "unit": asked.model})


def answer(asked: Asked) -> Answer:
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "known.csv"), asked.known)
        result = train(config(asked, Path(folder, "known.csv")), Path(folder, "run"))
        run: Any = load(Path(folder, "run"))
    trained = time.process_time() - start
    (target,) = run.task.found.targets
    found = run.predict([values[:, None] for values in asked.histories])
    values = np.asarray(found[target]).reshape(len(asked.histories), asked.horizon)
    forecast = time.process_time() - start - trained
    return Answer(values, trained, forecast, result["step"], result["parameters"])
