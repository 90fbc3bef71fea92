"""A linear forecast: least squares from the last values of a series to each of the next ones.

With x_t the last of `context` values, and s_t the mean of |x_k - x_t| over them:

    x_{t+h} = x_t + s_t (sum_k w_{hk} (x_k - x_t) / s_t + b_h)      k = t-context+1 ... t-1

One layer for all series. It is hard to beat where a series has a season and little else (Zeng et al. 2023).
Quantiles are those of its errors in training, at each step of the horizon. Missing values are interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from linnet.tasks.baselines import Baseline
from linnet.tasks.forecast_measures import Window, baseline
from linnet.tasks.naive_forecasts import Values, checked, interpolated

ABOUT = "Least squares from the last values (as many as the context) to each of the next ones."

MOST_WINDOWS = 20_000
"""Of the training set, evenly spaced: a few seconds for several hundred values of context."""
RIDGE = 1e-3
"""The weight of the squared weights, relative to the mean square of the inputs."""


class LinearForecast(NamedTuple):
    weight: Values  # [context, horizon]; the last row is the bias
    spread: Values  # [levels, horizon]: quantiles of the errors in training less their median, in scales

    @property
    def context(self) -> int:
        return len(self.weight)

    def quantiles(self, history: Values) -> Values:
        """Return [horizon, levels]; the middle is the forecast itself."""
        known = checked(history)
        known = interpolated(known[np.flatnonzero(~np.isnan(known))[0] :])
        past = np.concatenate([np.full(max(self.context - len(known), 0), known[0]), known])[-self.context :]
        inputs, last, scale = scaled(past[None])
        centre = last + scale * (inputs @ self.weight)
        return np.asarray(centre + scale * self.spread).T


def scaled(past: Values) -> tuple[Values, Values, Values]:
    """Return inputs [windows, context] with a 1 for the bias, the last value and the scale [windows, 1]."""
    last = past[:, -1:]
    differences = past[:, :-1] - last
    scale = np.abs(differences).mean(1, keepdims=True)
    scale = np.where(scale > 0, scale, 1.0)
    return np.concatenate([differences / scale, np.ones_like(last)], 1), last, scale


def fitted(
    series: Sequence[Values], context: int, horizon: int, levels: Sequence[float]
) -> LinearForecast | None:
    """Return the forecast that fits the windows of these series; None if they are too few or too short."""
    windows = windows_of([each for each in series if len(each) >= context + horizon], context + horizon)
    if len(windows) <= context:
        return None
    inputs, last, scale = scaled(windows[:, :context])
    truth = (windows[:, context:] - last) / scale
    square = inputs.T @ inputs
    ridge = RIDGE * np.trace(square) / len(square)
    weight = np.linalg.solve(square + ridge * np.eye(len(square)), inputs.T @ truth)
    errors = np.quantile(truth - inputs @ weight, levels, axis=0)
    return LinearForecast(weight, errors - errors[list(levels).index(0.5)])


def linear_baselines(
    series: Sequence[Values], windows: Sequence[Window], context: int, levels: Sequence[float]
) -> list[Baseline]:
    """Return the figures of a linear forecast that is fitted to `series`; none if they are too short."""
    model = fitted(series, context, len(windows[0].truth), levels)
    if model is None:
        return []
    return [baseline("linear", ABOUT, windows, lambda window: model.quantiles(window.history), levels)]


def windows_of(series: Sequence[Values], length: int) -> Values:
    """Return windows [windows, length], at most MOST_WINDOWS, evenly spaced."""
    total = sum(len(each) - length + 1 for each in series)
    every = max(1, -(-total // MOST_WINDOWS))
    parts = [
        np.lib.stride_tricks.sliding_window_view(interpolated(each), length)[::every]
        for each in series
        if not np.isnan(each).all()
    ]
    return np.concatenate(parts) if parts else np.zeros((0, length))
