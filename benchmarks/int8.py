"""Units in int8 relative to float32: a step of a cell, and whole sequences."""

from __future__ import annotations

import torch

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.deploy.quantize import quantize
from linnet.recurrent.cell import Cell
from linnet.units import UNITS

QUANTISED = ("sru", "lrn", "lstm", "gru", "ran")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in QUANTISED if unit in settings.units]
    step, sequence = settings.quantised
    rows = [row for unit in units for row in race_of(unit, step, "step").run(settings, book)]
    return rows + [row for unit in units for row in race_of(unit, sequence, "inference").run(settings, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    def build(in_int8: bool) -> Call:
        rnn = UNITS[unit](shape.d, shape.d).eval()
        rnn = quantize(rnn) if in_int8 else rnn
        return cell_call(rnn.cells[0], shape) if mode == "step" else call_of(rnn, shape, mode)

    entrants = {
        "int8": Contestant(unit, "int8", lambda: build(True)),
        "float32": Contestant(unit, "cpu", lambda: build(False)),
    }
    return Race("int8", shape, mode, entrants, [Comparison("int8", "float32", "float32")])


def cell_call(cell: Cell, shape: Shape) -> Call:
    """A step of a cell that continues from a state."""
    x = torch.randn(shape.B, shape.d)
    with torch.no_grad():
        _, state = cell.run_step(x)

    @torch.no_grad()
    def call() -> None:
        cell(x, state)

    return call
