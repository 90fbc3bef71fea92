"""A step of a cell, by its kernel: what the loop computes, without a copy of anything large."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from fused_runs import FORMS, NOT_ELEMENTWISE, OTHER_STEPS, WITH_INNER_PRODUCTS, Variant, draw, over
from helpers import each, tensors
from user_units import SortingCell

import linnet
from benchmarks.recurrence import launches

CELLS = [
    *FORMS,
    # Every second form of a step: their equations have their parity in tests/run.
    *[*OTHER_STEPS, *WITH_INNER_PRODUCTS, *NOT_ELEMENTWISE][::2],
    Variant(linnet.NRU, {"memory_size": 64}),
]


def build(sort: Variant, dtype: torch.dtype = torch.double) -> linnet.recurrent.cell.Cell:
    return sort.build(9, dtype).cells[0]


@over("sort", CELLS)
@over("batch", [(), (1,), (6,)])
def test_a_step_by_the_kernel_is_a_step_by_the_loop(sort: Variant, batch: tuple[int, ...]):
    cell = build(sort)
    x = draw(*batch, cell.input_size, seed=1).requires_grad_()
    results = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            y, state = cell.run_step(x)
            y, state = cell.run_step(x, state)
        found = [y, *tensors(state)]
        total = sum((t * draw(*t.shape, seed=i)).sum() for i, t in enumerate(found))
        gradients = torch.autograd.grad(total, [x, *cell.parameters()], allow_unused=True)
        results.append([*found, *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@over("sort", [*FORMS, *WITH_INNER_PRODUCTS])
def test_steps_in_float32_and_without_gradients(sort: Variant):
    cell = build(sort, torch.float32)
    x = draw(3, cell.input_size, seed=1, dtype=torch.float32)
    with torch.no_grad():
        with linnet.backend("cpu"):
            y, state = cell.run_step(x)
        with linnet.backend("reference"):
            theirs, their_state = cell.run_step(x)
    torch.testing.assert_close(y, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, their_state, rtol=1e-5, atol=1e-6)


def test_a_step_sees_weights_that_change():
    cell = linnet.LRNCell(4, 8)
    x = draw(2, 4, seed=1, dtype=torch.float32)
    with torch.no_grad():
        before, _ = cell.run_step(x)
        # Behind torch's back, as some code does.
        cell.input.weight.data.mul_(2)
        after, _ = cell.run_step(x)
        with linnet.backend("reference"):
            expected, _ = cell.run_step(x)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, expected)


def test_a_cell_that_has_stepped_can_be_copied_and_pickled():
    cell = linnet.SRUCell(4, 8)
    x = draw(2, 4, seed=1, dtype=torch.float32)
    y, _ = cell.run_step(x)
    for other in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell))):
        torch.testing.assert_close(other.run_step(x)[0], y, rtol=0, atol=0)


def test_a_cell_without_a_kernel_says_so_when_asked_for_one():
    cell = SortingCell(4, 8)
    with linnet.backend("cpu"), pytest.raises(RuntimeError, match="Sorting cannot run on it"):
        cell(torch.zeros(2, 4))


def test_state_stays_what_it_was():
    cell = linnet.LSTMCell(4, 8)
    x = torch.randn(2, 4)
    _, state = cell.run_step(x)
    kept = each(torch.clone, state)
    cell(x, state)
    torch.testing.assert_close(state, kept, rtol=0, atol=0)


# ------------------------------------------------------------------------- streams: no gradients


def stream(cell: linnet.recurrent.cell.Cell, xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs of one step after the other, and the last state."""
    found, state = [], None
    with torch.no_grad():
        for x in xs:
            y, state = cell.run_step(x, state)
            found.append(y)
    return [*found, *tensors(state)]


def both_ways(cell: linnet.recurrent.cell.Cell, xs: list[torch.Tensor]) -> None:
    results = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            results.append(stream(cell, xs))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@over("sort", CELLS)
def test_a_stream_is_what_the_loop_makes_of_it(sort: Variant):
    cell = build(sort)
    for batch in (1, 3, 1):
        both_ways(cell, [draw(batch, cell.input_size, seed=i) for i in range(4)])


@over("sort", [Variant(linnet.SRU, {}), Variant(linnet.LSTM, {}), Variant(linnet.RAN, {})])
def test_a_stream_sees_weights_that_were_moved_or_changed(sort: Variant):
    cell = build(sort)
    xs = [draw(2, cell.input_size, seed=i) for i in range(2)]
    both_ways(cell, xs)
    for parameter in cell.parameters():
        parameter.data.mul_(0.5)
    both_ways(cell, xs)
    for parameter in cell.parameters():
        parameter.data = parameter.data + 0.1
    both_ways(cell, xs)
    # The same memory, read the other way round.
    weight = cell.input.weight
    weight.data = weight.data.T.contiguous().T
    both_ways(cell, xs)


def test_a_stream_sees_an_input_that_lies_elsewhere():
    cell = linnet.LSTMCell(4, 8, dtype=torch.double)
    both_ways(cell, [draw(2, 4, seed=1), draw(4, 2, seed=2).T, draw(2, 9, seed=3)[:, 2:6]])


def test_the_output_of_a_step_is_not_its_state():
    cell = linnet.GRUCell(4, 8)
    with torch.no_grad():
        y, state = cell.run_step(draw(2, 4, seed=1, dtype=torch.float32))
    before = state.clone()
    y.zero_()
    assert torch.equal(state, before)


def test_threads_may_step_one_cell_at_once():
    cell = linnet.LSTMCell(16, 32, dtype=torch.double)
    inputs = [[draw(2, 16, seed=10 * i + j) for j in range(50)] for i in range(4)]
    expected = [stream(cell, xs) for xs in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(partial(stream, cell), inputs))
    for ours, alone in zip(found, expected, strict=True):
        assert all(map(torch.equal, ours, alone))


@over("unit", [linnet.SCRN, linnet.LSTM])
@over("steps", [1, 2, 3])
def test_a_unit_with_several_kernels_runs_two_steps_with_gradients_on_the_loop(unit: type, steps: int):
    rnn, launched = unit(9, 9), []
    with launches(lambda run, *arguments: launched.append(1) or run(*arguments)):
        rnn(draw(steps, 2, 9, seed=1).float())[0].sum().backward()
    assert bool(launched) == (unit is linnet.LSTM or steps > 2)
