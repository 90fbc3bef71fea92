"""Cells of the same class share their traced step, unless they differ in something that it reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_runs import FUSED, OF_ANY_SIZE, ON_GPU, WITH_INNER_PRODUCTS, Variant, draw, over, plans_of
from user_units import Leaky

import linnet


def traced(rnn: linnet.Recurrent, training: bool = False) -> Any:
    return [plan.traced for plan, _ in plans_of(rnn, training)]


def same(one: linnet.Recurrent, other: linnet.Recurrent) -> bool:
    return all(a is b for a, b in zip(traced(one), traced(other), strict=True))


@over("variant", ON_GPU)
def test_cells_of_any_size_share_a_trace(variant: Variant):
    assert same(variant.build(3), variant.build(5, torch.float32))


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        (linnet.LRN, {"activation": "identity"}),
        (linnet.LRN, {"zoneout": 0.5}),
        (linnet.SCRN, {"alpha": 0.5}),
        (linnet.LSTM, {"peepholes": True}),
        (linnet.SRU, {"rescale": False}),
        (linnet.RNN, {"nonlinearity": "relu"}),
    ],
    ids=str,
)
def test_another_option_has_another_trace(unit: Any, options: dict[str, Any]):
    plain, other = unit(4, 4), unit(4, 4, **options)
    assert not same(plain, other)
    assert same(other, unit(4, 4, **options))


def test_another_mode_has_another_trace():
    rnn = linnet.LRN(4, 4, zoneout=0.5)
    assert traced(rnn, training=True) != traced(rnn, training=False)


def test_an_option_changed_in_one_cell_does_not_change_another():
    one, other = linnet.SCRN(4, 6), linnet.SCRN(4, 6)
    other.load_state_dict(one.state_dict())
    x = draw(5, 3, 4, seed=5, dtype=torch.float32)
    before = one(x)[0]
    other.first_cell.alpha = 0.1
    changed = other(x)[0]
    assert torch.equal(one(x)[0], before)
    with linnet.backend("reference"):
        torch.testing.assert_close(changed, other(x)[0])
    assert not torch.equal(changed, before)


def test_a_method_replaced_in_the_class_is_traced_again(monkeypatch: pytest.MonkeyPatch):
    before = linnet.LRN(4, 4)
    assert traced(before)
    original = linnet.LRNCell.step
    monkeypatch.setattr(linnet.LRNCell, "step", lambda self, k, q, v, h: original(self, q, k, v, h))
    assert not same(before, linnet.LRN(4, 4))


def test_a_unit_of_a_user_is_traced_for_each_cell():
    assert not same(Leaky(4, 4), Leaky(4, 4))


@over("variant", [v for v in FUSED if v not in (*OF_ANY_SIZE, *WITH_INNER_PRODUCTS)])
def test_a_step_that_is_not_elementwise_is_shared_by_cells_of_one_size(variant: Variant):
    assert same(variant.build(5), variant.build(5))
    assert not same(variant.build(5), variant.build(7))
    assert not same(variant.build(5), variant.build(5, torch.float32))
