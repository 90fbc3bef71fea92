"""Deep copies and pickles of units: complete, apart from their originals, and made without tracing a step."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import linnet

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
}
by_each = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


class CountingCell(linnet.LRNCell):
    """Its `step` counts how often it is called, by a tracer or by the loop."""

    calls = 0

    def step(self, k: Tensor, q: Tensor, v: Tensor, h: Tensor) -> Any:
        CountingCell.calls += 1
        return super().step(k, q, v, h)


class Counting(linnet.Recurrent, cell=CountingCell):
    """An LRN whose steps are counted."""


@by_each
def test_nothing_is_traced_before_the_first_call(copied: Callable[[Any], Any]):
    """Construction takes the time of nn.LSTM and no more; a copy does not do it again."""
    CountingCell.calls = 0
    rnn = Counting(3, 4, num_layers=2, zoneout=0.1)
    copied(rnn)
    assert CountingCell.calls == 0
    rnn(torch.ones(2, 1, 3))
    assert CountingCell.calls > 0


@by_each
def test_a_copy_that_has_not_run_can_be_compiled(copied: Callable[[Any], Any]):
    rnn = copied(linnet.LSTM(3, 4, zoneout=0.5)).eval()
    x = torch.ones(5, 2, 3)
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    y, _ = compiled(x)
    torch.testing.assert_close(y, rnn(x)[0])
    rnn.directions[0].zoneout = 0.25  # compiled again
    changed, _ = compiled(x)
    assert not torch.equal(changed, y)
    torch.testing.assert_close(changed, rnn(x)[0])


def parts_of(value: Any, path: str = "") -> dict[str, Any]:
    """All objects in a module, by the way to them."""
    if isinstance(value, (tuple, list)):
        items = {str(i): item for i, item in enumerate(value)}
    elif isinstance(value, nn.Module):
        items = vars(value)
    else:
        items = value if isinstance(value, dict) else {}
    parts = {path: value}
    for name, item in items.items():
        # What was found out about a module is not copied; see test_what_was_prepared_is_not_copied.
        parts |= {} if getattr(type(item), "is_cache", False) else parts_of(item, f"{path}.{name}")
    return parts


@by_each
@pytest.mark.parametrize("name", linnet.UNITS)
def test_a_copy_has_everything_and_shares_nothing(name: str, copied: Callable[[Any], Any]):
    rnn = linnet.UNITS[name](6, 6, num_layers=2, bidirectional=True, prenorm="rms")
    rnn.directions[0].cell.register_forward_hook(print)
    ours, theirs = parts_of(rnn), parts_of(copied(rnn))
    assert set(ours) == set(theirs)
    for path, value in ours.items():
        assert type(theirs[path]) is type(value), path
        if isinstance(value, Tensor):
            assert torch.equal(value, theirs[path]), path
            assert value.requires_grad == theirs[path].requires_grad, path
        if isinstance(value, (Tensor, nn.Module, dict, list, set)):
            assert theirs[path] is not value, path
        elif not isinstance(value, tuple):
            assert theirs[path] == value, path


@by_each
def test_what_was_prepared_is_not_copied(copied: Callable[[Any], Any]):
    """A copy with other weights computes with those, in sequences and in single steps."""
    rnn, x = linnet.LSTM(3, 4).eval(), torch.ones(5, 2, 3)
    with torch.no_grad():
        for _ in range(3):
            y, (first, _) = rnn(x)[0], rnn(x[:1])
        twin = copied(rnn)
        for parameter in twin.parameters():
            parameter.zero_()
        for _ in range(3):
            assert not twin(x)[0].any()
            assert not twin(x[:1])[0].any()
            assert torch.equal(rnn(x)[0], y)
            assert torch.equal(rnn(x[:1])[0], first)


def test_modules_and_tensors_that_are_shared_are_shared_in_the_copy():
    first, second = linnet.LRN(4, 4), linnet.LRN(4, 4)
    second.directions[0].cell.input.weight = first.directions[0].cell.input.weight
    model = copy.deepcopy(nn.ModuleList([first, second, first]))
    assert model[0] is model[2]
    assert model[0].directions[0].cell.input.weight is model[1].directions[0].cell.input.weight


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_a_parametrized_module_is_copied():
    """torch does so, although it refuses to pickle one."""
    peepholes = linnet.LSTM(3, 4, peepholes=True)
    for module, name in ((linnet.LRN(3, 4).cells[0].input, "weight"), (peepholes.cells[0], "p_i")):
        parametrize.register_parametrization(module, name, Doubled())
        twin = copy.deepcopy(module)
        assert torch.equal(getattr(twin, name), getattr(module, name))
        assert twin.parametrizations[name].original is not module.parametrizations[name].original


class Forgetful(linnet.LRN):
    """A user's class that says what a copy gets."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "cached": None}


def test_a_class_that_says_what_a_copy_gets_is_asked():
    rnn: Any = Forgetful(3, 4)
    rnn.cached = {"large": torch.ones(3)}
    assert copy.deepcopy(rnn).cached is None
    assert copy.deepcopy(nn.ModuleList([rnn]))[0].cached is None
