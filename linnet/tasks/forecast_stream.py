"""One step of a trained forecaster for streams and exports: it computes the calendar from the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.data.calendar import Moment, distance_of, later, waves
from linnet.data.frequency import Frequency
from linnet.models.forecaster import Forecaster
from linnet.models.stream_step import Axis, StreamStep

SAMPLES = 20
FIRST = Moment(day=19_782, second=0)
"""2024-02-29, where the samples begin."""


class ForecastStep(StreamStep):
    """A step that reads the targets, observed and known covariates, known ones to come, and the time.

    targets, observed, known   the names of the columns
    """

    def __init__(
        self,
        model: Forecaster,
        targets: Sequence[str],
        observed: Sequence[str],
        known: Sequence[str],
        frequency: Frequency,
        use_calendar: bool,
    ):
        steps = tuple(map(str, range(1, model.sizes.horizon + 1)))
        inputs = [*targets, *observed, *known, *(f"{name}+{step}" for step in steps for name in known)]
        levels = tuple(f"{level:g}" for level in model.answer.levels)
        axes = (Axis("step", steps), Axis("target", tuple(targets)), Axis("level", levels))
        sample = sample_of(len(inputs), use_calendar, frequency)
        notes = notes_of(model.sizes.log, len(known), frequency, use_calendar)
        super().__init__(model, inputs, axes, sample, notes, has_time=use_calendar)
        self.sizes, self.frequency, self.known = model.sizes, frequency, len(known)

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(self.with_calendar(x) if self.has_time else x, state)  # type: ignore[operator]

    def with_calendar(self, x: Tensor) -> Tensor:
        """Return the input of the model: x with the calendar in place of the time."""
        steps, read = 1 + self.sizes.horizon, self.sizes.targets + self.sizes.observed
        values, known, day, second = x.split([read, self.known * steps, 1, 1], -1)
        ahead = distance_of(np.arange(steps), self.frequency)
        moments = later(Moment(day, second), Moment(*(x.new_tensor(each) for each in ahead)))
        calendar = torch.stack(waves(moments, self.frequency, torch.sin, torch.cos), -1)
        known = torch.cat([known.unflatten(-1, (steps, self.known)), calendar], -1)
        return torch.cat([values, known.flatten(1)], -1)


def sample_of(inputs: int, has_time: bool, frequency: Frequency) -> Tensor:
    """Return positive values, which all transformations take, at times of the frequency."""
    source = torch.Generator().manual_seed(0)
    numbers = torch.exp(0.3 * torch.randn(SAMPLES, inputs, generator=source))
    if not has_time:
        return numbers
    times = later(FIRST, distance_of(np.arange(SAMPLES), frequency))
    return torch.cat([numbers, torch.from_numpy(np.stack([times.day, times.second], 1)).float()], 1)


def notes_of(log: bool, known: int, frequency: Frequency, has_time: bool) -> list[str]:
    """Return what the user of a step has to know besides the names."""
    said = [
        f"Call the model once for each time of the series, in order ({frequency}), also for one without a "
        "value (NaN).",
        "Values are in the unit of the training data; the scaling is inside.",
    ]
    if log:
        said.append("The model forecasts logarithms: values must be above 0.")
    if known:
        said.append("A name with +1 is the covariate one step after the step of the values.")
    if has_time:
        said.append("The time is that of the values, as in the training data: a local time stays local.")
    return said
