"""The model of forecasts: a stream equals windows, and the laws of the level that it reads values by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import liven, same
from torch import Tensor

from linnet.data.frequency import Frequency
from linnet.data.series import Series
from linnet.models import level
from linnet.models.answers import ANSWERS
from linnet.models.forecaster import DECODERS, Forecaster, ForecasterConfig, Sizes
from linnet.tasks.forecast_windows import SeriesArrays

HORIZON, STEPS = 3, 40
SMALL = ForecasterConfig(hidden_size=5, num_layers=2, dropout=0.0)


def series(sizes: Sizes, seed: int = 0) -> Series:
    """A series with all that the sizes have: targets, covariates, gaps."""
    generator = np.random.default_rng(seed)
    values = 50 + np.cumsum(generator.normal(size=(STEPS, sizes.targets)), 0)
    if sizes.gaps:
        values[generator.random(values.shape) < 0.2] = np.nan
        values[[0, -1]] = 50.0
    known = generator.normal(size=(STEPS + HORIZON, sizes.known))
    observed = generator.normal(size=(STEPS, sizes.observed))
    return Series("", 0, values if sizes.log else values - 50, known, observed, "here")


def by_windows(model: Forecaster, one: Series) -> Tensor:
    """The forecasts after each step of a series, [steps, horizon, targets, levels]."""
    zero, steps = torch.zeros(1, dtype=torch.int64), torch.arange(STEPS)[:, None]
    arrays = SeriesArrays([one], model.sizes, Frequency(), False)
    window = arrays.batch(zero, zero, STEPS, torch.tensor([STEPS]), steps)
    location, scale = window.location.double(), window.scale.double()
    centre, unit = window.centre[0], window.unit[0]
    made = model(window)
    return model.in_unit(made, location * unit + centre, scale * unit)[:, 0]


def by_steps(model: Forecaster, one: Series) -> Tensor:
    state, found = model.initial_state(), []
    for step in range(STEPS):
        known = one.known[step : step + 1 + HORIZON].reshape(-1)
        x = np.concatenate([one.values[step], one.observed[step], known])
        forecast, state = model.step(torch.from_numpy(x)[None], state)
        found.append(forecast)
    return torch.cat(found)


ALL = {"targets": 2, "known": 2, "observed": 1, "gaps": True}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("log", [False, True])
@torch.no_grad()
def test_a_stream_equals_windows(log: bool, decoder: str, answer: str):
    sizes = Sizes(HORIZON, context=9, season=4, log=log, **ALL)
    config = ForecasterConfig(hidden_size=5, num_layers=2, dropout=0.0, decoder=decoder, answer=answer)
    model = liven(Forecaster(sizes, config))
    one = series(sizes)
    # Windows are float32.
    same(by_steps(model, one), by_windows(model, one), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("answer", ANSWERS)
@torch.no_grad()
def test_quantiles_never_cross(answer: str):
    sizes = Sizes(HORIZON, context=9, season=4, targets=2)
    model = liven(Forecaster(sizes, ForecasterConfig(hidden_size=5, dropout=0.0, answer=answer)))
    for seed in range(5):
        made = by_windows(model, series(sizes, seed))
        assert made.shape == (STEPS, HORIZON, 2, 5)
        assert bool((made.diff(dim=-1) >= 0).all())


@torch.no_grad()
def test_an_untrained_model_forecasts_the_value_one_season_before():
    sizes = Sizes(HORIZON, context=9, season=4)
    one = series(sizes)
    made = by_windows(Forecaster(sizes, SMALL).double(), one)[..., 0, 2]
    values = torch.from_numpy(one.values[:, 0])
    for step in range(20, STEPS):
        same(made[step], values[step - 3 : step - 3 + HORIZON], rtol=1e-4, atol=1e-3)


def test_a_context_that_is_shorter_than_a_season_is_refused():
    with pytest.raises(ValueError, match="does not reach back over a season of 12; expected a context of at"):
        Forecaster(Sizes(HORIZON, context=8, season=12), SMALL)


# -------------------------------------------------------------------------------------------- level


def levels(x: Any, span: float = 4, relative: bool = True) -> list[level.Level]:
    x = torch.as_tensor(x, dtype=torch.double)
    state, found = level.start(x[0]), []
    for value in x:
        now, state = level.advance(value, state, span, relative)
        found.append(now)
    return found


def test_the_level_is_that_of_its_formula():
    x = [3.0, -1.0, 4.0, 1.5]
    keep, keep_spread = 1 - 1 / 4, 1 - 1 / 8
    location = [
        sum(keep ** (t - k) * x[k] for k in range(t + 1)) / sum(keep**k for k in range(t + 1))
        for t in range(4)
    ]
    scale = [
        sum(keep_spread ** (t - k) * abs(x[k] - location[k]) for k in range(t + 1))
        / sum(keep_spread**k for k in range(t + 1))
        for t in range(4)
    ]
    found = levels(x)
    same(torch.stack([each.location for each in found]), torch.tensor(location, dtype=torch.double))
    same(torch.stack([each.scale for each in found])[1:], torch.tensor(scale, dtype=torch.double)[1:])


def test_a_level_grows_with_its_series():
    x = np.random.default_rng(0).normal(size=20) + 5
    for one, other in zip(levels(x), levels(1000 * x), strict=True):
        same(1000 * one.location, other.location)
        same(1000 * one.scale, other.scale)
        same(one.size, other.size)


def test_the_level_of_logarithms_moves_with_them():
    x = np.random.default_rng(0).normal(size=20)
    for one, other in zip(levels(x, relative=False), levels(x + 7, relative=False), strict=True):
        same(one.location + 7, other.location)
        same(one.scale, other.scale)
        same(one.size, other.size)


def test_a_missing_value_is_the_location_and_changes_none():
    nan = float("nan")
    before, missing, after = levels([1.0, 3.0, nan, 2.0])[1:]
    assert (before.present, missing.present, after.present) == (1, 0, 1)
    same(missing.value, missing.location)
    same(missing.location, before.location)
    first, second = levels([nan, 5.0])
    assert first.location == 0
    assert second.location == 5


def test_a_constant_series_has_a_scale():
    (*_, now) = levels([5.0] * 9)
    same(now.scale, torch.tensor(5 * level.SMALLEST, dtype=torch.double))
    (*_, zero) = levels([0.0] * 9)
    assert 0 < zero.scale <= level.TINY
    assert bool(torch.isfinite(zero.size))
