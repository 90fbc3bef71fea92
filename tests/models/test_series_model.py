"""A model of labelled series: scaling, missing values, times, and single steps that equal whole series."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.models.series import POOLED, SeriesModel, SeriesModelConfig, SeriesSizes, moments, reads_time

SIZES = SeriesSizes(channels=3, outputs=4)
SMALL: dict[str, Any] = {"hidden_size": 5, "num_layers": 2}


def made(sizes: SeriesSizes = SIZES, **options: Any) -> SeriesModel:
    torch.manual_seed(1)
    model = SeriesModel(sizes, SeriesModelConfig(**{**SMALL, **options})).double().eval()
    model.set_scales(
        [1.0, -20.0, 300.0][: sizes.channels], [2.0, 10.0, 50.0][: sizes.channels], [0.5, 1.0, 2.0], 0.5
    )
    return model


def series(steps: int, batch: int = 1, times: bool = False) -> Tensor:
    torch.manual_seed(2)
    x = torch.randn(steps, batch, 3, dtype=torch.float64) * torch.tensor([2.0, 10.0, 50.0])
    x = x + torch.tensor([1.0, -20.0, 300.0])
    return torch.cat([x, torch.rand(steps, batch, 1, dtype=torch.float64)], -1) if times else x


@torch.no_grad()
def assert_steps_equal_prefixes(model: SeriesModel, x: Tensor) -> None:
    state = model.initial_state()
    for step in range(len(x)):
        answer, state = model.step(x[step], state)
        whole = model.in_unit(model(x[: step + 1]))
        torch.testing.assert_close(answer, whole[-1] if model.sizes.steps else whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pooling", POOLED)
@pytest.mark.parametrize("unit", linnet.UNITS)
def test_the_answer_after_each_step_is_that_for_the_series_so_far(unit: str, pooling: str):
    assert_steps_equal_prefixes(made(unit=unit, pooling=pooling), series(6))


@pytest.mark.parametrize("scale", ["train", "none"])
@pytest.mark.parametrize("differences", [True, False])
def test_steps_equal_prefixes_with_every_form_of_input(scale: str, differences: bool):
    sizes = SIZES._replace(gaps=True, times=True)
    x = series(6, times=True)
    x[0, 0, 3] = torch.nan  # the time before the first step is not known
    x[2, 0, 1] = x[3, 0, 1] = torch.nan
    for unit in ("sru", "cfc"):
        model = made(sizes, unit=unit, scale=scale, differences=differences)
        assert_steps_equal_prefixes(model, x)


def test_numbers_and_answers_at_every_step_have_single_steps():
    model = made(SIZES._replace(outputs=1, value=True))
    model.set_answers(100.0, 20.0)
    assert_steps_equal_prefixes(model, series(5))
    assert_steps_equal_prefixes(made(SIZES._replace(steps=True)), series(5))


def test_padding_never_changes_an_answer():
    model, x = made(pooling="meanmax", bidirectional=True, scale="sequence"), series(7, batch=2)
    padded = x.clone()
    padded[4:, 1] = 1e6
    both = model(padded, torch.tensor([7, 4]))
    torch.testing.assert_close(both[1], model(x[:4, 1:])[0])
    torch.testing.assert_close(both[0], model(x[:, :1])[0])


def test_the_scaling_is_in_the_model():
    """A file in other units gives the same answers, once the scales are those of the file."""
    x, one, other = series(5), made(), made()
    other.load_state_dict(one.state_dict())
    other.set_scales([1000.0, -20.0, 300.0], [2000.0, 10.0, 50.0], other.change)
    scaled = x * torch.tensor([1000.0, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(other(scaled), one(x))
    assert not torch.allclose(other(x), one(x))


def test_scaling_by_sequence_forgets_the_size():
    model, x = made(scale="sequence"), series(8)
    torch.testing.assert_close(model(1000 * x - 7), model(x))
    mean, deviation = moments(torch.tensor([[[1.0]], [[torch.nan]], [[3.0]]]), None)
    assert mean.item() == 2
    assert deviation.item() == 1
    # A constant channel is 0, not NaN.
    assert torch.isfinite(model(torch.full((4, 1, 3), 5.0, dtype=torch.float64))).all()


def test_large_numbers_keep_their_precision():
    """Values such as coordinates are float64 until the mean is subtracted."""
    model = made().float()
    model.set_scales([5e7, 5e7, 5e7], [1.0, 1.0, 1.0])
    x = torch.randn(5, 1, 3, dtype=torch.float64)
    plain = made().float()
    plain.set_scales([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    torch.testing.assert_close(model(x + 5e7), plain(x), rtol=1e-4, atol=1e-4)


def test_a_missing_value_is_the_mean_and_an_input_says_where():
    x = series(4)
    mean = x.clone()
    mean[1, 0, 2] = 300.0
    x[1, 0, 2] = torch.nan
    torch.testing.assert_close(made()(x), made()(mean))
    marked = made(SIZES._replace(gaps=True))
    assert not torch.allclose(marked(x), marked(mean))


def test_a_time_that_is_not_known_is_the_typical_one():
    sizes = SIZES._replace(times=True)
    for unit in ("cfc", "sru"):
        model, x = made(sizes, unit=unit), series(4, times=True)
        known = x.clone()
        known[0, 0, 3] = 0.5  # set_scales
        x[0, 0, 3] = torch.nan
        torch.testing.assert_close(model(x), model(known))
        known[1, 0, 3] *= 10
        assert not torch.allclose(model(x), model(known)), unit


def test_units_that_read_times_are_given_them_and_others_get_an_input():
    sizes = SIZES._replace(times=True)
    assert reads_time("cfc")
    assert not reads_time("sru")
    assert made(sizes, unit="cfc").rnn.input_size == 6
    assert made(sizes, unit="sru").rnn.input_size == 7


def test_what_reads_steps_to_come_has_no_single_steps():
    with pytest.raises(ValueError, match="--no-bidirectional"):
        made(bidirectional=True).initial_state()
    with pytest.raises(ValueError, match="--scale train"):
        made(scale="sequence").initial_state()


def test_noise_is_only_for_training():
    model, x = made(noise=0.5, dropout=0.0), series(5)
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "sum"}, "pooling"),
        ({"scale": "robust"}, "scale"),
        ({"noise": -1.0}, "noise"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"unit_options": {"batch_first": True}}, "batch_first is not a unit option of a model of series"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        SeriesModelConfig(**options)
