"""A trained run that reads a series as it goes on: `linnet.load(RUN).stream()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from linnet.base.suggest import no_such
from linnet.data.calendar import moment_of
from linnet.models.stream_step import TIME, Axis, StreamStep
from linnet.recurrent.modes import evaluating

Numbers = float | Sequence[float] | Mapping[str, float]


class RunStream:
    """Answers after each step of one series.

    stream = linnet.load("runs/sales-gru").stream()
    forecast = stream.push(412.0, time="2024-01-31")      # a NumPy array; stream.axes names its dimensions

    inputs   the names of the numbers of a step, in their order
    axes     the dimensions of an answer: what is along each, and the names of its places
    """

    def __init__(self, step: StreamStep):
        self.step = step
        self.inputs: tuple[str, ...] = step.inputs[: len(step.inputs) - len(TIME) * step.has_time]
        self.axes: tuple[Axis, ...] = step.axes
        self.reset()

    def __repr__(self) -> str:
        return f"RunStream(inputs={self.inputs}, axes={tuple(axis.name for axis in self.axes)})"

    def reset(self) -> None:
        """Begin a new series."""
        with torch.no_grad():
            self.state = self.step.initial_state()

    @torch.no_grad()
    def push(self, values: Numbers, time: Any = None) -> np.ndarray:
        """Read one step and return the answer after it, with the dimensions `axes`.

        values   a number for each of `inputs`, or by name; NaN, or a name that is left out: missing
        time     that of the values, where the run reads the calendar
        """
        numbers = [*self.numbers_of(values), *self.moment(time)]
        state = self.state
        x = self.step.sample.new_tensor([numbers])
        with evaluating(self.step):
            answer, self.state = self.step(x, state)
        return answer[0].numpy()

    def numbers_of(self, values: Numbers) -> list[float]:
        if isinstance(values, Mapping):
            for name in values:
                if name not in self.inputs:
                    raise ValueError(f"this stream has {no_such('input', name, self.inputs)}")
            return [float(values.get(name, np.nan)) for name in self.inputs]
        numbers = np.asarray(values, dtype=float).reshape(-1).tolist()
        if len(numbers) != len(self.inputs):
            raise ValueError(
                f"a step of this stream has {len(self.inputs)} numbers, {', '.join(self.inputs)}; got "
                f"{len(numbers)}"
            )
        return numbers

    def moment(self, time: Any) -> list[float]:
        if not self.step.has_time:
            return []
        if time is None:
            raise ValueError(
                "this run reads the calendar: give the time of the values, time='2024-01-31T23:45'"
            )
        moment = moment_of(np.asarray([time], dtype="datetime64[s]"))
        return [float(moment.day[0]), float(moment.second[0])]
