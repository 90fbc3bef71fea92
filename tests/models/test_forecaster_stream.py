"""One value in, one forecast out: `Forecaster.step` equals the forecast of a whole window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import linnet
from linnet.data.frequency import Frequency
from linnet.data.series import Series
from linnet.deploy.step.build import outputs_of, program_of
from linnet.deploy.step.interpret import outputs_of_program
from linnet.models.answers import StudentT
from linnet.models.forecaster import Forecaster, ForecasterConfig, Sizes
from linnet.models.stream_step import StreamStep
from linnet.tasks.forecast_windows import SeriesArrays

SIZES = Sizes(horizon=4, context=12, season=5)
LENGTH = 20


def forecaster(sizes: Sizes, **config: Any) -> Forecaster:
    """A model whose head is not zero, as it is before training."""
    model = Forecaster(sizes, ForecasterConfig(hidden_size=6, **config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def by_window(model: Forecaster, values: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return the forecast after the last value, and the scale there; all but the network in float64."""
    nothing = np.zeros((len(values), 0))
    series = Series("one", 0, values, nothing, nothing, "a test")
    arrays = SeriesArrays([series], model.sizes, Frequency(), False)
    count, first = len(values), torch.tensor([0])
    window = arrays.batch(first, first, count, first + count, torch.tensor([[count - 1]]))
    forecast = model(window)
    location, scale = (each[-1].double() for each in (window.location, window.scale))
    exact = type(forecast)(*(each[0].double() for each in forecast))
    centre, unit = window.centre[0], window.unit[0]
    return model.in_unit(exact, location * unit + centre, scale * unit)[0], (scale * unit)[0]


def by_steps(model: Forecaster, values: np.ndarray) -> Tensor:
    state = model.initial_state()
    for value in torch.from_numpy(values).to(model.example.dtype):
        forecast, state = model.step(value[None], state)
    return forecast[0].double()


def series_of(base: float, deviation: float, targets: int = 1) -> np.ndarray:
    """Numbers that float32 can represent."""
    numbers = base + deviation * np.random.default_rng(0).standard_normal((LENGTH, targets))
    return numbers.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("unit", ["gru", "lrn"])
@pytest.mark.parametrize("decoder", ["direct", "steps"])
@pytest.mark.parametrize("answer", ["quantiles", "student"])
@torch.no_grad()
def test_steps_equal_a_window(unit: str, decoder: str, answer: str):
    sizes = SIZES._replace(targets=2, gaps=True)
    model = forecaster(sizes, unit=unit, decoder=decoder, answer=answer).double()
    values = series_of(3, 1, targets=2)
    values[[4, 5, 11], [0, 0, 1]] = np.nan
    expected, _ = by_window(model, values)
    # A window is stored in float32.
    torch.testing.assert_close(by_steps(model, values), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_target_that_begins_later_was_at_its_first_value():
    model = forecaster(SIZES._replace(targets=2, gaps=True))
    values = series_of(50, 1, targets=2)
    values[:3, 1] = np.nan
    expected, _ = by_window(model, values)
    torch.testing.assert_close(by_steps(model, values), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("base", "deviation"), [(0, 1), (100, 1), (1e5, 1), (1e6, 1), (1e6, 300), (-1e7, 1e4), (1e-9, 1e-10)]
)
@torch.no_grad()
def test_large_values_keep_their_digits_in_float32(base: float, deviation: float):
    """The differences are those of the last digit of a forecast: 6e-8 of its size."""
    model, values = forecaster(SIZES), series_of(base, deviation)
    expected, scale = by_window(model, values)
    allowed = 1.2e-7 * expected.abs() + 2e-6 * scale[:, None]
    assert ((by_steps(model, values) - expected).abs() <= allowed).all()


@pytest.mark.parametrize(("base", "deviation"), [(1, 0.2), (1e6, 300), (1e6, 1e5)])
@torch.no_grad()
def test_logarithms_of_large_values_in_float32(base: float, deviation: float):
    """The logarithm of 1e6 is 13.8, with a last digit of 1e-6, so that forecasts are right to 2e-6."""
    model, values = forecaster(SIZES._replace(log=True)), series_of(base, deviation)
    expected, _ = by_window(model, values)
    torch.testing.assert_close(by_steps(model, values), expected, rtol=3e-6, atol=0)


def test_quantiles_of_student_distributions_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    answer = StudentT((0.001, 0.1, 0.5, 0.975, 0.9999))
    freedom = 2 + torch.logspace(-9, 9, 500, dtype=torch.float64)
    expected = stats.t.ppf(answer.levels, freedom.numpy()[:, None])
    np.testing.assert_allclose(answer.standard(freedom).numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("unit", linnet.UNITS)
@torch.no_grad()
def test_every_unit_steps_in_an_exported_program(unit: str):
    model = forecaster(SIZES._replace(gaps=True, known=1), unit=unit, decoder="steps")
    step = StreamStep(model, ["value"], [], torch.zeros(1, model.sizes.inputs))
    values = torch.from_numpy(series_of(30, 2, model.sizes.inputs)).float()
    values[7, 0] = np.nan
    found = outputs_of_program(program_of(step, example=step.example), values)
    torch.testing.assert_close(found, outputs_of(step, values, step.example), rtol=1e-5, atol=1e-5)
