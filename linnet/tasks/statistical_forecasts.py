"""AutoETS and AutoTheta of statsforecast as baselines, if that package is installed.

They fit several models to each series and take a part of a second for a thousand values, so that
`statistical_baselines` takes at most MOST_VALUES values of histories: of many series an even selection, and
the baseline says how many. Missing values are interpolated linearly. A series that a method cannot fit (most
need a few values) gets Naive2's forecast, and the baseline says how many did.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from linnet.tasks.baselines import Baseline
from linnet.tasks.forecast_measures import LEVELS, Window, score, summary
from linnet.tasks.naive_forecasts import Values, checked, interpolated, naive_forecast

MOST_VALUES = 100_000
"""About a minute for each method on one CPU thread."""

ABOUT = {
    "AutoETS": "Exponential smoothing; errors, trend and season are chosen by AICc (statsforecast).",
    "AutoTheta": "The best of four Theta models by their errors in the history (statsforecast).",
}


class StatisticalForecasts(NamedTuple):
    """The answers of one method."""

    quantiles: list[Values]  # [horizon, levels] for each history
    failed: tuple[int, ...]  # numbers of the histories that have Naive2's forecast instead


def missing_note() -> str:
    """Return why there are no statistical baselines; empty if there are."""
    if find_spec("statsforecast") is not None:
        return ""
    return f"{' and '.join(ABOUT)} are left out: statsforecast is not installed (pip install statsforecast)."


def statistical_forecasts(
    histories: Sequence[Any],
    horizon: int,
    season: int,
    names: Sequence[str] = tuple(ABOUT),
    levels: Sequence[float] = LEVELS,
) -> dict[str, StatisticalForecasts]:
    """Return the forecasts of each method for all histories, however long that takes."""
    if note := missing_note():
        raise ImportError(note)
    return {name: forecasts(name, histories, horizon, season, levels) for name in names}


def forecasts(
    name: str, histories: Sequence[Any], horizon: int, season: int, levels: Sequence[float]
) -> StatisticalForecasts:
    answers, failed = [], []
    for number, history in enumerate(histories):
        answer = fitted(name, history, horizon, season, levels)
        if answer is None:
            failed.append(number)
            answer = naive_forecast("Naive2", history, horizon, season).quantiles(levels)
        answers.append(answer)
    return StatisticalForecasts(answers, tuple(failed))


def fitted(name: str, history: Any, horizon: int, season: int, levels: Sequence[float]) -> Values | None:
    """Return the quantiles [horizon, levels] of a method; None if it cannot fit the history."""
    values = checked(history)
    places = np.flatnonzero(~np.isnan(values))
    known = interpolated(values[places[0] : places[-1] + 1])
    missing = len(values) - 1 - int(places[-1])
    widths = sorted({width_of(level) for level in levels} - {0})
    method = getattr(import_module("statsforecast.models"), name)(season_length=season)
    try:
        found = method.forecast(y=known, h=horizon + missing, level=widths)
    # Histories of a few values fail inside the package: "tiny datasets", an index of an empty array.
    except (NotImplementedError, IndexError, ArithmeticError, ValueError):
        return None
    answer = np.stack([found[column_of(level)] for level in levels], 1)[missing:]
    return answer if np.isfinite(answer).all() else None


def width_of(level: float) -> float:
    """Return the central interval that ends at a quantile, in percent: 80 for 0.1 and for 0.9."""
    width = round(100 * abs(1 - 2 * level), 6)
    return int(width) if width == int(width) else width


def column_of(level: float) -> str:
    """Return the name of a quantile in the results of statsforecast."""
    if level == 0.5:
        return "mean"
    return f"{'lo' if level < 0.5 else 'hi'}-{width_of(level)}"


def statistical_baselines(
    windows: Sequence[Window], levels: Sequence[float] = LEVELS, names: Sequence[str] = tuple(ABOUT)
) -> list[Baseline]:
    """Return the figures of the methods; none if statsforecast is not installed (see `missing_note`)."""
    if missing_note():
        return []
    chosen = selected(windows)
    return [statistical_baseline(name, chosen, len(windows), levels) for name in names]


def selected(windows: Sequence[Window]) -> list[Window]:
    """Return as many windows, evenly spaced, as have MOST_VALUES values of history together."""
    length = max(1, sum(len(window.history) for window in windows))
    count = min(len(windows), max(1, len(windows) * MOST_VALUES // length))
    return [windows[number * len(windows) // count] for number in range(count)]


def statistical_baseline(
    name: str, windows: Sequence[Window], among: int, levels: Sequence[float]
) -> Baseline:
    scores, failed = [], 0
    for window in windows:
        found = forecasts(name, [window.history], len(window.truth), window.season, levels)
        scores.append(score(window, found.quantiles[0], levels))
        failed += len(found.failed)
    about = ABOUT[name]
    if len(windows) < among:
        about += f" On {len(windows):,} of {among:,} forecasts: compare with care."
    if failed:
        about += f" {failed:,} that it could not fit have Naive2's forecast."
    return Baseline(name, about, summary(scores))
