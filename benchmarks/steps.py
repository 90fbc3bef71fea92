"""One step: cells against nn.LSTMCell, streams against reading the weights, under load; with gradients."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, cell_step, has_kernel
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from benchmarks.targets import MILLISECONDS, judged, target_of
from linnet.bench.timing import Call, quiet
from linnet.recurrent.stream import stream
from linnet.units import UNITS

LAYERS = 2
RECORDED = ("step with gradients", "step and backward")
BUSY = 2  # other processes while a step is measured
BUSY_LOOP = "while True: pass"


def measure(settings: Settings, book: Book) -> list[Row]:
    rows: list[Row] = []
    for size in settings.step_sizes:
        rows += cells(settings, Shape(1, 1, size)).run(settings, book)
        rows += streams(settings, size, book)
    for mode in RECORDED:
        rows += with_gradients(settings, Shape(1, 1, settings.step_sizes[0]), mode).run(settings, book)
    return rows + under_load(settings, book)


def with_gradients(settings: Settings, shape: Shape, mode: str) -> Race:
    """A step of a layer that autograd records, or that and its backward pass."""
    units = [unit for unit in settings.units if has_kernel(unit)]
    builders = {unit: partial(UNITS[unit], shape.d, shape.d) for unit in units}
    entrants = {
        unit: Contestant(unit, "cpu", partial(recorded, build, shape, mode))
        for unit, build in builders.items()
    }
    for name, layer in {"nn.LSTM": nn.LSTM, "nn.GRU": nn.GRU}.items():
        torchs = partial(recorded, partial(layer, shape.d, shape.d), shape, mode)
        entrants[name] = Contestant(name, "torch", torchs)
    comparisons = [Comparison(unit, "nn.LSTM", "nn.LSTM") for unit in units]
    if "gru" in units:
        comparisons.append(Comparison("gru", "nn.GRU", "nn.GRU"))
    return Race("step", shape, mode, entrants, comparisons)


def recorded(build: Callable[[], nn.Module], shape: Shape, mode: str) -> Call:
    layer, x = build(), torch.randn(shape)
    weights = list(layer.parameters())
    _, state = layer(x)
    state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()

    def call() -> None:
        y, _ = layer(x, state)
        if mode == RECORDED[1]:
            torch.autograd.grad(y, weights, torch.ones_like(y), allow_unused=True)

    return call


def cells(settings: Settings, shape: Shape) -> Race:
    entrants = {unit: cell_step(unit, shape) for unit in (*settings.units, "nn.LSTMCell")}
    comparisons = [Comparison(unit, "nn.LSTMCell", "nn.LSTMCell") for unit in settings.units]
    return Race("cell", shape, "step", entrants, comparisons)


def streams(settings: Settings, size: int, book: Book) -> list[Row]:
    """Two layers, batch 1, one thread, relative to one product of each matrix with a vector."""
    shape, rows = Shape(1, 1, size), []
    with quiet(1):
        for unit in settings.units:
            rnn = UNITS[unit](size, size, LAYERS).eval()
            entrants = {
                unit: Contestant(unit, "cpu", partial(stream_call, rnn, size)),
                "reading": Contestant(unit, "torch", partial(reading, list(rnn.parameters()))),
            }
            race = Race(
                "stream", shape, "step", entrants, [Comparison(unit, "reading", "reading its weights")]
            )
            rows += [row for row in race.run(one_thread(settings), book) if row["ratio_to"]]
            if unit in ("sru", "lrn") and size == 64:
                rows += book.add(in_microseconds(rows[-1], unit, shape))
    return rows


def one_thread(settings: Settings) -> Settings:
    return replace(settings, threads=1)


def in_microseconds(row: Row, unit: str, shape: Shape) -> dict[str, Any]:
    p50, most = float(row["p50_ms"]), MILLISECONDS["stream"]
    known = {
        "what": "stream",
        "unit": unit,
        "backend": "cpu",
        "mode": "step",
        **shape.columns(),
        "threads": 1,
    }
    return {**known, "p50_ms": p50, "target": f"{1000 * most:.0f} µs", "met": p50 <= most}


def stream_call(rnn: Any, size: int) -> Call:
    session, x = stream(rnn), torch.randn(1, size)
    return lambda: session(x)


def reading(weights: list[Tensor]) -> Call:
    """Return the product of each matrix with a vector: at batch 1, a step can do no less."""
    matrices = [weight.detach() for weight in weights if weight.dim() == 2]
    pairs = [(matrix, torch.randn(matrix.shape[1]), torch.empty(len(matrix))) for matrix in matrices]

    def call() -> None:
        for matrix, vector, out in pairs:
            torch.mv(matrix, vector, out=out)

    return call


# --------------------------------------------------------------------------------- under load


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def under_load(settings: Settings, book: Book) -> list[Row]:
    """The median and the 99th percentile of a step while other processes are busy, relative to one thread."""
    shape, units = settings.loaded, [unit for unit in ("sru", "lstm") if unit in settings.units]
    rows: list[Row] = []
    with busy_processes(BUSY):
        for unit in units:
            layer, x = UNITS[unit](shape.d, shape.d).eval(), torch.randn(shape)
            taken: dict[int, list[float]] = {1: [], settings.threads: []}
            for _ in range(settings.rounds):
                for threads, seconds in taken.items():
                    with quiet(threads), torch.no_grad():
                        seconds += times_of(partial(layer, x), settings.loaded_steps)
            alone, shared = taken[1], taken[settings.threads]
            for name, percent in (("median under load", 50), ("p99 under load", 99)):
                ratio = float(np.percentile(shared, percent) / np.percentile(alone, percent))
                known = {"what": "load", "unit": unit, "backend": "cpu", "mode": name, **shape.columns()}
                p50 = 1000 * float(np.percentile(shared, percent))
                target = target_of(unit, name, shape, "one thread")
                rows += book.add({**known, "p50_ms": p50, **judged(ratio, "one thread", target)})
    return rows


def times_of(call: Call, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds
