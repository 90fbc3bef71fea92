"""What shares a mask, what is spared, and an h that is dropped as it is carried."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import identical, liven, randn, same
from torch import Tensor

import linnet
from linnet.layers.penalties import activation_penalty, sobolev_penalty, temporal_penalty
from linnet.recurrent.dropout import Dropout, RowDropout

T, B, D = 6, 5, 40


@pytest.mark.parametrize(
    ("mode", "same_over_time", "same_over_batch"),
    [("naive", False, False), ("sequence", True, False), ("batch", True, True)],
)
def test_a_mask_is_shared_as_its_mode_says(mode: str, same_over_time: bool, same_over_batch: bool):
    torch.manual_seed(0)
    y = Dropout(0.25, mode)(torch.ones(T, B, D))
    assert y.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert bool((y == y[:1]).all()) is same_over_time
    assert bool((y == y[:, :1]).all()) is same_over_batch


@pytest.mark.parametrize("mode", ["naive", "sequence", "batch"])
def test_as_many_are_dropped_as_the_rate_says(mode: str):
    torch.manual_seed(0)
    y = Dropout(0.3, mode)(torch.ones(20, 20, 500))
    assert float((y[0, 0] == 0).float().mean()) == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("mode", ["naive", "sequence", "batch"])
def test_spared_channels_stay(mode: str):
    torch.manual_seed(0)
    y = Dropout(0.5, mode, spare=10, first=5)(torch.ones(T, B, D))
    assert (y[..., -10:] == 1).all()
    assert (y[..., :5] == 1).all()
    assert (y[..., 5:-10] == 0).any()
    assert (y[..., 5:-10] == 2).any()


def test_outside_training_nothing_is_dropped():
    x, tokens = torch.ones(T, B, D), torch.zeros(T, B, dtype=torch.int64)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert RowDropout(0.5, 3).eval()(x, tokens) is x
    assert RowDropout(0.0, 3)(x, tokens) is x


def test_a_mask_can_be_given():
    mask, dropout = torch.arange(float(D)).expand(1, 1, D), Dropout(0.5, "batch")
    dropout.fixed = mask
    same(dropout(torch.ones(T, B, D)), mask.expand(T, B, D))
    rows = RowDropout(0.5, 3)
    rows.fixed = torch.tensor([0.0, 2.0, 5.0])
    same(rows(torch.ones(1, 2, 1), torch.tensor([[2, 0]])), torch.tensor([[[5.0], [0.0]]]))


def test_a_dropped_word_is_dropped_wherever_it_stands():
    torch.manual_seed(0)
    tokens = torch.randint(0, 8, (T, B))
    y = RowDropout(0.5, 8)(torch.ones(T, B, D), tokens)
    for word in range(8):
        assert len(y[tokens == word].unique()) <= 1
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_a_rate_or_a_mode_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\)"):
        Dropout(1.0)
    with pytest.raises(ValueError, match="mode must be one of 'naive', 'sequence', 'batch'"):
        Dropout(0.1, "locked")


# --------------------------------------------------------------------------------------- carried


def carrying(unit: str, mask: Tensor, **options: Any) -> linnet.Recurrent:
    rnn = liven(linnet.UNITS[unit](4, 6, **options))
    dropout = Dropout(0.5, "batch")
    dropout.fixed = mask
    rnn.directions[0].drop_carried(dropout)
    return rnn


MASK = torch.tensor([0.0, 2.0, 2.0, 0.0, 2.0, 2.0]).double()[None, None]


def test_a_carried_h_of_scrn_is_dropped_where_it_is_made():
    """By hand: h = m sigmoid(...) goes into the next step and out; the state before the window is whole."""
    rnn = carrying("scrn", MASK, context_size=3)
    cell, x, m = rnn.first_cell, randn(T, 2, 4), MASK[0]
    s, h = randn(2, 3, seed=1), randn(2, 6, seed=2)
    y, state = rnn(x, (s[None], h[None]))
    for t in range(T):
        s = 0.1 * x[t] @ cell.input.weight_of("b").T + 0.9 * s
        a = x[t] @ cell.input.weight_of("a").T + cell.input.bias
        h = m * torch.sigmoid(a + s @ cell.context.weight.T + h @ cell.recurrent.weight.T)
        same(y[t], torch.cat([s, h], -1))
    same(state.h[0], h)
    same(state.s[0], s)


@pytest.mark.parametrize("unit", ["scrn", "ran", "lstm", "gru", "rnn", "janet", "atr", "nru"])
def test_kernel_and_loop_drop_the_same(unit: str):
    rnn, x = carrying(unit, MASK), randn(T, 2, 4)
    found = []
    for backend in ("reference", None):
        rnn.zero_grad()
        with linnet.backend(backend) if backend else torch.enable_grad():
            y, _ = rnn(x)
        y.sin().sum().backward()
        found.append((y.detach(), {name: weight.grad.clone() for name, weight in rnn.named_parameters()}))
    same(found[0], found[1], atol=1e-10)
    h = found[0][0][..., -6:]
    assert (h[..., MASK[0, 0] == 0] == 0).all()
    assert (h[..., MASK[0, 0] > 0] != 0).any()


def test_outside_training_the_carried_h_is_whole():
    rnn, x = carrying("ran", MASK).eval(), randn(T, 2, 4)
    plain = liven(linnet.RAN(4, 6)).eval()
    identical(rnn(x)[0], plain(x)[0])


@pytest.mark.parametrize("unit", ["sru", "lrn", "statisticalru"])
def test_a_unit_without_an_h_that_recurs_carries_none(unit: str):
    with pytest.raises(ValueError, match="only a state h that a recurrent matrix reads"):
        linnet.UNITS[unit](4, 6).directions[0].drop_carried(Dropout(0.5))


# ------------------------------------------------------------------------------------- penalties


@pytest.mark.parametrize("dropped", [False, True])
def test_the_sobolev_penalty_is_the_norm_of_the_jacobian(dropped: bool):
    rnn = carrying("scrn", MASK, context_size=3)
    rnn.train(dropped)
    x, start = randn(4, 2, 4), (randn(1, 2, 3, seed=1), randn(1, 2, 6, seed=2))

    def norms(sequence: int) -> Tensor:
        held = tuple(part[:, [sequence]] for part in start)
        total = torch.zeros(()).double()
        for t in range(len(x)):
            now = x[t : t + 1, [sequence]]

            def step(h: Tensor, now: Tensor = now, s: Tensor = held[0]) -> Tensor:
                return rnn(now, (s, h[None, None]))[1].h[0, 0]

            jacobian = torch.autograd.functional.jacobian(step, held[1][0, 0])
            total = total + jacobian.square().sum()
            held = tuple(rnn(now, held)[1])
        return total.detach()

    y, _ = rnn(x, start)
    found = sobolev_penalty(y[..., -6:], rnn.first_cell.recurrent.weight, 0.5 if dropped else 1.0)
    same(found.detach(), torch.stack([norms(0), norms(1)]))


def test_penalties_of_activation_and_of_change():
    x = torch.tensor([1.0, 3.0, 3.0])[:, None, None].expand(3, 2, 2)
    assert activation_penalty(x).item() == pytest.approx(19 / 3)
    assert temporal_penalty(x).item() == 2
    assert temporal_penalty(x[:1]).item() == 0
