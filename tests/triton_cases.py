"""What Triton's interpreter runs, in a process of its own: python triton_cases.py group

A process that has TRITON_INTERPRET=1 from its start runs kernels by NumPy, on tensors of the CPU. Memory
that nobody has written yet is filled with NaN, so that a kernel which reads or leaves some shows it.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import user_units
from fused_runs import (
    ON_GPU,
    OTHER_STEPS,
    TOLERANCES,
    Variant,
    agree,
    draw,
    draw_state,
    jumps,
    plans_of,
    run,
    variant,
)
from helpers import each
from torch import Tensor, nn

import linnet
from linnet.run import ops
from linnet.triton import kernels as triton_kernels
from linnet.triton import passes as triton_passes

ELEMENTWISE = [v for v in ON_GPU if v.unit(4, 4).first_cell.is_elementwise]
MATRIX = [v for v in ON_GPU if v not in ELEMENTWISE]


def flags(kind: str, steps: int, batch: int) -> dict[str, Tensor]:
    """Few and at places where they count: random ones of so few steps may all be for nothing."""
    if kind == "lengths":
        return {"lengths": torch.tensor([steps, *range(1, batch)])}
    mask, resets = torch.ones(steps, batch, dtype=torch.bool), torch.zeros(steps, batch, dtype=torch.bool)
    mask[0, -1], resets[steps // 2, 0] = False, True
    return {name: flag for name, flag in {"mask": mask, "resets": resets}.items() if name in kind}


def compare(rnn: Any, x: Tensor, tolerance: float = 0.0, **how: Any) -> None:
    """By Triton, against the reference in a wider dtype."""
    usual, wide = TOLERANCES[x.dtype]
    state = draw_state(rnn, x.shape[0 if rnn.batch_first else 1])
    ours = run("triton", rnn, x, state, **how)
    wider = copy.deepcopy(rnn).to(wide)
    theirs = run("reference", wider, x.to(wide), each(lambda s: s.to(wide), state), **how)
    agree(ours, theirs, tolerance or usual)


def check(variant: Variant, steps: int, batch: int, hidden: int, kind: str, dtype: Any, **more: Any) -> None:
    print(variant, steps, batch, hidden, kind, dtype, more, flush=True)
    rnn = variant.build(hidden, dtype, **more)
    x = draw(steps, batch, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
    compare(rnn, x, **flags(kind, steps, batch))


def launches(call: Callable[[], object]) -> list[tuple[str, int]]:
    """Which kernels `call` launches, each with the number of directions."""
    launch, seen = triton_passes.launch, []

    def noting(recipe, name, sides, *rest, **how):
        seen.append((name, len(sides)))
        launch(recipe, name, sides, *rest, **how)

    triton_passes.launch = noting
    try:
        call()
    finally:
        triton_passes.launch = launch
    return seen


# ------------------------------------------------------------------------------- every unit


def elementwise_units() -> None:
    """Both directions, which go in one launch: forward one, backward one."""
    for unit in ELEMENTWISE:
        seen = launches(
            lambda unit=unit: check(unit, 3, 2, 5, "mask and resets", torch.float32, bidirectional=True)
        )
        assert seen == [("forward", 2), ("backward", 2)], seen
        check(unit, 3, 2, 3, "lengths", torch.bfloat16)


def matrix_units() -> None:
    for unit in MATRIX:
        check(unit, 3, 2, 5, "mask and resets", torch.float32, bidirectional=True)
        if not jumps(unit):
            check(unit, 2, 3, 1, "nothing", torch.bfloat16)


def other_steps() -> None:
    """Options that change the step itself: every other one, since the interpreter is slow."""
    for unit in OTHER_STEPS[::2]:
        check(unit, 2, 1, 3, "mask and resets", torch.float32)


# ------------------------------------------------------------------------------- the ways in


def sizes_and_blocks() -> None:
    """One step, one channel, a block that is not full, and several of them."""
    triton_kernels.kernel.cache_clear()
    wide, triton_kernels.INTERPRETED = triton_kernels.INTERPRETED, triton_kernels.Config(8, 1, 1)
    for unit in (variant(linnet.SRU), variant(linnet.GRU)):
        check(unit, 1, 1, 1, "nothing", torch.float64)
        check(unit, 2, 2, 11, "mask and resets", torch.float64, bidirectional=True)
        check(unit, 2, 1, 8, "resets", torch.float64)
    triton_kernels.kernel.cache_clear()
    triton_kernels.INTERPRETED = wide


def resets_to_a_state() -> None:
    for unit in (variant(linnet.SRU), variant(linnet.GRU), variant(linnet.SCRN)):
        rnn = unit.build(5, bidirectional=True)
        x = draw(4, 2, rnn.input_size, seed=5).requires_grad_()
        compare(rnn, x, reset_state=draw_state(rnn, 2, seed=3), **flags("mask and resets", 4, 2))


def strides() -> None:
    """Operands as they lie: nothing is copied into another order first."""
    for unit in (variant(linnet.SRU, square=True), variant(linnet.LSTM)):
        rnn = unit.build(5, batch_first=True, bidirectional=True)
        x = draw(2, 3, rnn.input_size, seed=5).requires_grad_()
        compare(rnn, x, **{name: flag.T for name, flag in flags("mask and resets", 3, 2).items()})
        rnn = unit.build(4)
        wide = draw(rnn.input_size, 2, 6, seed=5).permute(2, 1, 0)[::2].requires_grad_()
        compare(rnn, wide)
    rnn = variant(linnet.LRN).build(4)
    x = draw(3, 2, 7, seed=5).requires_grad_()
    for loss in (
        lambda y: y.sum(),
        lambda y: (y.transpose(0, 2) * torch.arange(3)).sum(),
        lambda y: y[-1].sum(),
    ):
        found = []
        for name in ("triton", "reference"):
            with linnet.backend(name):
                found.append(torch.autograd.grad(loss(rnn(x)[0]), [x, *rnn.parameters()]))
        torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def regularisers() -> None:
    """What the stack does around a step, from the same random numbers by both backends."""
    options: list[tuple[Variant, dict[str, Any]]] = [
        (variant(linnet.SRU), {"zoneout": 0.3, "bidirectional": True, "num_layers": 2, "dropout": 0.2}),
        (variant(linnet.SRU), {"zoneout": 0.3, "bidirectional": True, "input_dropout": 0.2}),
        (variant(linnet.LSTM), {"state_dropout": 0.4, "input_dropout": 0.2}),
        (variant(linnet.RAN), {"weight_drop": 0.4, "norm": "layer"}),
        (variant(linnet.LRN), {"weight_drop": 0.4, "bidirectional": True, "proj_size": 3}),
    ]
    for unit, more in options:
        rnn = unit.build(4, **more)
        x = draw(3, 2, 7, seed=5).requires_grad_()
        found = []
        for name in ("triton", "reference"):
            torch.manual_seed(0)
            found.append(run(name, rnn, x))
        agree(*found, 1e-12)


def inference() -> None:
    """Without gradients nothing is kept, and the numbers are the same; a cell takes single steps."""
    for unit in (variant(linnet.LRN), variant(linnet.SRU), variant(linnet.GRU), variant(linnet.SCRN)):
        rnn = unit.build(4, bidirectional=True)
        x = draw(4, 2, 7, seed=5)
        state, how = draw_state(rnn, 2), flags("mask and resets", 4, 2)
        with torch.no_grad(), linnet.backend("triton"):
            ours = rnn(x, state, **how)
        with torch.no_grad(), linnet.backend("reference"):
            torch.testing.assert_close(ours, rnn(x, state, **how), rtol=1e-12, atol=1e-12)
            cell = unit.build(4).first_cell
            expected = cell(x[0])
        with torch.no_grad(), linnet.backend("triton"):
            torch.testing.assert_close(cell(x[0]), expected, rtol=1e-12, atol=1e-12)


def gradients() -> None:
    """Gradients of some tensors alone, second derivatives, and the same bits each time."""
    for unit in (variant(linnet.SRU), variant(linnet.LSTM, peepholes=True)):
        rnn = unit.build(3, bidirectional=True)
        x = draw(2, 1, 7, seed=5)
        for leaf in (x, *list(rnn.directions[1].parameters())[::2]):
            for other in (x, *rnn.parameters()):
                other.requires_grad_(other is leaf)
            found = []
            for name in ("triton", "reference", "triton"):
                with linnet.backend(name):
                    found.append(torch.autograd.grad(rnn(x)[0].sin().sum(), leaf)[0])
            torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)
            assert torch.equal(found[0], found[2])
    rnn = variant(linnet.LRN).build(3, bidirectional=True)
    x, found = draw(3, 2, 7, seed=5).requires_grad_(), []
    for name in ("triton", "reference"):
        with linnet.backend(name):
            y, _ = rnn(x)
        first = torch.autograd.grad(y.sin().sum(), [x, *rnn.parameters()], create_graph=True)
        found.append(torch.autograd.grad(sum((g**2).sum() for g in first), [x, *rnn.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
    outputs_changed_in_place()


def outputs_changed_in_place() -> None:
    """The states that backward reads are then computed again."""
    for unit, options in ((linnet.LRN, {"bidirectional": True}), (linnet.LRN, {}), (linnet.GRU, {})):
        rnn, x = variant(unit).build(3, **options), draw(3, 2, 7, seed=5).requires_grad_()
        with linnet.backend("triton"):
            expected = torch.autograd.grad(rnn(x)[0].clone().mul_(2).sin().sum(), [x, *rnn.parameters()])
            found = torch.autograd.grad(rnn(x)[0].mul_(2).sin().sum(), [x, *rnn.parameters()])
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# Those that run by a kernel.
ODD = (
    "a parameter that only the projection reads",
    "parts in another order",
    "one number of x for all channels",
    "a state that is cut from its past",
    "two matrices that read the same state",
)


def users_units() -> None:
    check(Variant(user_units.Leaky, {}), 3, 2, 5, "mask and resets", torch.float64, bidirectional=True)
    for name in ODD:
        print(name, flush=True)
        rnn = user_units.ODD[name](4, 5, dtype=torch.double)
        found = []
        for backend in ("triton", "reference"):
            with linnet.backend(backend):
                found.append(user_units.run(rnn, draw(2, 1, 4, seed=5)))
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


class EverythingCell(user_units.OddCell):
    """All operations that a trace knows."""

    def more(self, size, where):
        self.w = nn.Parameter(torch.empty(size, **where))

    def step(self, a, b, h):
        smooth = torch.sin(a) + torch.cos(b) + torch.log1p(a.abs()) + torch.expm1(0.3 * b)
        rooted = torch.sqrt(a * a + 0.1) + torch.log(b * b + 0.1) + torch.exp(-a.abs())
        powers = (
            h**2 + (0.1 * h) ** 3 + (1 + a.abs()) ** 0.5 + (1 + b * b) ** self.w.abs() + (1 + h * h) ** -1
        )
        kinks = torch.maximum(a, b) - torch.minimum(a, h) + torch.relu(b) + torch.sign(a) * 0.1
        stairs = torch.where((a > b) & ~(h >= 0.3) | (a != a), torch.floor(a), a.clamp(-0.7, 0.3))
        h = torch.tanh(0.1 * (smooth + rooted + powers + kinks + stairs)) + torch.sigmoid(h / (1 + b * b))
        return h - a, {"h": h}


class Everything(linnet.Recurrent, cell=EverythingCell):
    """A unit that no paper has."""


def operations() -> None:
    for dtype in (torch.float64, torch.float32):
        check(Variant(Everything, {}), 3, 2, 5, "mask", dtype)
    functions()


def functions() -> None:
    """The elementary functions at their ends and near 0, as torch has them."""
    x = [
        0.0,
        -0.0,
        1e-30,
        1e-6,
        -1e-4,
        0.3,
        -0.6,
        0.7,
        1.3,
        -3.0,
        20.0,
        -90.0,
        1e4,
        -1e4,
        torch.inf,
        -torch.inf,
    ]
    source = torch.tensor([*x, torch.nan], dtype=torch.float64)
    for name in ("tanh", "expm1", "log1p", "sign"):
        for dtype, tolerance in ((torch.float64, 3e-15), (torch.float32, 4e-7)):
            values = source.to(dtype)
            found = torch.empty_like(values)
            apply(name)[(1,)](values, found, len(values), BLOCK=32)
            expected = getattr(torch, name)(values.double())
            if name == "sign":
                expected = expected.nan_to_num(0.0)
            torch.testing.assert_close(
                found.double(), expected.to(dtype).double(), rtol=tolerance, atol=1e-38, equal_nan=True
            )


def apply(name: str) -> Any:
    source = f"""import triton
