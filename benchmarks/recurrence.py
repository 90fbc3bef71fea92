"""The recurrence alone, compared with a copy of the same number of bytes, which is the limit of the memory.

We time the kernels where a forward and backward pass launches them. Each is run twice, and the second run is
timed: the first access to newly allocated memory takes longer than the recurrence.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.targets import BEYOND_CACHE, judged, target_of
from linnet.bench.timing import Call, Times, quiet, timed
from linnet.program.plan import Plan
from linnet.units import UNITS

KINDS = ("forward", "backward")


def measure(settings: Settings, book: Book) -> list[Row]:
    rows: list[Row] = []
    for shape in (shape for shape in settings.shapes if not shape.is_step):
        for unit in settings.elementwise("sru", "lrn"):
            try:
                times, moved = alone(unit, shape, settings)
            except Exception as error:  # report what failed, and continue
                book.say(f"skipped: recurrence of {unit} at {shape}: {error}")
                continue
            rows += book.add(*(row(unit, shape, kind, times, moved) for kind in KINDS))
    return rows


def row(unit: str, shape: Shape, kind: str, times: dict[str, Times], moved: dict[str, int]) -> dict[str, Any]:
    ratio = times[kind].p50 / times[f"copy {kind}"].p50
    figure = target_of(unit, kind, shape, "DRAM limit") if moved[kind] > BEYOND_CACHE else None
    known = {"what": "recurrence", "unit": unit, "backend": "cpu", "mode": kind, **shape.columns()}
    return {**known, **times[kind].columns(), **judged(ratio, "DRAM limit", figure)}


def alone(unit: str, shape: Shape, settings: Settings) -> tuple[dict[str, Times], dict[str, int]]:
    """Return the times of both kernels and of copies of as many bytes, and the numbers of bytes."""
    moved = bytes_moved(unit, shape)
    copies = {kind: copy_of(moved[kind]) for kind in KINDS}
    taken: dict[str, list[float]] = {name: [] for kind in KINDS for name in (kind, f"copy {kind}")}
    with quiet(settings.threads):
        # With a norm, the projections are computed outside the kernel.
        layer = UNITS[unit](shape.d, shape.d, norm="rms")
        x, above = torch.randn(shape, requires_grad=True), torch.ones(shape)
        passes(layer, x, above)
        for _ in range(settings.rounds):
            for kind, seconds in zip(KINDS, passes(layer, x, above), strict=True):
                taken[kind].append(seconds)
                taken[f"copy {kind}"].append(timed(copies[kind], 1))
            gc.collect()
    return {name: Times.of(seconds) for name, seconds in taken.items()}, moved


def bytes_moved(unit: str, shape: Shape) -> dict[str, int]:
    """Return the bytes that each kernel must read and write, in float32.

    forward    reads the inputs of the step; writes the states and, if it is not a state, the output
    backward   reads the inputs, the states and the output's gradient; writes the inputs' gradients
    """
    plan = plan_of(unit)
    inputs, states = len(plan.traced.inputs), len(plan.traced.states)
    output = 0 if plan.traced.output_state else 1
    size = 4 * shape.L * shape.B * shape.d
    return {"forward": (inputs + states + output) * size, "backward": (2 * inputs + states + 1) * size}


def plan_of(unit: str) -> Plan:
    plans = training_plans(unit)
    if isinstance(plans, str):
        raise ValueError(plans)
    return plans[0]


def training_plans(unit: str) -> list[Plan] | str:
    return UNITS[unit](4, 4).layer(0)[0].plans_of_mode()


def copy_of(moved: int) -> Call:
    """Return a copy that reads half of the bytes and writes half."""
    source = torch.ones(moved // 8)
    target = torch.ones_like(source)
    return lambda: target.copy_(source)


def passes(layer: nn.Module, x: Tensor, above: Tensor) -> tuple[float, float]:
    """Return the seconds of the kernels of a forward pass, and of a backward pass."""
    y: list[Tensor] = []
    forward = launched(lambda: y.append(layer(x)[0]))
    return forward, launched(lambda: torch.autograd.grad(y, [x, *layer.parameters()], above))


def launched(call: Call) -> float:
    """Return the seconds of the kernels that `call` launches."""
    seconds: list[float] = []

    def twice(run: Callable[..., None], *arguments: Any) -> None:
        run(*arguments)
        start = time.perf_counter()
        run(*arguments)
        seconds.append(time.perf_counter() - start)

    with launches(twice):
        call()
    if not seconds:
        raise RuntimeError("no kernel was launched")
    return sum(seconds)


@contextmanager
def launches(instead: Callable[..., None]) -> Iterator[None]:
    """Within this context, `instead(run, *arguments)` is called in place of a kernel."""
    from linnet.cpu import jit

    run = jit.run
    jit.run = lambda *arguments: instead(run, *arguments)
    try:
        yield
    finally:
        jit.run = run
