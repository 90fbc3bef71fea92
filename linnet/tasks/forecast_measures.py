"""How good a forecast is: measures of one series, and their means over an evaluation.

With y the truth, f the forecast, and only the steps counted at which y is observed (not NaN):

    sMAPE      200 mean(|y - f| / (|y| + |f|)), in percent; a step with y = f = 0 counts 0
    MASE       mean|y - f| / scale, scale = mean|x_t - x_{t-season}| over the history x
    OWA        (sMAPE / sMAPE of Naive2 + MASE / MASE of Naive2) / 2, of the means over all series
    WQL        2 sum_y sum_q loss_q(y - f_q) / (levels sum_y |y|), loss_q(e) = max(q e, (q - 1) e)
    coverage   the share of y inside an interval, bounds included
    MSE, MAE   of (y - f) / deviation: errors of standardised values

The point forecast f is the quantile of level 1/2. WQL sums over the series before it divides, so that series
with large values weigh more; all others are means over series.

A measure that a series does not have is NaN and left out of the mean: all of them if no step of the truth is
observed; MASE if the history is constant (or repeats its season exactly), so that the scale is 0; MSE and MAE
if the deviation is 0. If the history has no two values that are a season apart, the scale is that of
neighbouring values (season 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from linnet.tasks.baselines import Baseline
from linnet.tasks.naive_forecasts import METHODS, Values, checked, differences, naive2, naive_forecast
from linnet.tasks.results import LOSS, Figure, Metrics, Section, StepResult

LEVELS = (0.1, 0.5, 0.9)
"""Of the quantiles of baselines, unless others are given. Coverage is that of the outermost two."""

SMAPE = Figure("smape", "sMAPE", "The symmetric mean absolute percentage error; lower is better.", ".4g")
MASE = Figure(
    "mase",
    "MASE",
    "The mean absolute error, divided by that of seasonal naive in the history; lower is better.",
    ".3f",
)
OWA = Figure(
    "owa",
    "OWA",
    "The mean of sMAPE and MASE relative to Naive2; below 1 is better than Naive2.",
    ".3f",
)
WQL = Figure(
    "wql",
    "WQL",
    "The weighted quantile loss: the error of all quantiles relative to the size of the values.",
    ".4g",
)
COVERAGE = Figure(
    "coverage",
    "coverage",
    "The share of values inside the interval of the outermost quantiles; it should be the interval's level.",
    ".3f",
    True,
)
MSE = Figure("mse", "MSE", "The mean squared error of standardised values; lower is better.")
MAE = Figure("mae", "MAE", "The mean absolute error of standardised values; lower is better.")
FIGURES = (MASE, SMAPE, OWA, WQL, COVERAGE, MSE, MAE, LOSS)


# -------------------------------------------------------------------------------- measures of one series


def observed(truth: Any, *forecasts: Any) -> tuple[Values, ...]:
    """Return the truth and the forecasts at the steps where the truth is observed."""
    values = np.asarray(truth, dtype=np.float64)
    counted = ~np.isnan(values)
    found = [np.asarray(each, dtype=np.float64) for each in forecasts]
    for each in found:
        check_forecast(each, values)
    return values[counted], *(each[counted] for each in found)


def check_forecast(forecast: Values, truth: Values) -> None:
    if len(forecast) != len(truth):
        raise ValueError(
            f"the forecast has {len(forecast)} steps and the truth {len(truth)}; give both [horizon]"
        )
    # NaN would be left out of the mean over series as if the truth were missing.
    if not np.isfinite(forecast).all():
        step = int(np.argwhere(~np.isfinite(forecast))[0, 0]) + 1
        raise ValueError(f"step {step} of a forecast is not finite; the model that made it has diverged")


def mean(values: Values) -> float:
    """Return the mean, NaN of nothing."""
    return float(values.mean()) if values.size else float("nan")


def ratio(above: float, below: float) -> float:
    return above / below if below else float("nan")


def smape(forecast: Any, truth: Any) -> float:
    """Return sMAPE in percent, 0 to 200."""
    y, f = observed(truth, forecast)
    size = np.abs(y) + np.abs(f)
    return 200 * mean(np.divide(np.abs(y - f), size, out=np.zeros_like(y), where=size > 0))


def seasonal_scale(history: Any, season: int) -> float:
    """Return the mean absolute difference of values a season apart; NaN if the history has one value."""
    values = checked(history)
    found = differences(values, season)
    return mean(np.abs(found if len(found) else differences(values, 1)))


def mase(forecast: Any, truth: Any, scale: float) -> float:
    """Return MASE for the `seasonal_scale` of the history."""
    y, f = observed(truth, forecast)
    return ratio(mean(np.abs(y - f)), scale)


def owa(smape: float, mase: float, naive2_smape: float, naive2_mase: float) -> float:
    """Return OWA for the means over all series, and those of Naive2."""
    return (ratio(smape, naive2_smape) + ratio(mase, naive2_mase)) / 2


def quantile_loss(quantiles: Any, truth: Any, levels: Sequence[float]) -> float:
    """Return the numerator of WQL over the number of levels, for quantiles [horizon, levels]."""
    y, f = observed(truth, quantiles)
    errors, q = y[:, None] - f, np.asarray(levels)
    return float(2 * np.maximum(q * errors, (q - 1) * errors).sum() / len(levels))


def weighted_quantile_loss(quantiles: Any, truth: Any, levels: Sequence[float]) -> float:
    """Return WQL of one series, for quantiles [horizon, levels]."""
    (y,) = observed(truth)
    return ratio(quantile_loss(quantiles, truth, levels), float(np.abs(y).sum()))


def coverage(lower: Any, upper: Any, truth: Any) -> float:
    """Return the share of the truth inside the interval."""
    y, low, high = observed(truth, lower, upper)
    return mean(((low <= y) & (y <= high)).astype(np.float64))


def standardised_errors(forecast: Any, truth: Any, deviation: float) -> tuple[float, float]:
    """Return MSE and MAE of values that are divided by `deviation`."""
    y, f = observed(truth, forecast)
    return ratio(mean((y - f) ** 2), deviation**2), ratio(mean(np.abs(y - f)), deviation)


# ------------------------------------------------------------------------------------- many series


@dataclass(frozen=True, eq=False)
class Window:
    """A forecast to be measured: what is known, and what followed.

    history     [T], all values known at the origin of the forecast; NaN where missing
    truth       [horizon], NaN where missing
    deviation   by which MSE and MAE are standardised; None: that of the history
    naive2      whether to compute OWA; it needs the Naive2 forecast of each window
    """

    name: str
    history: Values
    truth: Values
    season: int = 1
    deviation: float | None = None
    naive2: bool = True

    @cached_property
    def scale(self) -> float:
        return seasonal_scale(self.history, self.season)

    @cached_property
    def standard(self) -> float:
        return float(np.nanstd(self.history)) if self.deviation is None else self.deviation

    @cached_property
    def naive2_scores(self) -> tuple[float, float]:
        """sMAPE and MASE of Naive2."""
        if not self.naive2:
            return float("nan"), float("nan")
        answer = naive2(self.history, len(self.truth), self.season)
        return smape(answer, self.truth), mase(answer, self.truth, self.scale)


class Score(NamedTuple):
    """The measures of one window; names are those of figures."""

    name: str
    known: int  # the number of values before the forecast
    smape: float
    mase: float
    naive2_smape: float
    naive2_mase: float
    quantile_loss: float  # the numerator of WQL
    size: float  # its denominator, sum |y|
    coverage: float
    mse: float
    mae: float


class Forecasts(NamedTuple):
    """What `ForecastMetrics` reads from `StepResult.outputs`."""

    windows: Sequence[Window]
    quantiles: Any  # [windows, horizon, levels], in the unit of the series; an array or a tensor
    levels: Sequence[float]  # ascending, 0.5 is one of them


def score(window: Window, quantiles: Values, levels: Sequence[float]) -> Score:
    """Measure the quantiles [horizon, levels] of a window."""
    middle, truth = quantiles[:, middle_of(levels)], window.truth
    mse, mae = standardised_errors(middle, truth, window.standard)
    return Score(
        name=window.name,
        known=len(window.history),
        smape=smape(middle, truth),
        mase=mase(middle, truth, window.scale),
        naive2_smape=window.naive2_scores[0],
        naive2_mase=window.naive2_scores[1],
        quantile_loss=quantile_loss(quantiles, truth, levels),
        size=float(np.nansum(np.abs(truth))),
        coverage=coverage(quantiles[:, 0], quantiles[:, -1], truth),
        mse=mse,
        mae=mae,
    )


def middle_of(levels: Sequence[float]) -> int:
    """Return which level is 1/2."""
    if 0.5 not in levels or list(levels) != sorted(levels):
        raise ValueError(f"the levels of quantiles must ascend and have 0.5; got {list(levels)}")
    return list(levels).index(0.5)


def summary(scores: Iterable[Score]) -> dict[str, float]:
    """Return the figures of an evaluation; `owa` only if the windows have Naive2."""
    names = Score._fields[2:]
    table = np.array([row[2:] for row in scores], dtype=np.float64).reshape(-1, len(names))
    columns = dict(zip(names, table.T, strict=True))
    means = {name: mean(column[~np.isnan(column)]) for name, column in columns.items()}
    found = {name: means[name] for name in ("mase", "smape", "coverage", "mse", "mae")}
    found["wql"] = ratio(float(columns["quantile_loss"].sum()), float(columns["size"].sum()))
    if not np.isnan(columns["naive2_smape"]).all():
        found["owa"] = owa(means["smape"], means["mase"], means["naive2_smape"], means["naive2_mase"])
    return found


class ForecastMetrics(Metrics):
    """The loss and the figures of forecasts; `scores` has a row for each window."""

    def __init__(self) -> None:
        super().__init__()
        self.scores: list[Score] = []

    def update(self, result: StepResult) -> None:
        super().update(result)
        windows, quantiles, levels = result.outputs
        answers = torch.as_tensor(quantiles).detach().double().cpu().numpy()
        for window, answer in zip(windows, answers, strict=True):
            self.scores.append(score(window, answer, levels))

    def compute(self) -> dict[str, float]:
        return {**super().compute(), **summary(self.scores)}


# ------------------------------------------------------------------------------------------- reports


def ranked(scores: Iterable[Score], name: str = "mase") -> list[Score]:
    """Return the scores that have a measure, the best first."""
    return sorted(
        (row for row in scores if not np.isnan(getattr(row, name))), key=lambda row: getattr(row, name)
    )


def best_median_worst(scores: Iterable[Score], name: str = "mase") -> tuple[Score, ...]:
    """Return up to three scores: the best, the median and the worst by a measure."""
    rows = ranked(scores, name)
    return tuple(rows[place] for place in sorted({0, len(rows) // 2, len(rows) - 1})) if rows else ()


def extremes(scores: Sequence[Score], most: int = 5) -> Section:
    """Return a table of the series with the lowest, the median and the highest MASE."""
    rows = ranked(scores)
    start = max(0, (len(rows) - most) // 2)
    places = sorted({*range(len(rows))[:most], *range(len(rows))[start:][:most], *range(len(rows))[-most:]})
    about = f"The {most} series with the lowest MASE, those in the middle and those with the highest."
    if len(rows) < len(scores):
        about += f" {len(scores) - len(rows)} without MASE (a constant history, no truth) are left out."
    shown = [
        (str(place + 1), rows[place].name, MASE.show(rows[place].mase), SMAPE.show(rows[place].smape))
        for place in places
    ]
    return Section("Best and worst series", about, ("rank", "series", "MASE", "sMAPE"), tuple(shown))


# ----------------------------------------------------------------------------------------- baselines

ABOUT = {
    "naive": "The last value.",
    "seasonal naive": "The value one season before.",
    "Naive2": "The last value of the seasonally adjusted series, M4's benchmark.",
}


def naive_baselines(windows: Sequence[Window], levels: Sequence[float] = LEVELS) -> list[Baseline]:
    """Return the figures of all naive forecasts."""

    def answer(name: str) -> Callable[[Window], Values]:
        return lambda window: naive_forecast(
            name, window.history, len(window.truth), window.season
        ).quantiles(levels)

    return [baseline(name, ABOUT[name], windows, answer(name), levels) for name in METHODS]


def baseline(
    name: str,
    about: str,
    windows: Sequence[Window],
    answer: Callable[[Window], Values],
    levels: Sequence[float],
) -> Baseline:
    """Return the figures of a method that answers a window by quantiles [horizon, levels]."""
    return Baseline(name, about, summary(score(window, answer(window), levels) for window in windows))
