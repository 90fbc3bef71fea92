"""Cells that advance by single steps: kernels against the loop, and which way is taken."""

from __future__ import annotations

import pytest
import torch

import linnet
from linnet.run.stepwise import Stepwise
from linnet.units import UNITS

SIZE = 5
# Units with a kernel of their own for whole sequences, with several or with none: their steps are PyTorch.
BY_TORCH = ("scrn", "eurnn", "goru")


def advance(cell: linnet.Cell, x: torch.Tensor) -> tuple[Stepwise, list[torch.Tensor]]:
    """Two passes over x, the second from the state of the first: outputs, states and all gradients."""
    steps, state = Stepwise(cell, x), cell.initial_state((x.shape[1],), x)
    rows, outputs = steps.project(x).by_step(), []
    for row in rows:
        y, state = steps.advance(row, state)
        outputs.append(y)
    results = [torch.stack(outputs), *state.values()]
    leaves = [x, *cell.parameters()]
    total = sum((result * torch.randn_like(result)).sum() for result in results)
    return steps, [*results, *torch.autograd.grad(total, leaves, allow_unused=True)]


@pytest.mark.parametrize("unit", UNITS)
def test_kernels_equal_the_loop(unit: str):
    torch.manual_seed(0)
    cell = UNITS[unit](SIZE, SIZE, dtype=torch.float64).first_cell
    x = torch.randn(3, 2, SIZE, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    steps, found = advance(cell, x)
    torch.manual_seed(1)
    with linnet.backend("reference"):
        _, expected = advance(cell, x)
    assert (steps.kernels is None) == (unit in BY_TORCH)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_without_gradients():
    cell = linnet.GRU(SIZE, SIZE, dtype=torch.float64).first_cell
    x = torch.randn(3, 2, SIZE, dtype=torch.float64)
    with torch.no_grad():
        state = cell.initial_state((2,), x)
        steps = Stepwise(cell, x)
        y, new = steps.advance(steps.project(x[0]), state)
        expected, _ = cell.advance(cell.project(x[0]), state)
    assert steps.kernels is not None
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert set(new) == set(state)


def test_a_weight_that_does_not_fit_takes_the_loop():
    cell = linnet.ATR(SIZE, SIZE).first_cell
    x, state = torch.randn(2, SIZE), cell.initial_state((2,), torch.zeros(2, SIZE))
    steps = Stepwise(cell, x)
    row = steps.project(x)
    (name,) = cell.recurrence
    getattr(cell, name).weight = torch.nn.Parameter(torch.randn(SIZE, SIZE + 1))
    with pytest.warns(linnet.FallbackWarning), pytest.raises(RuntimeError, match="shapes"):
        steps.advance(row, state)
    assert steps.kernels is None


def test_a_compiler_sees_the_operations_of_a_step():
    cell = linnet.LRN(SIZE, SIZE).first_cell
    x = torch.randn(2, 2, SIZE)

    def run(x: torch.Tensor) -> torch.Tensor:
        steps = Stepwise(cell, x)
        y, _ = steps.advance(steps.project(x).by_step()[0], cell.initial_state((2,), x))
        return y

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), run(x))
