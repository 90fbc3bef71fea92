"""Units and options whose steps have matrix products within, or that turn their state: kernels and loop."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.contestants import Contestant, on_reference
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.layers import call_of
from linnet.bench.timing import Call
from linnet.units import UNITS


class Option(NamedTuple):
    """A unit, and the options it is built with."""

    unit: str
    options: dict[str, Any]
    projected: bool = False  # to half of the hidden size, before the next step reads it

    def build(self, shape: Shape) -> nn.Module:
        return UNITS[self.unit](shape.d, shape.d, **self.options, **self.projection(shape))

    def projection(self, shape: Shape) -> dict[str, Any]:
        return {"proj_size": max(1, shape.d // 2)} if self.projected else {}


OPTIONS = {
    "gru, reset before": Option("gru", {"form": "before"}),
    "lstm, projected": Option("lstm", {}, projected=True),
    "ran, projected": Option("ran", {}, projected=True),
    "scrn, zoneout": Option("scrn", {"zoneout": 0.1}),
    "eurnn": Option("eurnn", {}),
    "goru": Option("goru", {}),
}


def measure(settings: Settings, book: Book) -> list[Row]:
    races = (
        race_of(name, shape, mode)
        for shape in settings.optional
        for name in OPTIONS
        for mode in settings.modes
    )
    return [row for race in races for row in race.run(settings, book)]


def race_of(name: str, shape: Shape, mode: str) -> Race:
    option = OPTIONS[name]

    def build() -> Call:
        return call_of(option.build(shape), shape, mode)

    entrants = {
        name: Contestant(name, "cpu", build),
        "reference": Contestant(name, "reference", lambda: on_reference(build())),
    }
    if name == "lstm, projected":
        theirs = Contestant("nn.LSTM", "torch", lambda: call_of(torch_lstm(option, shape), shape, mode))
        entrants["nn.LSTM"] = theirs
    others = [to for to in entrants if to != name]
    return Race("options", shape, mode, entrants, [Comparison(name, to, to) for to in others])


def torch_lstm(option: Option, shape: Shape) -> nn.Module:
    lstm = nn.LSTM(shape.d, shape.d, **option.projection(shape))
    lstm.output_size = lstm.proj_size
    with warnings.catch_warnings(), torch.no_grad():
        # Torch warns, once, that it does not use oneDNN.
        warnings.simplefilter("ignore", UserWarning)
        lstm(torch.zeros(1, 1, shape.d))
    return lstm
