"""A seed gives the same masks by kernels and by the loop, whatever is drawn."""

from __future__ import annotations

import pytest
import torch

import linnet
from linnet.run.choose import warn_once
from linnet.run.stepwise import Stepwise
from tools.variants import FORMS

# Masks on the input, on the state as matrices read it, on what a state keeps, and on weights.
KINDS = [
    {"zoneout": 0.3},
    {"input_dropout": 0.3, "zoneout": 0.3},
    {"input_dropout": 0.3, "state_dropout": 0.3},
    {"input_dropout": 0.3, "zoneout": 0.3, "weight_drop": 0.3, "bidirectional": True},
]
UNITS = [*FORMS.values()]
SRU_WITH_A_MASK = {"cell_dropout": 0.3, "input_dropout": 0.3, "zoneout": 0.3}
CASES = [(unit, kind) for unit in UNITS for kind in KINDS] + [(linnet.SRU, SRU_WITH_A_MASK)]


def built(unit, options):
    try:
        return unit(8, 8, dtype=torch.double, **options)
    except ValueError:  # a unit without recurrent matrices has no state_dropout
        return None


def run(call, backend=None):
    """The results of a call, and the number that is drawn after it."""
    torch.manual_seed(1)
    with linnet.backend(backend):
        y, state = call()
    return y, state, torch.rand(1)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("unit", "options"), [case for case in CASES if built(*case) is not None], ids=str)
def test_kernels_and_the_loop_draw_the_same_masks(unit, options, steps):
    rnn, x = built(unit, options), torch.randn(steps, 5, 8, dtype=torch.double)
    expected = run(lambda: rnn(x), "reference")
    for _ in range(2):  # the second call may reuse what the first has prepared
        torch.testing.assert_close(run(lambda: rnn(x)), expected, rtol=1e-10, atol=1e-10)


def test_weights_that_kernels_refuse_change_no_mask():
    """The loop draws what the refused kernel has drawn."""
    warn_once.cache_clear()  # another test may have caused the same warning
    rnn = linnet.GRU(8, 8, dtype=torch.double, input_dropout=0.3, zoneout=0.3)
    x = torch.randn(4, 5, 8, dtype=torch.double)
    expected = run(lambda: rnn(x), "reference")
    weight = rnn.cells[0].input.weight
    weight.data = torch._neg_view(weight.data.neg())
    with pytest.warns(linnet.FallbackWarning, match="negative bit"):
        found = run(lambda: rnn(x))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("options", [SRU_WITH_A_MASK | {"zoneout": 0.0}])
def test_single_cells_and_cells_inside_of_other_layers_draw_the_same_masks(options):
    cell = linnet.SRU(8, 8, dtype=torch.double, **options).cells[0]
    x, state = torch.randn(5, 8, dtype=torch.double), {"c": torch.zeros(5, 8, dtype=torch.double)}
    expected = run(lambda: cell(x), "reference")
    torch.testing.assert_close(run(lambda: cell(x)), expected, rtol=1e-10, atol=1e-10)

    def stepwise():
        steps = Stepwise(cell, x)
        y, new = steps.advance(steps.project(x), state)
        return y, new["c"]

    torch.testing.assert_close(run(stepwise), expected, rtol=1e-10, atol=1e-10)
