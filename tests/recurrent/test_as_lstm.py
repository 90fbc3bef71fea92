"""as_lstm=True: a unit with one state takes and returns the pair (h, c), and h is the last output."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, same
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import linnet

ONE_STATE = [unit for unit in linnet.UNITS.values() if len(unit(2, 2).first_cell.states) == 1]
over_units = pytest.mark.parametrize("unit", ONE_STATE, ids=lambda unit: unit.__name__)
PAIRS = [linnet.LSTM, linnet.RAN]


def build(unit: Any, **options: Any) -> tuple[Any, Any]:
    """The unit with a pair as its state, and its twin without."""
    pair = liven(unit(3, 4, 2, bidirectional=True, **options, as_lstm=True))
    twin = unit(3, 4, 2, bidirectional=True, **options, dtype=torch.double)
    twin.load_state_dict(pair.state_dict())
    return pair, twin


@over_units
def test_h_is_the_last_output_and_c_the_state(unit: Any):
    pair, twin = build(unit)
    x = randn(5, 2, 3)
    y, (h, c) = pair(x)
    expected, state = twin(x)
    identical(y, expected)
    identical(c, state)
    identical(h[2], y[-1, :, : h.shape[-1]])
    identical(h[3], y[0, :, h.shape[-1] :])
    again, _ = pair(x, (h, c))
    identical(again, twin(x, state)[0])


@over_units
def test_h_of_each_layer_is_that_of_nn_lstm(unit: Any):
    """The rows of h are the last outputs of the layers, each run on its own."""
    alike = {"bounds": None} if unit is linnet.HGRN else {}  # its layers differ by their bounds
    first, second = (liven(unit(4, 4, as_lstm=True, **alike), seed) for seed in (1, 2))
    stack = unit(4, 4, 2, as_lstm=True, dtype=torch.double, **alike)
    for number, layer in enumerate((first, second)):
        pairs = zip(
            *(each.parameters_inside() for each in (stack.cells[number], layer.cells[0])), strict=True
        )
        for (_, mine), (_, given) in pairs:
            mine.data.copy_(given)
    x = randn(5, 2, 4)
    middle, (h_0, _) = first(x)
    _, (h_1, _) = second(middle)
    _, (h, _) = stack(x)
    identical(h, torch.cat([h_0, h_1]))


@over_units
def test_padding_packing_and_lengths_of_zero(unit: Any):
    pair, _ = build(unit)
    x, lengths = randn(5, 3, 3), torch.tensor([3, 5, 0])
    _, (h, c) = pair(x)
    start = (randn(*h.shape, seed=3), randn(*c.shape, seed=4))
    y, (h, c) = pair(x, start, lengths=lengths)
    size = h.shape[-1]
    for column, length in enumerate([3, 5]):
        identical(h[2, column], y[length - 1, column, :size])
        identical(h[3, column], y[0, column, size:])
    identical(h[:, 2], start[0][:, 2])
    identical(c[:, 2], start[1][:, 2])
    packed = pack_padded_sequence(x[:, :2], lengths[:2], enforce_sorted=False)
    packed_y, (packed_h, packed_c) = pair(packed, tuple(s[:, :2] for s in start))
    same(pad_packed_sequence(packed_y)[0], y[:, :2])
    same((packed_h, packed_c), (h[:, :2], c[:, :2]))


@over_units
def test_one_sequence_and_projections(unit: Any):
    pair, _ = build(unit, proj_size=2)
    y, (h, c) = pair(randn(5, 3))
    assert h.shape == (4, 2)
    identical(h[2], y[-1, :2])
    identical(pair(randn(5, 3), (h, c))[1][0].shape, h.shape)


@pytest.mark.parametrize("unit", PAIRS, ids=lambda unit: unit.__name__)
def test_a_unit_with_the_pair_keeps_it(unit: Any):
    rnn = unit(3, 4, as_lstm=True)
    y, (h, c) = rnn(torch.randn(5, 2, 3))
    identical(h[0], y[-1])
    assert c.shape == h.shape


def test_other_units_with_several_states_refuse_it():
    with pytest.raises(ValueError, match=r"as_lstm=True makes the pair \(h, c\) .* NRU has the states h, m"):
        linnet.NRU(3, 4, as_lstm=True)


def test_a_wrong_pair_is_answered():
    rnn, x = linnet.SRU(3, 4, as_lstm=True), torch.randn(5, 2, 3)
    with pytest.raises(
        TypeError, match=r"the state of SRU with as_lstm=True is a tuple \(h, c\); got Tensor"
    ):
        rnn(x, torch.zeros(1, 2, 4))
    with pytest.raises(RuntimeError, match=r"state 'h' of SRU must have shape \(1, 2, 4\); got \(1, 3, 4\)"):
        rnn(x, (torch.zeros(1, 3, 4), torch.zeros(1, 2, 4)))


def test_a_stream_has_the_state_of_the_unit():
    rnn = liven(linnet.SRU(3, 4, 2, as_lstm=True)).eval()
    stream, x = linnet.stream(rnn), randn(4, 1, 3)
    with torch.no_grad():
        y, (_, c) = rnn(x)
        same(torch.stack([stream(x_t) for x_t in x]), y)
    same(stream.state, c)


class Encoder(nn.Module):
    """Written for nn.LSTM, as an encoder of allennlp or flair is."""

    def __init__(self, lstm: Any):
        super().__init__()
        self.lstm = lstm

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, (h, c) = self.lstm(packed)
        return torch.cat([*h.unbind(0), *c.unbind(0)], -1)


@over_units
def test_code_that_unpacks_the_pair_runs_and_trains(unit: Any):
    encoder = Encoder(unit(3, 4, 2, batch_first=True, as_lstm=True))
    encoder(torch.randn(2, 5, 3), torch.tensor([5, 2])).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
