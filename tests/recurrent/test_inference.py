"""Calls without gradients by a stack that is bound once: with the present weights, options and hooks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_runs import over
from helpers import identical, same, tensors
from torch import Tensor, nn

import linnet

# No whole number of vectors, so that kernels read padded copies of biases.
SIZE = 37
UNITS = [linnet.SRU, linnet.LRN, linnet.LSTM, linnet.GRU, linnet.RAN]


@pytest.fixture(autouse=True)
def _one_thread():
    """With several, threads may share the channels of a single sequence, in another way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(unit: type = linnet.LSTM, size: int = SIZE, **options: Any) -> Any:
    torch.manual_seed(0)
    rnn = unit(size, SIZE, **options).eval()
    with torch.no_grad():  # biases and weights that start as zeros would hide a stale copy
        for parameter in rnn.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return rnn


@torch.no_grad()
def run(rnn: Any, x: Tensor, state: Any = None) -> list[Tensor]:
    y, new = rnn(x, state)
    return [y, *tensors(new)]


def usual(rnn: Any, x: Tensor, state: Any = None) -> list[Tensor]:
    """With gradients each direction is bound on its own."""
    y, new = rnn(x, state)
    return [result.detach() for result in (y, *tensors(new))]


def bound(rnn: Any, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Call it until its stack is bound; the inputs of further calls by that stack."""
    for _ in range(3):
        run(rnn, x)
    inputs: list[Tensor] = []
    stack = rnn.inference.bound.stack
    real = stack.run
    monkeypatch.setattr(stack, "run", lambda layout, x, states: inputs.append(x) or real(layout, x, states))
    return inputs


@over("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"input_heads": 1}])
@over("batch", [1, 2, 5])
@over("unit", UNITS)
def test_a_bound_stack_gives_the_same_bits(unit: type, batch: int, options: dict, monkeypatch):
    rnn = build(unit, **options)
    x = torch.randn(batch, 9, SIZE) if rnn.batch_first else torch.randn(9, batch, SIZE)
    inputs, state = bound(rnn, x, monkeypatch), rnn(x)[1]
    identical(run(rnn, x), usual(rnn, x))
    continued = run(rnn, x, state)
    identical(continued, usual(rnn, x, state))
    assert len(inputs) == 2
    with linnet.backend("reference"):
        same(continued, run(rnn, x, state), atol=3e-6)


def with_weight(rnn: Any, change: Callable[[nn.Parameter], Any]) -> None:
    for parameter in rnn.parameters():
        change(parameter)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda rnn: with_weight(rnn, lambda p: p.mul_(1.5)),
    "through data": lambda rnn: with_weight(rnn, lambda p: p.data.add_(0.1)),
    "through numpy": lambda rnn: with_weight(rnn, lambda p: p.detach().numpy().__imul__(0.5)),
    "new data": lambda rnn: with_weight(rnn, lambda p: setattr(p, "data", p.data.flip(0).contiguous())),
    "strided data": lambda rnn: with_weight(
        rnn, lambda p: setattr(p, "data", torch.stack([-p, p], -1)[..., 0])
    ),
    "new parameters": lambda rnn: rnn.load_state_dict(
        {name: nn.Parameter(-p) for name, p in rnn.state_dict().items()}, assign=True
    ),
    "an optimiser": lambda rnn: torch.optim.SGD(rnn.parameters(), 0.1).step(),
    "a new cell": lambda rnn: setattr(rnn.directions[0], "cell", copy.deepcopy(rnn.directions[1].cell)),
    "zoneout": lambda rnn: setattr(rnn.directions[1], "zoneout", 0.5),
    "residual": lambda rnn: setattr(rnn, "residual", True),
    "a hook": lambda rnn: rnn.directions[0].register_forward_hook(lambda *given: (-given[2][0], given[2][1])),
    "a hook inside": lambda rnn: rnn.first_cell.input.register_forward_pre_hook(
        lambda module, given: (2 * given[0], *given[1:])
    ),
    "another dtype": lambda rnn: rnn.double(),
}


@over("name", CHANGES)
@over("unit", [linnet.SRU, linnet.LSTM])
@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_every_change_reaches_the_next_call(unit: type, name: str, monkeypatch: pytest.MonkeyPatch):
    rnn, x = build(unit, num_layers=2), torch.randn(12, 1, SIZE)
    for parameter in rnn.parameters():
        parameter.grad = torch.ones_like(parameter)
    inputs, before = bound(rnn, x, monkeypatch), run(rnn, x)
    assert len(inputs) == 1
    with torch.no_grad():
        CHANGES[name](rnn)
    x = x.to(next(rnn.parameters()).dtype)
    after = [run(rnn, x) for _ in range(3)]
    assert not torch.equal(after[0][0], before[0].to(x.dtype))
    with linnet.backend("reference"):
        expected = run(rnn, x)
    for found in after:
        same(found, expected, atol=3e-6)


def test_training_mode_and_gradients_run_as_usual(monkeypatch: pytest.MonkeyPatch):
    rnn, x = build(num_layers=2, dropout=0.5), torch.randn(12, 1, SIZE)
    inputs = bound(rnn, x, monkeypatch)
    rnn.train()
    assert not torch.equal(run(rnn, x)[0], run(rnn, x)[0])
    rnn.eval()
    assert rnn(x)[0].requires_grad
    assert not inputs
    run(rnn, x)
    identical(run(rnn, x), run(rnn, x))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda rnn: pickle.loads(pickle.dumps(rnn))], ids=["deepcopy", "pickle"]
)
def test_a_copy_has_its_own_stack(copied: Callable, monkeypatch: pytest.MonkeyPatch):
    rnn, x = build(), torch.randn(12, 1, SIZE)
    bound(rnn, x, monkeypatch)
    other = copied(rnn)
    assert other.inference.bound is None
    with torch.no_grad():
        next(other.parameters()).zero_()
    assert not torch.equal(run(other, x)[0], run(rnn, x)[0])
    assert not torch.equal(run(other, x)[0], run(rnn, x)[0])


def test_x_that_kernels_cannot_read_runs_as_usual(monkeypatch: pytest.MonkeyPatch):
    rnn, x = build(), torch.randn(12, 2, SIZE)
    inputs = bound(rnn, x, monkeypatch)
    expected = run(rnn, x)
    assert len(inputs) == 1
    apart = torch.stack([x, x], -1)[..., 0]
    identical(run(rnn, apart), expected)
    identical([y[:, :1] for y in run(rnn, x)], [y[:, :1] for y in expected])
    with pytest.raises(ValueError, match="input_size=37 and got x of shape"):
        run(rnn, torch.randn(12, 2, SIZE + 1))
    with pytest.raises(TypeError, match="float64"):
        run(rnn, x.double())
