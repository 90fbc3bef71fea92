"""One step of a trained model as programs without Python call it: named numbers in and out.

A task whose models read values one by one returns a `StreamStep` of them (`Task.stream_step`); exports to
source code and `linnet.load(RUN).stream()` are made from it and know nothing else of the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

TIME = ("day", "second")
"""The names of the inputs that say the time of a step: days since 1970-01-01, and seconds of that day."""


class Axis(NamedTuple):
    """A dimension of an answer: what is along it, and the name of each place.

    scores   the numbers along it are scores of classes, of which the highest is the answer
    """

    name: str
    labels: tuple[str, ...]
    scores: bool = False


class StreamStep(nn.Module):
    """A step: forward(x [1, inputs], state) -> answer [1, ...], new state.

    model      its `step(x, state)` computes the step, its `initial_state()` returns the first state
    inputs     the name of each number of x; NaN is a missing one
    axes       the dimensions of the answer, besides the first
    sample     [T, inputs]: inputs as they may occur, with which exported code is compared with Python
    notes      sentences for the README of an export
    has_time   the last two inputs are `TIME`
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Sequence[str],
        axes: Sequence[Axis],
        sample: Tensor,
        notes: Sequence[str] = (),
        has_time: bool = False,
    ):
        super().__init__()
        self.model = model
        self.inputs = (*inputs, *TIME) if has_time else tuple(inputs)
        self.axes, self.sample = tuple(axes), sample
        self.notes, self.has_time = tuple(notes), has_time

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(x, state)  # type: ignore[operator]

    def initial_state(self) -> Any:
        return self.model.initial_state()  # type: ignore[operator]

    @property
    def example(self) -> tuple[Tensor, Any]:
        """x and state, from which a step is recorded."""
        with torch.no_grad():
            return self.sample[:1], self.initial_state()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an answer."""
        return tuple(len(axis.labels) for axis in self.axes)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the names of the rows of an answer, one name for each axis but the last."""
        return list(itertools.product(*(axis.labels for axis in self.axes[:-1])))
