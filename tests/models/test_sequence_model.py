"""The model of the memory tasks: its sizes are the papers', its answers where they are asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from linnet.models.sequence import SequenceModel, SequenceModelConfig, hidden_size_for

COPY, IMAGE = (10, 9), (1, 10)
PEEPHOLES = {"peepholes": True, "second_bias": False}
STATISTICS = {"statistics_size": 55, "summary_size": 16}
# inputs and outputs, unit, hidden size, options, parameters
SIZES: list[tuple[tuple[int, int], str, int, dict[str, Any], int]] = [
    (COPY, "nru", 80, {"memory_size": 64, "num_heads": 4}, 23_569),
    (COPY, "lstm", 70, PEEPHOLES, 23_529),
    (COPY, "rnn", 143, {"layer_norm": True, "second_bias": False}, 23_604),
    (COPY, "gru", 82, {"form": "before"}, 23_625),
    (COPY, "janet", 101, {}, 23_542),
    (COPY, "statisticalru", 60, STATISTICS, 23_010),
    (IMAGE, "nru", 212, {"memory_size": 256, "num_heads": 4}, 165_554),
    (IMAGE, "lstm", 200, PEEPHOLES, 164_210),
    (IMAGE, "eurnn", 1024, {}, 17_418),
]


def make(
    unit: str, hidden: int = 5, sizes: tuple[int, int] = (4, 3), options: dict | None = None, **given: Any
) -> SequenceModel:
    config = SequenceModelConfig(unit=unit, hidden_size=hidden, unit_options=options or {})
    return SequenceModel(*sizes, config, **given)


@pytest.mark.parametrize(("sizes", "unit", "hidden", "options", "count"), SIZES)
def test_the_sizes_are_the_authors(sizes: tuple[int, int], unit: str, hidden: int, options: dict, count: int):
    assert make(unit, hidden, sizes, options, device="meta").count() == count


def test_the_hidden_size_for_a_budget_is_the_authors():
    nru = SequenceModelConfig(unit_options={"memory_size": 64})
    wide = SequenceModelConfig(unit_options={"memory_size": 256})
    assert hidden_size_for(23_500, *COPY, nru) == 80
    assert hidden_size_for(165_500, *IMAGE, wide) == 212
    assert hidden_size_for(23_500, *COPY, SequenceModelConfig(unit="janet")) == 101
    # Widths of thousands are tried on the way.
    assert hidden_size_for(165_000, *IMAGE, SequenceModelConfig(unit="eurnn")) == 8684
    with pytest.raises(ValueError, match="a budget of 10 parameters is too small"):
        hidden_size_for(10, *COPY, nru)


@pytest.mark.parametrize("unit", linnet.UNITS)
def test_any_unit_answers_at_every_step_or_at_the_last(unit: str):
    torch.manual_seed(0)
    every, last = (make(unit, 8, one_hot=True, last=at_last).eval() for at_last in (False, True))
    last.load_state_dict(every.state_dict())
    x = torch.randint(4, (6, 2))
    answers, state = every(x)
    assert answers.shape == (6, 2, 3)
    torch.testing.assert_close(last(x)[0], answers[-1:])
    torch.testing.assert_close(every(x[3:], every(x[:3])[1])[0], answers[3:])
    assert state is not None


def test_classes_are_read_as_one_hot():
    torch.manual_seed(0)
    classes, numbers = make("ran", one_hot=True), make("ran")
    numbers.load_state_dict(classes.state_dict())
    x = torch.randint(4, (6, 2))
    torch.testing.assert_close(classes(x)[0], numbers(torch.eye(4)[x])[0])


def test_the_output_starts_xavier_normal_with_no_bias():
    torch.manual_seed(0)
    model = make("nru", 400, (4, 100))
    assert float(model.output.weight.detach().std()) == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert not model.output.bias.any()
    before = model.output.weight.clone()
    with torch.no_grad():
        model.output.bias.fill_(1.0)
    model.reset_parameters()
    assert not model.output.bias.any()
    assert not torch.equal(before, model.output.weight)


@pytest.mark.parametrize(
    ("x", "error", "told"),
    [
        (torch.tensor([[4]]), IndexError, "x has the class 4; this model reads 0 to 3"),
        (torch.tensor([[-1]]), IndexError, "x has the class -1"),
        (
            torch.zeros(2, 1, 4),
            TypeError,
            r"torch.int64 \[time, batch\]; got torch.float32 of shape \(2, 1, 4\)",
        ),
    ],
)
def test_what_cannot_be_read_is_answered(x: Tensor, error: type[Exception], told: str):
    with pytest.raises(error, match=told):
        make("ran", one_hot=True)(x)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="no unit 'nur'; did you mean 'nru'"):
        SequenceModelConfig(unit="nur")
    with pytest.raises(
        ValueError, match="bidirectional is not a unit option of a sequence model: it reads in one direction"
    ):
        SequenceModelConfig(unit_options={"bidirectional": True})
    with pytest.raises(ValueError, match="hidden_size must be at least 1"):
        SequenceModelConfig(hidden_size=0)
