"""Kernels of steps that are not elementwise: reductions, norms, other orders, and states that are swapped."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
import user_units
from fused_runs import Size, Variant, agree, check, draw, draw_state, flags, over, plans_of, run, variant
from torch import Tensor

import linnet

UNITS = [
    variant(linnet.LSTM, norm="layer", norm_on="all"),
    variant(linnet.GRU, norm="rms", norm_on="all", form="before"),
    variant(linnet.SCRN, hidden_reads="previous"),
    variant(linnet.StatisticalRU, scales=(0.0, 0.5)),
    variant(linnet.NRU, memory_size=9, num_heads=1),
    variant(user_units.Moving),
]
SIZES = [Size(1, 1, 4, "nothing"), Size(7, 3, 31, "mask and resets"), Size(3, 35, 17, "lengths")]


@over("size", SIZES)
@over("unit", UNITS)
def test_kernels_equal_the_loop(unit: Variant, size: Size):
    (fusible,) = plans_of(unit.build(4))
    assert fusible.plan.traced.sizes
    check(unit, size)


@over("dtype", [torch.float32, torch.bfloat16])
@over("unit", [UNITS[0], UNITS[1], UNITS[-1]])
def test_other_dtypes(unit: Variant, dtype: torch.dtype):
    check(unit, SIZES[1], dtype)


@over("unit", UNITS)
def test_zoneout(unit: Variant):
    rnn = unit.build(6, zoneout=0.3)
    x, state = draw(5, 3, 7, seed=5).requires_grad_(), draw_state(rnn, 3)
    for training in (True, False):
        results = []
        for backend in ("cpu", "reference"):
            torch.manual_seed(0)
            results.append(run(backend, rnn.train(training), x, state, **flags("mask and resets", 5, 3)))
        agree(*results, 1e-12)


@over("unit", UNITS)
def test_single_steps_are_one_native_call(unit: Variant):
    rnn = unit.build(9, torch.float32).eval()
    x = draw(4, 5, 7, seed=5, dtype=torch.float32)
    with torch.no_grad():
        with linnet.backend("reference"):
            expected, _ = rnn(x)
        found, state = [], None
        for row in x:
            y, state = rnn(row[None], state)
            found.append(y[0])
        assert linnet.explain(rnn, x[:1], state).ways == ["step"]
    torch.testing.assert_close(torch.stack(found), expected, rtol=1e-4, atol=1e-5)


def test_a_change_of_dtype_records_the_step_again():
    """NRU asks for the smallest numbers of its dtype."""
    rnn = variant(linnet.NRU).build(5, torch.float32)
    x = 1e-9 * draw(3, 2, 7, seed=5, dtype=torch.float32)
    rnn(x)
    rnn, x = rnn.double(), x.double()
    with linnet.backend("cpu"):
        ours, _ = rnn(x)
    with linnet.backend("reference"):
        torch.testing.assert_close(ours, rnn(x)[0], rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------- odd steps


class Two(NamedTuple):
    h: Tensor
    c: Tensor


class TwoStates(linnet.Cell):
    """Two states h and c of the same size, and whatever `new` makes of them."""

    State = Two
    recurrence = {"recurrent": "h"}
    new: Any

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"h": hidden_size, "c": hidden_size})
        where = {"device": device, "dtype": dtype}
        self.input = linnet.Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.recurrent = linnet.Projection(hidden_size, {"ah": hidden_size}, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def step(self, a: Tensor, ah: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y, h, c = type(self).new(torch.tanh(a + ah), h, c)
        return y, {"h": h, "c": c}


STEPS = {
    "states are swapped": lambda a, h, c: (a.flip(-1), c, h),
    "a state is reversed": lambda a, h, c: (a + h, h.flip(-1), a * c),
    "a state is read after the other": lambda a, h, c: (a, a - a.mean(-1, True), c.roll(1, -1) * 0.5 + h),
    "channels are read twice": lambda a, h, c: (
        a,
        h[..., [0] * 2 + list(range(h.shape[-1] - 2))] * 0.5,
        a + c,
    ),
    "every other channel": lambda a, h, c: (torch.cat([a[..., ::2], h[..., 1::2]], -1), a, 0.5 * c),
    "a softmax of both": lambda a, h, c: (F.softmax(a + h, -1), F.softmax(h * c, -1), a),
    "columns of a matrix": lambda a, h, c: (a, (a[..., :, None] * c[..., None, :]).sum(-2) * 0.1, h),
    "rows of a matrix": lambda a, h, c: (
        a,
        (a[..., :, None] * c[..., None, :]).mean(-1),
        h.amax(-1, True) - a,
    ),
    "one of two conditions": lambda a, h, c: (
        torch.where(torch.where(a > 0, h > c.mean(-1, True), c > 0), a, h),
        a,
        c,
    ),
    "numbers": lambda a, h, c: (a, torch.cat([torch.zeros_like(h[..., 1:]), a[..., :1]], -1), a + c),
}


def unit_of(name: str) -> type[linnet.Recurrent]:
    cell = type("Cell", (TwoStates,), {"new": staticmethod(STEPS[name])})
    return type("Unit", (linnet.Recurrent,), {"__doc__": name}, cell=cell)


@over("name", STEPS)
@over("size", [Size(5, 3, 6, "mask and resets"), Size(4, 2, 21, "nothing")])
def test_what_a_step_reads_is_not_overwritten(name: str, size: Size):
    unit = unit_of(name)
    check(Variant(unit, {}), size)
    with torch.no_grad():  # without gradients a state has one slot
        rnn = Variant(unit, {}).build(size.hidden)
        x = draw(size.steps, size.batch, 7, seed=5)
        with linnet.backend("cpu"):
            ours = rnn(x, **flags(size.kind, *size[:2]))
        with linnet.backend("reference"):
            torch.testing.assert_close(ours, rnn(x, **flags(size.kind, *size[:2])), rtol=1e-12, atol=1e-12)


@over("name", STEPS)
def test_an_exported_program_has_one_operation_for_any_length(name: str):
    rnn = Variant(unit_of(name), {}).build(6)
    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    exported = torch.export.export(rnn, (draw(5, 3, 7, seed=1),), dynamic_shapes=(free,), strict=False)
    targets = [node.target for node in exported.graph.nodes]
    assert targets.count(torch.ops.linnet.scan.default) == 1
    x = draw(9, 2, 7, seed=2)
    with linnet.backend("reference"):
        torch.testing.assert_close(exported.module()(x), rnn(x), rtol=1e-12, atol=1e-12)


def test_a_text_that_reads_outside_of_a_value_is_refused():
    (fusible,) = plans_of(UNITS[-1].build(4))
    text = fusible.plan.text
    assert type(fusible.plan).read(text).traced == fusible.plan.traced
    node = next(node for node in fusible.plan.traced.forward.nodes if node.views)  # type: ignore[attr-defined]
    view = node.views[0]
    written = f'["{view.base}",{view.offset},'
    for wrong in (f'["{view.base}",{view.offset + 100},', f'["{view.base}",-1,', '["nothing",0,'):
        with pytest.raises(ValueError, match="cannot be read"):
            type(fusible.plan).read(text.replace(written, wrong))


@over("kind", [linnet.LRU, linnet.LTC, linnet.StatisticalRU])
def test_parameters_may_be_parts_of_one_tensor(kind: Any):
    """Some of these are read by torch before a kernel runs, as views."""
    rnn = kind(3, 5, dtype=torch.double)
    with torch.no_grad():
        numbers = torch.cat([torch.zeros(7, dtype=torch.double), *(p.flatten() for p in rnn.parameters())])
        at = 7
        for parameter in rnn.parameters():
            parameter.data = numbers[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
    x = draw(6, 2, 3, seed=5)
    found, _ = rnn(x)
    with linnet.backend("reference"):
        torch.testing.assert_close(found, rnn(x)[0], rtol=1e-12, atol=1e-12)
