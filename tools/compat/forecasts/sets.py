"""The series: M4's from the folder LINNET_DATA, CO2 and sunspots from statsmodels."""

from __future__ import annotations

import csv
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from linnet.tasks.forecast_measures import Window
from linnet.tasks.naive_forecasts import interpolated


@dataclass(frozen=True)
class ForecastSet:
    """What is forecast.

    context   the values before a forecast that all contestants read
    seconds   the CPU time of a contestant: training with everything before it, without the forecasts
    origins   of a single series, how many forecasts end at its end, one horizon apart; training ends before
              the first of them
    """

    name: str
    horizon: int
    season: int
    context: int
    seconds: float
    load: Callable[[], dict[str, np.ndarray]]
    origins: int = 0


@dataclass(frozen=True)
class Question:
    """Series to learn from, and the forecasts to make."""

    known: list[np.ndarray]
    windows: list[Window]


def question(chosen: ForecastSet) -> Question:
    """Load a set. Missing values are interpolated, since most libraries take none."""
    values = {name: interpolated(series) for name, series in chosen.load().items()}
    if chosen.origins:
        ((name, series),) = values.items()
        return rolling(chosen, name, series)
    windows = [window(chosen, name, series, len(series) - chosen.horizon) for name, series in values.items()]
    return Question([each.history for each in windows], windows)


def rolling(chosen: ForecastSet, name: str, series: np.ndarray) -> Question:
    origins = [len(series) - chosen.horizon * back for back in range(chosen.origins, 0, -1)]
    windows = [window(chosen, f"{name} at {origin}", series, origin) for origin in origins]
    return Question([series[: origins[0]]], windows)


def window(chosen: ForecastSet, name: str, series: np.ndarray, origin: int) -> Window:
    truth = series[origin : origin + chosen.horizon]
    return Window(name, series[:origin], truth, chosen.season)


def m4(period: str) -> dict[str, np.ndarray]:
    known, asked = (m4_file(f"{period}-{part}.csv.xz") for part in ("train", "test"))
    return {name: np.concatenate([values, asked[name]]) for name, values in known.items()}


def m4_file(name: str) -> dict[str, np.ndarray]:
    path = Path(os.environ.get("LINNET_DATA", "."), "m4", name)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; set LINNET_DATA to a folder that has m4/{name}")
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))[1:]
    return {series: np.array([float(value) for value in values if value]) for series, *values in rows}


def co2() -> dict[str, np.ndarray]:
    return {"co2": statsmodels_column("co2", "co2")}


def sunspots() -> dict[str, np.ndarray]:
    return {"sunspots": statsmodels_column("sunspots", "SUNACTIVITY")}


def statsmodels_column(name: str, column: str) -> np.ndarray:
    module = import_module(f"statsmodels.datasets.{name}")
    return module.load_pandas().data[column].to_numpy(dtype=np.float64)


SETS = {
    each.name: each
    for each in (
        ForecastSet("m4-hourly", 48, 24, 336, 300, lambda: m4("Hourly")),
        ForecastSet("m4-weekly", 13, 1, 52, 120, lambda: m4("Weekly")),
        ForecastSet("co2", 52, 52, 104, 30, co2, origins=5),
        ForecastSet("sunspots", 11, 11, 44, 30, sunspots, origins=5),
    )
}
