"""A frame of one stream: in a step of its own, within `stream.run`, and within a call of the module."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.stream import stream
from linnet.units import UNITS

STREAMED = ("lstm", "gru", "sru")
STEPS, RUN, MODULE = "step by step", "run", "module"


def measure(settings: Settings, book: Book) -> list[Row]:
    alone = replace(settings, threads=1)
    units = [unit for unit in STREAMED if unit in settings.units]
    shapes = [settings.blocked._replace(d=size) for size in settings.step_sizes]
    return [row for unit in units for shape in shapes for row in race_of(unit, shape).run(alone, book)]


def race_of(unit: str, shape: Shape) -> Race:
    """The times are those of all frames of a block."""
    calls = {STEPS: steps, RUN: block, MODULE: whole}
    entrants = {name: Contestant(unit, name, partial(call, unit, shape)) for name, call in calls.items()}
    return Race(
        "blocks", shape, "stream", entrants, [Comparison(name, STEPS, STEPS) for name in (RUN, MODULE)]
    )


def steps(unit: str, shape: Shape) -> Call:
    session, frames = stream(layer(unit, shape)), torch.randn(shape.L, shape.d).unbind()

    def call() -> None:
        for frame in frames:
            session(frame)

    return call


def block(unit: str, shape: Shape) -> Call:
    session, frames = stream(layer(unit, shape)), torch.randn(shape.L, shape.d)
    return partial(session.run, frames)


def whole(unit: str, shape: Shape) -> Call:
    return call_of(layer(unit, shape), shape, "inference")


def layer(unit: str, shape: Shape) -> Recurrent:
    return UNITS[unit](shape.d, shape.d).eval()
