"""The linear baseline of forecasts."""

from __future__ import annotations

import numpy as np
import pytest

from linnet.tasks.forecast_measures import Window
from linnet.tasks.linear_forecasts import MOST_WINDOWS, fitted, linear_baselines, windows_of

LEVELS = (0.1, 0.5, 0.9)
T = np.arange(400)


def test_what_is_linear_is_forecast_exactly():
    """A line and a wave follow from their last three values."""
    series = 3 + 0.5 * T + 4 * np.sin(2 * np.pi * T / 12)
    model = fitted([series[:300]], 24, 6, LEVELS)
    assert model is not None
    made = model.quantiles(series[:350])
    assert made[:, 1] == pytest.approx(series[350:356], abs=0.05)


def test_the_size_of_a_series_does_not_matter():
    noise = np.random.default_rng(0).normal(size=400).cumsum()
    model = fitted([noise], 10, 3, LEVELS)
    assert model is not None
    small, large = model.quantiles(noise[:200]), model.quantiles(1000 * noise[:200] + 5)
    assert large == pytest.approx(1000 * small + 5)
    assert (np.diff(small, axis=1) > 0).all()


def test_quantiles_have_their_share():
    noise = np.random.default_rng(0).normal(size=5000)
    model = fitted([noise[:4000]], 10, 2, LEVELS)
    assert model is not None
    inside = [
        low <= noise[end] <= high
        for end in range(4000, 4990)
        for low, _, high in [model.quantiles(noise[:end])[0]]
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.04)


def test_gaps_and_short_histories():
    noise = np.random.default_rng(0).normal(size=400)
    noise[[50, 51, 200]] = np.nan
    model = fitted([noise], 10, 3, LEVELS)
    assert model is not None
    for history in (noise[:52], noise[:3], noise[48:51], np.full(20, 7.0)):
        assert np.isfinite(model.quantiles(history)).all()
    assert model.quantiles(np.full(20, 7.0))[0, 1] == pytest.approx(7, abs=0.5)


def test_too_few_values_have_no_linear_baseline():
    window = Window("", np.arange(5.0), np.arange(3.0))
    assert linear_baselines([np.arange(10.0)], [window], 10, LEVELS) == []
    assert linear_baselines([np.full(100, np.nan)], [window], 10, LEVELS) == []


def test_of_many_windows_some_are_read():
    series = [np.arange(50_000.0), np.arange(30_000.0)]
    windows = windows_of(series, 5)
    assert MOST_WINDOWS / 2 < len(windows) <= MOST_WINDOWS + len(series)
    assert (np.diff(windows, axis=1) == 1).all()
