"""Series as arrays, and windows of them as batches for a `Forecaster`.

The level of each series (linnet.models.level) is computed once, from its first value on, in float64. A window
is then a slice of it, brought to the location and scale of its last step: float32 is enough there, however
large the values are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from linnet.data.batches import TimeBatch
from linnet.data.calendar import calendar
from linnet.data.frequency import Frequency
from linnet.data.series import Series
from linnet.models import level
from linnet.models.forecaster import Sizes

TOGETHER = 2_000_000
"""Values of series whose level is computed at once."""


@dataclass(frozen=True, eq=False)
class WindowBatch(TimeBatch):
    """A batch of windows; see `linnet.models.forecaster.SeriesWindow`.

    centre, unit   float64 [1, B, targets]: values of the window are (value - centre) / unit
    rows           int64 [B]: the numbers of the series
    starts         int64 [B]: the first step of each window in its series
    """

    values: Tensor
    location: Tensor
    scale: Tensor
    size: Tensor
    present: Tensor
    known: Tensor
    observed: Tensor
    lengths: Tensor
    origins: Tensor
    centre: Tensor
    unit: Tensor
    rows: Tensor
    starts: Tensor
    index: int = 0

    def in_dtype(self, dtype: torch.dtype) -> WindowBatch:
        """Return the batch with what the model reads in another precision."""
        read = ("values", "location", "scale", "size", "present", "known", "observed")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in read})


class SeriesArrays:
    """All series after one another, each followed by `horizon` steps without values.

    values     [steps, targets] float64, in the unit in which the model computes
    lengths    int64 [series]
    """

    def __init__(self, series: Sequence[Series], sizes: Sizes, frequency: Frequency, use_calendar: bool):
        self.sizes, self.series = sizes, series
        self.lengths = torch.tensor([len(each) for each in series])
        self.starts = torch.cumsum(self.lengths + sizes.horizon, 0) - (self.lengths + sizes.horizon)
        levels = levels_of(series, sizes)
        self.values, self.location, self.scale, self.size, self.present = levels
        known = [known_of(each, sizes.horizon, frequency, use_calendar) for each in series]
        self.known = torch.from_numpy(np.concatenate(known)).float()
        self.observed = torch.from_numpy(
            np.concatenate([after(each.observed, sizes.horizon) for each in series])
        ).float()

    def batch(
        self, rows: Tensor, starts: Tensor, steps: int, ends: Tensor, origins: Tensor, index: int = 0
    ) -> WindowBatch:
        """Return windows of `steps` steps.

        starts    [B], the first step of each window in its series
        ends      [B], the steps of each series that exist: those after them are neither read nor asked
        origins   [F, B], the steps of the windows after which there is a forecast
        """
        context, horizon = self.sizes.context, self.sizes.horizon
        around = torch.arange(1 - context, steps + horizon)[:, None] + starts
        inside = self.places(rows, around)
        own, last = (
            inside[context - 1 :][:steps],
            self.places(rows, torch.minimum(starts + steps, ends)[None] - 1),
        )
        centre, unit = self.location[last], self.scale[last]
        exists = ((around >= 0) & (around < ends))[..., None]
        return WindowBatch(
            values=torch.where(
                exists | (around < 0)[..., None], (self.values[inside] - centre) / unit, 0
            ).float(),
            location=((self.location[own] - centre) / unit).float(),
            scale=(self.scale[own] / unit).float(),
            size=self.size[own].float(),
            present=(self.present[inside] * exists).float(),
            known=self.known[inside[context - 1 :]],
            observed=self.observed[own],
            lengths=torch.minimum(ends - starts, torch.tensor(steps)),
            origins=origins,
            centre=centre,
            unit=unit,
            rows=rows,
            starts=starts,
            index=index,
        )

    def places(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return where these steps of the series are; steps outside are those at its ends."""
        last = self.lengths[rows] + self.sizes.horizon - 1
        return self.starts[rows] + torch.minimum(steps.clamp(min=0), last)


# ------------------------------------------------------------------------------------------- arrays


def levels_of(series: Sequence[Series], sizes: Sizes) -> list[Tensor]:
    """Return value, location, scale, size and presence of each step of all series."""
    found: list[list[Tensor]] = []
    for part in parts(series):
        found += level_of_part(part, sizes)
    return [torch.cat(each) for each in zip(*found, strict=True)]


def parts(series: Sequence[Series]) -> Iterator[Sequence[Series]]:
    """Yield series one after another, as many at once as have TOGETHER values if all were as long."""
    first, longest = 0, 0
    for number, each in enumerate(series):
        longest = max(longest, len(each))
        if number > first and (number + 1 - first) * longest > TOGETHER:
            yield series[first:number]
            first, longest = number, len(each)
    yield series[first:]


def level_of_part(series: Sequence[Series], sizes: Sizes) -> list[list[Tensor]]:
    values = np.full((max(map(len, series)), len(series), sizes.targets), np.nan)
    for number, each in enumerate(series):
        values[: len(each), number] = each.values
    steps = torch.from_numpy(np.log(values) if sizes.log else values)
    start = level.start(steps[0])
    levels, _ = level.advance(steps, start, sizes.span, relative=not sizes.log, add=level.add_all)
    whole = with_constant_start(levels)
    return [
        [extended(part[: len(each), number], sizes.horizon) for part in whole]
        for number, each in enumerate(series)
    ]


def with_constant_start(steps: level.Level) -> level.Level:
    """Before its first value, a series is taken to have been at that value, as in `Forecaster.step`."""
    has_begun = steps.present.cumsum(0) > 0
    first = steps.value.gather(0, has_begun.long().argmax(0, keepdim=True))
    value, location = (torch.where(has_begun, each, first) for each in (steps.value, steps.location))
    return steps._replace(value=value, location=location)


def extended(steps: Tensor, horizon: int) -> Tensor:
    return torch.cat([steps, steps.new_zeros(horizon, *steps.shape[1:])])


def known_of(series: Series, horizon: int, frequency: Frequency, use_calendar: bool) -> np.ndarray:
    """Return the known covariates (NaN where not given) and the calendar of each step and of the horizon."""
    given = after(series.known, max(0, horizon - series.future))[: len(series) + horizon]
    if not use_calendar:
        return given
    return np.concatenate([given, calendar(frequency.times(series.start, len(given)), frequency)], 1)


def after(steps: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([steps, np.full((count, *steps.shape[1:]), np.nan)])
