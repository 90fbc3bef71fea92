"""norm_on="all": every product of a cell has its norm, as in the LRN authors' cells with "+LN"."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, randn, same
from torch import Tensor, nn

import linnet

UNITS = [linnet.ATR, linnet.GRU, linnet.LSTM]
D = 4


def rms(z: Tensor, scale: Tensor) -> Tensor:
    return scale * z / (z.square().mean(-1, keepdim=True) + 1e-8).sqrt()


def product(projection: Any, x: Tensor, rows: slice, norm: nn.Module) -> Tensor:
    """Some rows of a matrix, their norm and their bias."""
    y = rms(x @ projection.weight[rows].T, norm.weight)
    return y if projection.bias is None else y + projection.bias[rows]


def atr(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    whole = slice(0, D)
    p = product(cell.input, x, whole, cell.input.norm)
    q = product(cell.recurrent, h, whole, cell.recurrent.norm)
    return torch.tanh(torch.sigmoid(p + q) * p + torch.sigmoid(p - q) * h)


def gru(cell: Any, x: Tensor, h: Tensor) -> Tensor:
    gates, new = slice(0, 2 * D), slice(2 * D, 3 * D)
    of_x = product(cell.input, x, gates, cell.input.norm.norms[0])
    of_h = product(cell.recurrent, h, gates, cell.recurrent.norm)
    r, z = torch.sigmoid(of_x + of_h).chunk(2, -1)
    n = product(cell.input, x, new, cell.input.norm.norms[1])
    n = torch.tanh(n + product(cell.candidate, r * h, slice(0, D), cell.candidate.norm))
    return (1 - z) * n + z * h


def lstm(cell: Any, x: Tensor, state: tuple[Tensor, Tensor]) -> Tensor:
    h, c = state
    first, gates = slice(0, D), slice(D, 4 * D)
    content, i = (
        product(cell.input, x, rows, cell.input.norm.norms[n])
        + product(cell.recurrent, h, rows, cell.recurrent.norm.norms[n])
        for n, rows in enumerate((first, gates))
    )
    i, f, o = torch.sigmoid(i).chunk(3, -1)
    return o * torch.tanh(i * torch.tanh(content) + f * c)


@pytest.mark.parametrize(
    ("unit", "options", "by_hand"),
    [(linnet.ATR, {}, atr), (linnet.GRU, {"form": "before"}, gru), (linnet.LSTM, {}, lstm)],
)
def test_a_step_by_hand(unit: Any, options: dict[str, Any], by_hand: Any):
    cell = liven(unit(3, D, norm="rms", norm_on="all", **options).first_cell)
    x, h = randn(2, 3), randn(2, D, seed=1)
    state = (h, randn(2, D, seed=2)) if unit is linnet.LSTM else h
    y, _ = cell.run_step(x, state)
    same(y, by_hand(cell, x, state))


@pytest.mark.parametrize("unit", UNITS)
def test_without_it_the_products_with_the_state_have_no_norm(unit: Any):
    cell = unit(3, D, norm="rms").first_cell
    assert isinstance(cell.recurrent.norm, nn.Identity)
    assert isinstance(cell.input.norm, nn.RMSNorm)
    assert len(cell.input.norm.weight) == len(cell.input.weight)


@pytest.mark.parametrize("unit", UNITS)
def test_another_word_answers(unit: Any):
    with pytest.raises(ValueError, match="norm_on must be one of 'input', 'all'; got 'state'"):
        unit(3, D, norm="rms", norm_on="state")
