"""LSTM, GRU and RNN with the weights of torch.nn's modules are those modules, in every shape they take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import each, liven, randn, random_state, same, tensors
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import linnet

PAIRS = [
    pytest.param(nn.LSTM, linnet.LSTM, {}, id="LSTM"),
    pytest.param(nn.LSTM, linnet.LSTM, {"proj_size": 2}, id="LSTM-proj"),
    pytest.param(nn.GRU, linnet.GRU, {}, id="GRU"),
    pytest.param(nn.RNN, linnet.RNN, {}, id="RNN"),
]
over_pairs = pytest.mark.parametrize(("theirs", "ours", "options"), PAIRS)
over_directions = pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
over_biases = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])


def pair(theirs: Any, ours: Any, **options: Any) -> tuple[nn.Module, linnet.Recurrent]:
    module = liven(theirs(3, 4, 2, **options))
    rnn = ours(3, 4, 2, **options, dtype=torch.double)
    linnet.load_foreign(rnn, module.state_dict(), source="torch")
    return module, rnn


def start(rnn: linnet.Recurrent, batch: int) -> Any:
    """A state both sides take: torch wants a plain tuple or tensor."""
    state = random_state(rnn, batch, seed=2)
    return state if isinstance(state, Tensor) else tuple(state)


@over_pairs
@over_directions
@over_biases
def test_batches_in_either_layout(theirs: Any, ours: Any, options: dict, bidirectional: bool, bias: bool):
    for batch_first in (False, True):
        module, rnn = pair(
            theirs, ours, **options, bidirectional=bidirectional, bias=bias, batch_first=batch_first
        )
        x = randn(5, 3, 3)
        state = start(rnn, 5 if batch_first else 3)
        for arguments in ((x,), (x, state)):
            y, final = rnn(*arguments)
            expected, end = module(*arguments)
            same(y, expected)
            same(tensors(final), tensors(end))


@over_pairs
@over_directions
def test_one_sequence_without_batch(theirs: Any, ours: Any, options: dict, bidirectional: bool):
    module, rnn = pair(theirs, ours, **options, bidirectional=bidirectional)
    x, state = randn(5, 3), start(rnn, 1)
    alone = state[:, 0] if isinstance(state, Tensor) else tuple(s[:, 0] for s in state)
    y, final = rnn(x, alone)
    expected, end = module(x, alone)
    same(y, expected)
    same(tensors(final), tensors(end))


@over_pairs
@over_directions
@pytest.mark.parametrize("sort", [False, True], ids=["any-order", "sorted"])
def test_packed_sequences(theirs: Any, ours: Any, options: dict, bidirectional: bool, sort: bool):
    """Also the order of the batch, of the initial states and of the final ones."""
    module, rnn = pair(theirs, ours, **options, bidirectional=bidirectional)
    lengths = torch.tensor([6, 4, 4, 1] if sort else [4, 1, 6, 4])
    packed = pack_padded_sequence(randn(6, 4, 3), lengths, enforce_sorted=sort)
    state = start(rnn, 4)
    y, final = rnn(packed, state)
    expected, end = module(packed, state)
    assert isinstance(y, PackedSequence)
    same(y.data, expected.data)
    assert torch.equal(y.batch_sizes, expected.batch_sizes)
    same(pad_packed_sequence(y)[0], pad_packed_sequence(expected)[0])
    assert torch.equal(pad_packed_sequence(y)[1], lengths)
    same(tensors(final), tensors(end))


@over_pairs
@over_directions
def test_packing_and_batch_first_go_together(theirs: Any, ours: Any, options: dict, bidirectional: bool):
    module, rnn = pair(theirs, ours, **options, bidirectional=bidirectional, batch_first=True)
    packed = pack_padded_sequence(randn(3, 5, 3), [5, 2, 1], batch_first=True)
    y, final = rnn(packed)
    expected, end = module(packed)
    same(y.data, expected.data)
    same(tensors(final), tensors(end))


def named_gradients(module: nn.Module, leaves: list[Tensor], x: Tensor, state: Any) -> dict[str, Tensor]:
    y, final = module(x, state)
    loss = y.sin().sum() + sum(s.sin().sum() for s in tensors(final))
    parameters = dict(module.named_parameters())
    names = [*(f"leaf {number}" for number in range(len(leaves))), *parameters]
    return dict(zip(names, torch.autograd.grad(loss, [*leaves, *parameters.values()]), strict=True))


@over_pairs
@over_directions
def test_gradients_of_input_state_and_weights(theirs: Any, ours: Any, options: dict, bidirectional: bool):
    module, rnn = pair(theirs, ours, **options, bidirectional=bidirectional)
    x, state = randn(5, 3, 3).requires_grad_(), start(rnn, 3)
    leaves = [x, *(s.requires_grad_() for s in tensors(state))]
    expected = named_gradients(module, leaves, x, state)
    gradients = named_gradients(rnn, leaves, x, state)
    for number in range(len(leaves)):
        same(gradients.pop(f"leaf {number}"), expected.pop(f"leaf {number}"), atol=1e-10)
    assert list(gradients) == list(expected)
    for name, gradient in expected.items():
        same(gradients[name], gradient, atol=1e-10)


def test_relu_is_a_nonlinearity_of_both():
    module = liven(nn.RNN(3, 4, nonlinearity="relu"))
    rnn = linnet.RNN(3, 4, nonlinearity="relu", dtype=torch.double)
    linnet.load_foreign(rnn, module.state_dict(), source="torch")
    x = randn(5, 2, 3)
    same(rnn(x), tuple(module(x)))


def test_a_state_of_torch_goes_into_linnet_and_back():
    module, rnn = pair(nn.LSTM, linnet.LSTM)
    x = randn(5, 2, 3)
    _, state = module(x)
    y, final = rnn(x, state)
    expected, end = module(x, state)
    same(y, expected)
    same(module(x, final)[0], module(x, end)[0])
    assert each(Tensor.detach, final)._fields == ("h", "c")
