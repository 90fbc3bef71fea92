"""Several Python threads at one module: each must get what one alone gets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from fused_runs import enliven
from helpers import at_once, identical, same, tensors
from torch import Tensor

import linnet
from linnet.cpu import jit
from linnet.run.scan import Call


def in_thread_without_gradients(cell: Any, x: Tensor) -> Any:
    # Whether gradients are wanted is a setting of each thread.
    with torch.no_grad():
        return cell.run_step(x)


def test_a_step_is_not_mixed_up_with_that_of_another_thread():
    cell, x, other = enliven(linnet.LSTMCell(16, 16)), torch.randn(7, 16), torch.randn(7, 16)
    with torch.no_grad():
        expected = cell.run_step(x)
        (step,) = cell.plan_cache.decision.steps.of((x.shape, x.dtype))
        run, others = step.program.run, []

        def interrupted() -> None:
            """Another thread steps while the addresses of this step are set and its kernel has not run."""
            step.program.run = run
            others.extend(at_once(partial(in_thread_without_gradients, cell, other))[0])
            run()

        step.program.run = interrupted
        found = cell.run_step(x)
    assert len(others) == 1
    identical(found, expected)


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LSTM, linnet.NRU], ids=lambda unit: unit.__name__)
def test_threads_may_step_one_cell_with_different_batches(unit):
    cell = enliven(unit.cell_class(16, 16))
    inputs = [torch.randn(batch, 16) for batch in (1, 7, 40)]
    with torch.no_grad():
        expected = [cell.run_step(x) for x in inputs]
    found = at_once(*(partial(in_thread_without_gradients, cell, x) for x in inputs), times=200)
    for results, (y, state) in zip(found, expected, strict=True):
        assert len(results) == 200
        for mine in results:
            identical(mine[0], y)
            identical(tensors(mine[1]), tensors(state))


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LSTM], ids=lambda unit: unit.__name__)
def test_backward_is_not_mixed_up_with_that_of_another_thread(unit, monkeypatch):
    """The projection is overwritten by its gradient; a thread that comes in between must not do so too."""
    rnn = enliven(unit(16, 32))
    y, _ = rnn(torch.randn(20, 16, 16))

    def gradients() -> Any:
        return torch.autograd.grad(y.sum(), list(rnn.parameters()), retain_graph=True)

    others: list[Any] = []
    whole = Call.operands

    def interrupted(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(Call, "operands", whole)
        others.extend(at_once(gradients)[0])
        return whole(*arguments, **named)

    monkeypatch.setattr(Call, "operands", interrupted)
    found = gradients()
    expected = gradients()
    assert others
    for mine, other, right in zip(found, *others, expected, strict=True):
        same((mine, other), (right, right), atol=1e-5 * right.abs().max().item(), rtol=0)


@pytest.mark.parametrize(
    "unit", [linnet.SRU, linnet.RAN, linnet.LSTM, linnet.NRU], ids=lambda unit: unit.__name__
)
def test_threads_may_differentiate_one_graph(unit):
    rnn = enliven(unit(16, 32))
    y, state = rnn(torch.randn(100, 16, 16))
    loss = y.sum() + sum(s.sum() for s in tensors(state))

    def gradients() -> Any:
        return torch.autograd.grad(loss, list(rnn.parameters()), retain_graph=True)

    found, expected = at_once(gradients, gradients, gradients), gradients()
    for results in found:
        for mine, right in zip(results[0], expected, strict=True):
            same(mine, right, atol=1e-5 * right.abs().max().item(), rtol=0)


def test_threads_may_train_with_dropped_weights():
    rnn = enliven(linnet.LSTM(8, 16, weight_drop=0.5))
    x, before = torch.randn(6, 4, 8), {name: p.detach().clone() for name, p in rnn.named_parameters()}

    def train() -> Any:
        y, _ = rnn(x)
        return torch.autograd.grad(y.sum(), list(rnn.parameters()))

    found = at_once(*[train] * 4, times=100)
    assert all(isinstance(each, tuple) for results in found for each in results)
    identical(dict(rnn.named_parameters()), before)
    assert all(isinstance(p, torch.nn.Parameter) for p in rnn.parameters())


def test_another_thread_never_sees_dropped_weights():
    rnn = enliven(linnet.LSTM(8, 16, weight_drop=0.9))
    x, right = torch.randn(6, 4, 8), rnn.directions[0].cell.recurrent.weight.detach().clone()

    def weight() -> Tensor:
        return rnn.state_dict()["weight_hh_l0"].clone()

    _, found = at_once(lambda: rnn(x), weight, times=300)
    assert all(torch.equal(each, right) for each in found)


def test_recurrent_products_count_as_work_that_is_worth_a_thread(monkeypatch):
    calls, run = [], jit.run
    monkeypatch.setattr(jit, "run", lambda *call: (calls.append(call[1:3]), run(*call)))
    linnet.LSTM(1, 25)(torch.randn(24, 32, 1))
    assert (32, 1) in calls
