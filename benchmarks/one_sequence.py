"""One sequence on one thread: LSTM and GRU, as they are and frozen, relative to torch and to onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from benchmarks.contestants import Contestant
from benchmarks.onnx import session_call
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from benchmarks.targets import ALONE
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.recurrent.freeze import freeze
from linnet.units import UNITS

TORCH: dict[str, Callable[..., nn.Module]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def measure(settings: Settings, book: Book) -> list[Row]:
    alone = replace(settings, threads=1)
    units = [unit for unit in TORCH if unit in settings.units]
    races = [
        race_of(unit, shape, both) for unit in units for both in (False, True) for shape in settings.alone
    ]
    return [row for race in races for row in race.run(alone, book)]


def race_of(unit: str, shape: Shape, both: bool) -> Race:
    build = partial(UNITS[unit], shape.d, shape.d, bidirectional=both)
    torchs = partial(TORCH[unit], shape.d, shape.d, bidirectional=both)
    frozen, peer = f"{unit} frozen", f"nn.{unit.upper()}"
    entrants = {
        unit: Contestant(unit, "cpu", lambda: call_of(build(), shape, "inference")),
        frozen: Contestant(frozen, "cpu", lambda: frozen_call(build(), shape)),
        peer: Contestant(peer, "torch", lambda: call_of(torchs(), shape, "inference")),
        "onnxruntime": Contestant(
            unit, "onnxruntime", lambda: session_call(unit, shape, 1, True, bidirectional=both)
        ),
    }
    comparisons = [Comparison(name, to, to) for name in (unit, frozen) for to in (peer, "onnxruntime")]
    return Race("one sequence", shape, ALONE[both], entrants, comparisons)


def frozen_call(rnn: Any, shape: Shape) -> Call:
    return call_of(freeze(rnn.eval()), shape, "inference")