import triton.language as tl

from linnet.triton.math import {name}


@triton.jit
def apply(x, y, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, {name}(tl.load(x + at, mask=at < size, other=0.0)), mask=at < size)
"""
    return triton_kernels.functions(source)["apply"]


def half_precision() -> None:
    """float16 has more digits than bfloat16; arithmetic is in float32 for both."""
    TOLERANCES[torch.float16] = (4e-3, torch.float32)
    for unit in (variant(linnet.SRU), variant(linnet.LSTM)):
        check(unit, 3, 2, 5, "mask and resets", torch.float16, bidirectional=True)


def registered_operations() -> None:
    """What a compiled graph calls on a GPU, called by hand: the numbers and the promised shapes."""
    for unit in (variant(linnet.SRU), variant(linnet.LSTM)):
        ((plan, _),) = plans_of(unit.build(4))
        inputs = len(plan.traced.inputs) - sum(len(p.parts) for p in plan.products) - len(plan.extras)
        shapes = [(3, 2, 4 * inputs), *[(3, 2, 4)] * len(plan.extras), *[(4,)] * len(plan.traced.weights)]
        shapes += [(2, 4)] * len(plan.traced.states) + [(4 * len(p.parts), 4) for p in plan.products]
        tensors = [draw(*shape, seed=i, dtype=torch.bfloat16) for i, shape in enumerate(shapes)]
        results = ops.scan_on_gpu(plan.text, tensors, None, None, False)
        with torch._subclasses.FakeTensorMode():
            fakes = [torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in shapes]
            promised = ops.scan_op(plan.text, fakes, None, None, False)
        assert [(r.shape, r.dtype) for r in results] == [(p.shape, p.dtype) for p in promised]
        above, states = results[: 1 + len(plan.traced.states)], len(plan.traced.states)
        kept, needed = results[1 + states :], [True] * len(tensors)
        made = ops.scan_backward_on_gpu(plan.text, tensors, kept, above, needed, None, None, False)
        assert [(m.shape, m.dtype) for m in made] == [(t.shape, t.dtype) for t in tensors]


# Those of one line share a process, which takes some seconds to start; both lines take about as long.
GROUPS: dict[str, tuple[Callable[[], None], ...]] = {
    "every unit": (elementwise_units, matrix_units, other_steps),
    "ways in": (
        *(operations, inference, registered_operations, half_precision, users_units),
        *(strides, sizes_and_blocks, regularisers, gradients, resets_to_a_state),
    ),
}


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    # NumPy warns of infinity and NaN, which kernels are meant to let through.
    np.seterr(all="ignore")
    for case in GROUPS[sys.argv[1]]:
        case()
        print(f"{case.__name__}: {time.process_time():.0f} s so far", flush=True)
