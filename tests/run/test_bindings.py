"""Sequences run by bindings that earlier calls have made; whatever changes counts at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from fused_runs import enliven, plans_of
from helpers import at_once, identical, same, tensors
from torch import Tensor

import linnet
from linnet.base import pools
from linnet.units import UNITS
from tools.variants import FORMS

SIZE = 7
WITH_MATRICES = ("ran", "atr", "janet", "lstm", "gru", "rnn")


def run(rnn: Any, x: Tensor, state: Any = None) -> list[Tensor]:
    with torch.no_grad():
        y, state = rnn(x, state)
    return [y, *tensors(state)]


def by_the_loop(rnn: Any, x: Tensor, state: Any = None) -> list[Tensor]:
    with linnet.backend("reference"):
        return run(rnn, x, state)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}], ids=str)
@pytest.mark.parametrize("unit", FORMS)
def test_calls_equal_the_loop(unit: str, options: dict):
    torch.manual_seed(0)
    rnn = enliven(UNITS[unit](SIZE, SIZE, num_layers=2, dtype=torch.float64, **options))
    for shape in ((2, 2), (9, 2), (3, 2), (3, 5)):
        steps, batch = shape[::-1] if options.get("batch_first") else shape
        x = torch.randn(steps, batch, SIZE, dtype=torch.float64)
        state = None
        for _ in range(2):  # from zeros, and from the state of the call before
            same(run(rnn, x, state), by_the_loop(rnn, x, state), rtol=1e-12, atol=1e-12)
            with torch.no_grad():
                _, state = rnn(x, state)


def change_weight(rnn: Any) -> None:
    rnn.first_cell.input.weight.mul_(2)


def change_bias(rnn: Any) -> None:
    rnn.first_cell.input.bias.add_(1)


def change_vector(rnn: Any) -> None:
    rnn.first_cell.v_f.add_(1)


def replace_data(rnn: Any) -> None:
    weight = rnn.first_cell.input.weight
    weight.data = weight.data * 2


def replace_parameter(rnn: Any) -> None:
    rnn.first_cell.input.weight = torch.nn.Parameter(rnn.first_cell.input.weight * 2)


def load_others(rnn: Any) -> None:
    rnn.load_state_dict({name: value + 0.1 for name, value in rnn.state_dict().items()}, assign=True)


CHANGES = [change_weight, change_bias, change_vector, replace_data, replace_parameter, load_others]


@pytest.mark.parametrize("steps", [2, 40])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_weights_count_at_the_next_call(change, steps: int):
    rnn, x = enliven(linnet.SRU(SIZE, SIZE, dtype=torch.float64)), torch.randn(steps, 2, SIZE).double()
    before = run(rnn, x)[0]
    with torch.no_grad():
        change(rnn)
    after = run(rnn, x)
    assert not torch.allclose(after[0], before)
    same(after, by_the_loop(rnn, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"input_dropout": 0.5}, {"cell_dropout": 0.5}, {"zoneout": 0.5}], ids=str
)
def test_noise_is_drawn_as_by_the_loop(options: dict):
    rnn, x = linnet.SRU(SIZE, SIZE, dtype=torch.float64, **options), torch.randn(5, 2, SIZE).double()
    found = []
    for call in (run, run, by_the_loop):
        torch.manual_seed(3)
        found.append(call(rnn, x))
    same(found[0], found[2], rtol=1e-12, atol=1e-12)
    same(found[1], found[2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LRN], ids=lambda unit: unit.__name__)
def test_results_are_the_callers_own(unit):
    rnn, x = enliven(unit(SIZE, SIZE)), torch.randn(6, 2, SIZE)
    first = run(rnn, x)
    kept = [tensor.clone() for tensor in first]
    run(rnn, x + 1)
    identical(first, kept)
    with torch.no_grad():
        first[0].zero_()
    identical(first[1], kept[1])


@pytest.mark.parametrize("unit", [linnet.SRU, linnet.LRN], ids=lambda unit: unit.__name__)
def test_threads_may_share_a_module(unit):
    rnn = enliven(unit(16, 16))
    inputs = [torch.randn(steps, batch, 16) for steps, batch in ((3, 1), (20, 1), (8, 7))]
    expected = [run(rnn, x) for x in inputs]
    found = at_once(*(partial(run, rnn, x) for x in inputs), times=200)
    for results, alone in zip(found, expected, strict=True):
        assert len(results) == 200
        for mine in results:
            identical(mine, alone)


def test_weights_that_differ_at_each_call():
    rnn, x = linnet.SRU(SIZE, SIZE).double(), torch.randn(4, 2, SIZE).double()
    for factor in range(20):
        weights = {name: factor * weight for name, weight in rnn.named_parameters()}
        with torch.no_grad():
            y, _ = torch.func.functional_call(rnn, weights, (x,))
        with torch.no_grad(), linnet.backend("reference"):
            same(y, torch.func.functional_call(rnn, weights, (x,))[0])


def test_not_all_batch_sizes_are_kept(monkeypatch):
    monkeypatch.setattr(pools, "MOST_KINDS", 4)
    rnn = linnet.SRU(SIZE, SIZE)
    for batch in range(1, 10):
        x = torch.randn(8, batch, SIZE)
        rnn(x)
        run(rnn, x)
    (fusible,) = plans_of(rnn, training=True)
    assert len(fusible.plan.bindings.pools) == 4
    assert len(rnn.inference.bound.stack.pools.pools) == 4


def test_another_number_of_threads_is_another_call():
    rnn, x = enliven(linnet.LRN(64, 64)), torch.randn(30, 3, 64)
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            found.append(run(rnn, x))
    finally:
        torch.set_num_threads(threads)
    for each in found:
        same(each, by_the_loop(rnn, x), rtol=1e-5, atol=1e-6)


def gradients(rnn: Any, x: Tensor, wanted: list[Tensor], above: list[Tensor]) -> list[Tensor | None]:
    y, state = rnn(x)
    return list(torch.autograd.grad([y, *tensors(state)], wanted, above, allow_unused=True))


@pytest.mark.parametrize("frozen", [(), ("cell.input.weight", "cell.input.bias"), ("cell.v_f",)], ids=str)
@pytest.mark.parametrize("needs_x", [True, False])
def test_gradients_equal_those_of_the_loop(frozen: tuple[str, ...], needs_x: bool):
    rnn = enliven(linnet.SRU(SIZE, SIZE, dtype=torch.float64))
    for name in frozen:
        rnn.directions[0].get_parameter(name).requires_grad_(False)
    wanted = [weight for weight in rnn.parameters() if weight.requires_grad]
    for steps in (3, 12):
        x = torch.randn(steps, 2, SIZE, dtype=torch.float64, requires_grad=needs_x)
        above = [torch.randn(steps, 2, SIZE).double(), torch.randn(1, 2, SIZE).double()]
        for _ in range(2):
            found = gradients(rnn, x, [*wanted, x] if needs_x else wanted, above)
            with linnet.backend("reference"):
                expected = gradients(rnn, x, [*wanted, x] if needs_x else wanted, above)
            same(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("frozen", ["nothing", "the projection", "the recurrent matrix"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unit", WITH_MATRICES)
def test_gradients_of_recurrent_matrices_equal_those_of_the_loop(unit: str, reverse: bool, frozen: str):
    rnn = enliven(UNITS[unit](SIZE, SIZE, dtype=torch.float64, bidirectional=reverse))
    for name, weight in rnn.named_parameters():
        is_of_projection = ".input." in name or "_ih" in name
        if frozen == ("the projection" if is_of_projection else "the recurrent matrix"):
            weight.requires_grad_(False)
    wanted = [weight for weight in rnn.parameters() if weight.requires_grad]
    batch = 4 * torch.get_num_threads() + 1
    x = torch.randn(6, batch, SIZE, dtype=torch.float64)
    y, state = rnn(x)
    above = [torch.randn_like(made) for made in (y, *tensors(state))]
    for _ in range(2):
        found = gradients(rnn, x, wanted, above)
        with linnet.backend("reference"):
            same(found, gradients(rnn, x, wanted, above), rtol=1e-11, atol=1e-12)


def test_a_weight_changed_before_backward_is_an_error():
    rnn, x = linnet.SRU(SIZE, SIZE), torch.randn(9, 2, SIZE)
    y, _ = rnn(x)
    with torch.no_grad():
        rnn.first_cell.input.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_graph_can_be_used_twice():
    rnn = enliven(linnet.LRN(SIZE, SIZE, dtype=torch.float64))
    x = torch.randn(9, 2, SIZE, dtype=torch.float64, requires_grad=True)
    y, _ = rnn(x)
    first, second = (torch.autograd.grad(y.sum(), x, retain_graph=True) for _ in range(2))
    identical(first, second)


def test_the_default_device_does_not_matter():
    rnn = enliven(linnet.SRU(SIZE, SIZE))
    x = torch.randn(9, 2, SIZE, requires_grad=True)
    with torch.device("meta"):
        y, _ = rnn(x)
        (found,) = torch.autograd.grad(y, x, torch.ones(9, 2, SIZE, device="cpu"))
    (expected,) = torch.autograd.grad(rnn(x)[0].sum(), x)
    identical(found, expected)


def test_what_inference_mode_has_prepared_can_be_used_outside_of_it():
    rnn, x = enliven(linnet.SRU(SIZE, SIZE)), torch.randn(9, 2, SIZE)
    with torch.inference_mode():
        expected, _ = rnn(x)
    identical(run(rnn, x)[0], expected)
    with torch.inference_mode():
        identical(rnn(x)[0], expected)
