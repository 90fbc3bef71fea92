"""Single steps with gradients run by a scan; whatever changes counts at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from fused_runs import enliven
from helpers import at_once, same, tensors
from torch import Tensor

import linnet
from linnet.units import UNITS
from tools.variants import FORMS

SIZE, BATCH, STEPS = 7, 3, 4
STACKS: list[dict[str, Any]] = [
    {},
    {"batch_first": True},
    {"num_layers": 2, "bias": False},
    {"num_layers": 2, "bidirectional": True},
]
# SCRN has two kernels, which do not pay for one step.
BY_THE_LOOP = ("scrn", "eurnn", "goru")


def build(unit: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return enliven(UNITS[unit](SIZE, SIZE, dtype=torch.float64, **options))


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def train(rnn: Any) -> list[Tensor]:
    """Outputs, final states and gradients of a few steps, each from the state of the one before."""
    x = draw(STEPS, 1, BATCH, SIZE).requires_grad_()
    state, outputs = None, []
    for t in range(STEPS):
        y, state = rnn(x[t].transpose(0, 1) if rnn.batch_first else x[t], state)
        outputs.append(y.flatten())
    loss = sum((made**2).sum() for made in (*outputs, *tensors(state)))
    leaves = [x, *rnn.parameters()]
    found = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)
    again = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    assert all(map(torch.equal, found, again))
    return [*(y.detach() for y in outputs), *(s.detach() for s in tensors(state)), *found]


def by_the_loop(rnn: Any) -> list[Tensor]:
    with linnet.backend("reference"):
        return train(rnn)


@pytest.mark.parametrize("options", STACKS, ids=str)
@pytest.mark.parametrize("unit", FORMS)
def test_steps_equal_the_loop(unit: str, options: dict):
    rnn = build(unit, **options)
    for _ in range(2):
        same(train(rnn), by_the_loop(rnn))
    ways = linnet.explain(rnn, draw(1, 1, SIZE)).ways
    assert ways == ["loop" if unit in BY_THE_LOOP else "scan"] * len(rnn.directions)


@pytest.mark.parametrize("unit", ["sru", "ran"])
def test_steps_of_a_cell_equal_the_loop(unit: str):
    cell, x = build(unit).first_cell, draw(BATCH, SIZE).requires_grad_()

    def steps() -> list[Tensor]:
        _, state = cell(x)
        y, _ = cell(x, state)
        return [y.detach(), *torch.autograd.grad((y**2).sum(), [x, *cell.parameters()])]

    found = steps()
    assert linnet.explain(cell, x).ways == ["scan"]
    with linnet.backend("reference"):
        same(found, steps())


def replace_weight(rnn: Any) -> None:
    rnn.first_cell.input.weight.data = 2 * rnn.first_cell.input.weight.data


def change_weight(rnn: Any) -> None:
    with torch.no_grad():
        rnn.first_cell.input.weight.mul_(2)


def add_parameter(rnn: Any) -> None:
    rnn.first_cell.input.weight = torch.nn.Parameter(2 * rnn.first_cell.input.weight.detach())


@pytest.mark.parametrize("change", [replace_weight, change_weight, add_parameter])
@pytest.mark.parametrize("unit", ["sru", "ran"])
def test_a_change_counts_at_the_next_step(unit: str, change: Callable[[Any], None]):
    rnn = build(unit)
    before = train(rnn)
    change(rnn)
    found = train(rnn)
    assert not torch.equal(found[0], before[0])
    same(found, by_the_loop(rnn))


def test_hooks_of_the_cell_run():
    rnn, calls = build("lstm"), []
    train(rnn)
    rnn.first_cell.register_forward_hook(lambda *given: calls.append(1))
    train(rnn)
    assert len(calls) == STEPS


def test_second_derivatives():
    rnn, x = build("lstm"), draw(1, 2, SIZE).requires_grad_()
    state = tuple(draw(1, 2, SIZE).requires_grad_() for _ in range(2))
    rnn(x, state)
    assert torch.autograd.gradgradcheck(lambda x, h, c: rnn(x, (h, c))[0], (x, *state))


def test_a_state_of_any_layout_and_without_gradients():
    rnn, x = build("lstm").requires_grad_(False), draw(1, BATCH, SIZE)
    state = tuple(draw(1, SIZE, BATCH).transpose(1, 2) for _ in range(2))
    found = rnn(x, state)
    assert linnet.explain(rnn, x, state).ways == ["step"]  # nothing requires a gradient
    wanted = tuple(each.clone().requires_grad_() for each in state)
    y, _ = rnn(x, wanted)
    assert linnet.explain(rnn, x, wanted).ways == ["scan"]
    same(y.detach(), found[0])


def test_threads_may_step_one_module():
    rnn = build("lstm")
    expected = train(rnn)
    for found in at_once(*[partial(train, rnn)] * 4, times=5):
        for each in found:
            same(each, expected)


def test_steps_run_by_kernels_again_when_a_weight_fits_again():
    rnn = build("gru")
    weight, x = rnn.first_cell.input.weight, draw(1, BATCH, SIZE)
    rnn(x)
    kept, weight.data = weight.data, weight.data[:, :-1].clone()
    with pytest.warns(linnet.FallbackWarning, match="the input matrix"), pytest.raises(RuntimeError):
        rnn(x)
    weight.data = kept
    assert linnet.explain(rnn, x).ways == ["scan"]
