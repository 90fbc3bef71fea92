"""Sequences of different lengths, relative to a batch without padding and to torch's packed nn.LSTM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.units import UNITS

PADDED = ("sru", "lrn", "lstm", "gru")
FULL, LENGTHS, PACKED = "all steps real", "its lengths", "packed nn.LSTM"


def measure(settings: Settings, book: Book) -> list[Row]:
    """On one thread: with several, torch's own operations and kernels may wait for each other."""
    alone = replace(settings, threads=1)
    units = [unit for unit in PADDED if unit in settings.units]
    races = [
        race_of(unit, shape, mode) for shape in settings.padded for mode in settings.modes for unit in units
    ]
    return [row for race in races for row in race.run(alone, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    def entrant(name: str, how: str, layer: Callable[..., Any]) -> Contestant:
        return Contestant(name, how, lambda: call_of(layer(shape.d, shape.d), shape, mode, how))

    entrants = {
        "lengths": entrant(unit, "lengths", UNITS[unit]),
        "packed": entrant(unit, "packed", UNITS[unit]),
        FULL: entrant(unit, "full", UNITS[unit]),
        PACKED: entrant(PACKED, "packed", nn.LSTM),
    }
    comparisons = [
        Comparison("lengths", FULL, FULL),
        Comparison("lengths", PACKED, PACKED),
        Comparison("packed", "lengths", LENGTHS),
    ]
    return Race("padding", shape, mode, entrants, comparisons)


def lengths_of(shape: Shape) -> Tensor:
    """Uniform from 1 to L; about half of the steps are real."""
    return torch.randint(1, shape.L + 1, (shape.B,), generator=torch.Generator().manual_seed(0))


def call_of(layer: nn.Module, shape: Shape, mode: str, how: str) -> Call:
    x, lengths = torch.randn(shape), lengths_of(shape)
    given: Any = x if how != "packed" else pack_padded_sequence(x, lengths, enforce_sorted=False)
    options = {"lengths": lengths} if how == "lengths" else {}
    parameters = list(layer.parameters())

    def inference() -> None:
        with torch.no_grad():
            layer(given, **options)

    def training() -> None:
        y = layer(given, **options)[0]
        torch.autograd.grad((y.data if how == "packed" else y).sum(), parameters)

    return {"inference": inference, "training": training}[mode]
