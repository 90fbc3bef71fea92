"""Tensors with the negative bit, whose memory has the other sign: the imaginary part of a conjugate, ..."""

from __future__ import annotations

import pytest
import torch
from fused_runs import FORMS, draw, draw_state, variant
from helpers import tensors

import linnet

UNITS = [*FORMS, variant(linnet.NRU)]
falls_back = pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")


def negative(tensor):
    """The same numbers, with the other sign in memory."""
    made = torch._neg_view(tensor.neg())
    assert made.is_neg()
    return made


def check_each_weight(rnn, x):
    for each in [*rnn.parameters(), *rnn.buffers()]:
        expected, before = rnn(x), each.data
        each.data = negative(before) if each.is_floating_point() else before
        found = [rnn(x) for _ in range(2)]
        each.data = before
        for results in found:
            torch.testing.assert_close(results, expected, rtol=1e-5, atol=1e-5)


@falls_back
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_weights(unit, grad, steps):
    """Also those that replace the data of a parameter after a call."""
    rnn = unit.build(16, torch.float32)
    with torch.set_grad_enabled(grad):
        check_each_weight(rnn, draw(steps, 9, rnn.input_size, seed=1, dtype=torch.float32))


@falls_back
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LSTM, linnet.GRU, linnet.OLRN], ids=lambda u: u.__name__)
def test_weights_of_quantised_modules(unit, steps):
    rnn = linnet.quantize(variant(unit).build(16, torch.float32))
    with torch.no_grad():
        check_each_weight(rnn, draw(steps, 9, rnn.input_size, seed=1, dtype=torch.float32))


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.NRU], ids=lambda u: u.__name__)
def test_an_error_names_the_weight_and_what_to_do(unit):
    rnn = unit(4, 8)
    weight = rnn.cells[0].input.weight if unit is linnet.SRU else rnn.cells[0].heads.weight
    weight.data = torch._neg_view(weight.data)
    with linnet.backend("cpu"), pytest.raises(RuntimeError, match=r"matrix.* negative bit set.*resolve_neg"):
        rnn(torch.randn(4, 3, 4))


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_input_states_and_gradients_of_results(unit, steps):
    rnn, found = unit.build(16), []
    x, state = draw(steps, 9, rnn.input_size, seed=1), draw_state(rnn, 9)
    for change in (torch.clone, negative):
        starts = state._make(map(change, state)) if isinstance(state, tuple) else change(state)
        y, end = rnn(change(x), starts)
        results = [y, *tensors(end)]
        above = [change(result.detach().cos()) for result in results]
        found.append([*results, *torch.autograd.grad(results, list(rnn.parameters()), above)])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
