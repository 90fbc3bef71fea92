"""The state of a unit with one state cannot be unpacked as nn.LSTM's pair, and is a tensor otherwise."""

from __future__ import annotations

import copy
import io
import multiprocessing.reduction
import pickle
import warnings
from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, same
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import linnet

ONE_STATE = [unit for unit in linnet.UNITS.values() if len(unit(2, 2).first_cell.states) == 1]
REFUSED = r"one state, a tensor .* of shape \(2, 3, \d+\).*as_lstm=True.*output, state = rnn\(x\)"


def two_layers(unit: Any = linnet.SRU, **options: Any) -> Any:
    return liven(unit(3, 4, 2, **options))


def state_of(rnn: Any, **kwargs: Any) -> Tensor:
    return rnn(randn(5, 3, 3), **kwargs)[1]


@pytest.mark.parametrize("unit", ONE_STATE, ids=lambda unit: unit.__name__)
def test_the_state_is_not_unpacked_as_a_pair(unit: Any):
    rnn, x = two_layers(unit), randn(5, 3, 3)
    with pytest.raises(TypeError, match=REFUSED):
        _, (_h, _c) = rnn(x)
    with torch.no_grad(), pytest.raises(TypeError, match=REFUSED):
        _, (_h, *_others) = rnn(x)


@pytest.mark.parametrize(
    "call",
    {
        "again": lambda rnn, x: rnn(x, rnn(x)[1]),
        "lengths": lambda rnn, x: rnn(x, lengths=[5, 2, 1]),
        "mask": lambda rnn, x: rnn(x, mask=torch.ones(5, 3, dtype=torch.bool)),
        "resets": lambda rnn, x: rnn(x, resets=torch.zeros(5, 3, dtype=torch.bool)),
        "packed": lambda rnn, x: rnn(pack_sequence([x[:, 0], x[:4, 1], x[:2, 2]])),
        "unbatched": lambda rnn, x: rnn(x[:, 0]),
        "torch's names": lambda rnn, x: rnn(input=x, hx=torch.zeros_like(rnn(x)[1])),
        "frozen": lambda rnn, x: linnet.freeze(rnn.eval())(x),
        "bfloat16": lambda rnn, x: rnn.bfloat16()(x.bfloat16()),
        "int8": lambda rnn, x: linnet.quantize(rnn.float().eval())(x.float()),
        "stream": lambda rnn, x: (None, linnet.stream(rnn.eval(), batch=3).state),
    }.items(),
    ids=lambda call: call[0],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_by_every_way(call: Any, layers: int):
    rnn = liven(linnet.SRU(3, 4, layers))
    for _ in range(3):  # the first call binds what later calls use
        _, state = call[1](rnn, randn(5, 3, 3))
        with pytest.raises(TypeError, match="as_lstm=True"):
            _h, *_others = state


def test_loops_and_indices_go_on():
    state = state_of(two_layers(linnet.GRU))
    rows = [state[0], state[1]]
    for read in (list(state), [*state], [row + 0 for row in state], state.unbind(), torch.stack(rows)):
        for row, expected in zip(read, rows, strict=True):
            identical(row, expected)
            assert type(row) is Tensor
    assert repr(state).startswith("tensor(")
    assert len(state) == 2
    assert type(state + 0) is type(state.detach()) is type(torch.cat([state, state])) is Tensor


def test_copies_and_files_have_plain_tensors():
    state = state_of(two_layers()).detach_()
    file = io.BytesIO()
    torch.save({"state": state}, file)
    loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=True)["state"]
    forked = pickle.loads(multiprocessing.reduction.ForkingPickler.dumps(state))
    for made in (loaded, copy.deepcopy(state), copy.copy(state), pickle.loads(pickle.dumps(state)), forked):
        identical(made, state)
        assert type(made) is Tensor
    with pytest.raises(TypeError, match=REFUSED):
        _h, _c = state
    assert b"linnet" not in file.getvalue()


def test_a_state_that_records_gradients_is_copied_as_a_tensor_is():
    state = state_of(two_layers())
    assert state.grad_fn is not None
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        copy.deepcopy(state)
    leaf = state.detach().requires_grad_()
    assert copy.deepcopy(leaf).requires_grad


def test_gradients_and_changes_in_place():
    rnn, x = two_layers(), randn(5, 3, 3)
    _, state = rnn(x)
    again, last = rnn(x, state)
    (again.sum() + last.mul_(2).sum()).backward()
    assert all(weight.grad.abs().sum() > 0 for weight in rnn.parameters())


def test_the_state_that_is_passed_back_takes_the_fast_way(monkeypatch: pytest.MonkeyPatch):
    """A call with the state of the last one is bound as a call with a plain tensor is."""
    rnn, x = liven(linnet.SRU(3, 4)).eval(), randn(5, 3, 3)
    with torch.no_grad():
        _, state = rnn(x)
        rnn(x, state)
        monkeypatch.setattr(type(rnn), "run", None)
        y, last = rnn(x, state)
        identical(y, rnn(x, state.detach())[0])
    assert type(last) is type(state) is not Tensor


def test_a_frozen_layer_takes_its_own_state(monkeypatch: pytest.MonkeyPatch):
    rnn, x = linnet.freeze(linnet.GRU(3, 4, 2).eval()), torch.randn(5, 3, 3)
    with torch.no_grad():
        _, state = rnn(x)
        expected = rnn(x, state.detach())[0]
        monkeypatch.setattr(type(rnn), "run_padded", None)
        identical(rnn(x, state)[0], expected)


def test_transforms_take_and_return_it():
    rnn, x = two_layers().eval(), randn(5, 3, 3)
    expected, state = rnn(x, state_of(rnn))
    start = state_of(rnn)
    same(torch.func.vmap(rnn, in_dims=1, out_dims=1)(x, start)[1], state)
    grads = torch.func.grad(lambda s: rnn(x, s)[0].sum())(start)
    assert grads.shape == start.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(torch.jit.trace(rnn, (x, start))(x, start)[0], expected)


@torch.no_grad()
def test_compiled_and_exported_graphs_have_plain_tensors():
    torch.compiler.reset()  # it counts how often code was compiled, by all tests together
    rnn, x = two_layers().eval(), randn(5, 3, 3)
    expected, state = rnn(x, state_of(rnn))
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    y, last = compiled(x, state_of(rnn))
    same(y, expected)
    assert type(last) is Tensor
    y, last = torch.export.export(rnn, (x, state)).module()(x, state_of(rnn))
    same(y, expected)
    assert type(last) is Tensor


def test_modules_that_wrap_a_unit():
    rnn, x = two_layers().float(), torch.randn(5, 3, 3)
    replicas = nn.parallel.DataParallel(rnn)
    identical(replicas(x)[1], rnn(x)[1])
    seen = []
    rnn.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs[1]))
    rnn.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[1]))
    rnn(x.requires_grad_())[1].sum().backward()
    assert seen[0].shape == seen[1].shape == (2, 3, 4)
