"""What a step computes from weights alone is computed before the scan; and a state may have any name."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import linnet
from linnet.program.hoist import hoistable
from linnet.program.lines import Line


class Pair(NamedTuple):
    z: Tensor
    y: Tensor


class OscillatorCell(linnet.Cell):
    """A state that has the name of a kernel's output, a number for all channels, computed weights."""

    State = Pair

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"z": hidden_size, "y": hidden_size})
        where = {"device": device, "dtype": dtype}
        self.input = linnet.Projection(input_size, {"v": hidden_size}, bias, **where, **projection)
        self.w = nn.Parameter(torch.empty(hidden_size, **where))
        self.c = nn.Parameter(torch.empty(hidden_size, **where))
        self.scale = nn.Parameter(torch.empty(1, **where))
        self.reset_parameters()

    def reset_parameters(self):
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)

    def step(self, v: Tensor, z: Tensor, y: Tensor):
        s = torch.sigmoid(self.c) * self.scale
        z = z - s * (torch.tanh(self.w * y + v) + y)
        y = y + s * z
        return y, {"z": z, "y": y}


class Oscillator(linnet.Recurrent, cell=OscillatorCell):
    """A user's oscillator."""


def results(rnn: Oscillator, x: Tensor, backend: str | None) -> list[Tensor]:
    with linnet.backend(backend):
        y, state = rnn(x)
        return [y, *torch.autograd.grad((y * y).sum() + state.z.sum(), [x, *rnn.parameters()])]


@pytest.fixture
def rnn() -> Oscillator:
    torch.manual_seed(0)
    return Oscillator(3, 5, dtype=torch.float64)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(
        7, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    ).requires_grad_()


def test_computed_weights_give_the_results_and_gradients_of_the_loop(rnn: Oscillator, x: Tensor):
    assert "scan" in str(linnet.explain(rnn, x))
    for ours, theirs in zip(results(rnn, x, None), results(rnn, x, "reference"), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-14)


def test_what_depends_on_weights_alone_is_no_part_of_the_scan(rnn: Oscillator):
    (plan,) = rnn.directions[0].plans_of_mode()
    assert [line.op for line in plan.hoisted.before.lines] == ["sigmoid", "mul"]
    assert "sigmoid" not in [line.op for line in plan.hoisted.traced.forward.lines]
    assert plan.hoisted.traced.weights == ("w", "static.0")


def test_single_steps_and_compiled_calls_agree(rnn: Oscillator, x: Tensor):
    expected = results(rnn, x, "reference")[0]
    with torch.no_grad():
        first, _ = rnn.cells[0](x[0])
        torch.testing.assert_close(first, expected[0], rtol=1e-13, atol=1e-14)
    torch.compiler.reset()  # it counts how often code was compiled, by all tests together
    compiled, _ = torch.compile(rnn, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(compiled, expected, rtol=1e-13, atol=1e-14)


def test_second_derivatives_reach_the_parameters_behind_computed_weights(rnn: Oscillator, x: Tensor):
    found = []
    for backend in (None, "reference"):
        with linnet.backend(backend):
            (first,) = torch.autograd.grad(rnn(x)[0].square().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), [x, rnn.cells[0].c, rnn.cells[0].scale]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


LINES = [
    Line("v0", "exp", ("nu",)),
    Line("v1", "neg", ("v0",)),
    Line("v2", "exp", ("v1",)),
    Line("v3", "mul", ("v2", "h")),
    Line("v4", "sub", (1.0, "v2")),
    Line("v5", "mul", ("v4", "a")),
    Line("v6", "add", ("v3", "v5")),
]


def test_no_hoisted_value_is_computed_from_another():
    """1 - v2 is computed in the scan, since v2 is read there: otherwise its gradient would count twice."""
    assert hoistable(LINES, ["v6"], ["nu"]) == ["v2"]


def test_a_value_of_a_weight_that_the_scan_reads_stays_in_it():
    reads_nu = [*LINES, Line("v7", "mul", ("v6", "nu"))]
    assert hoistable(reads_nu, ["v7"], ["nu"]) == []


def test_cheap_operations_stay_where_they_are():
    assert hoistable([Line("v0", "add", ("b", 0.01)), Line("v1", "mul", ("v0", "h"))], ["v1"], ["b"]) == []
