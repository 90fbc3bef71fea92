"""Units in bfloat16, weights and activations, relative to float32."""

from __future__ import annotations

import torch

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.layers import inference, training
from linnet.bench.timing import Call
from linnet.units import UNITS

HALVED = ("sru", "lrn", "lstm", "gru")
TO = "the same in float32"


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in HALVED if unit in settings.units]
    races = [race_of(unit, settings.halved, mode) for mode in settings.modes for unit in units]
    return [row for race in races for row in race.run(settings, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    def build(dtype: torch.dtype) -> Call:
        layer, x = UNITS[unit](shape.d, shape.d, dtype=dtype), torch.randn(shape).to(dtype)
        return {"inference": inference, "training": training}[mode](layer, x)

    entrants = {
        "bfloat16": Contestant(unit, "bfloat16", lambda: build(torch.bfloat16)),
        "float32": Contestant(unit, "cpu", lambda: build(torch.float32)),
    }
    return Race("bfloat16", shape, mode, entrants, [Comparison("bfloat16", "float32", TO)])
