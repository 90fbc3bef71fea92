"""What the parts of a run share: its settings, its directory, its processes, its task, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from linnet.runs.config import RunConfig
from linnet.tasks.base import Task

VALIDATIONS = 10
"""At least this many validations in a run whose length follows the data or a time budget."""
MOST_EPOCHS = 40
"""A run whose length follows the data reads it at most this often."""


def planned_epochs(updates: int, size: int) -> int:
    """Return the epochs for `size` batches: 100 batches get `updates` updates, n times as many sqrt(n) times.

    More data needs more updates, but fewer passes.
    """
    return max(1, min(MOST_EPOCHS, round(updates * math.sqrt(size / 100) / size)))


@dataclass
class Position:
    """How far a run is. Epochs count from 1; `batch` is the number of the next batch of its epoch.

    `history` has the metric that selects after each validation, with its sign such that lower is better.
    """

    epoch: int = 1
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    spent: float = 0.0  # seconds of training and validation, over all sessions
    evaluated: int = -1  # the step of the last validation
    evaluated_at: float = 0.0  # the seconds that were spent then
    history: list[float] = field(default_factory=list)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last update."""
        return self.epoch if self.batch else max(1, self.epoch - 1)


@dataclass
class Context:
    config: RunConfig
    folder: Path
    fabric: Any
    task: Task
    here: Position = field(default_factory=Position)

    @cached_property
    def steps_per_epoch(self) -> int | None:
        """The number of updates of an epoch; None if it has no end."""
        # With windows of varied lengths, epochs differ a little; the first one is close enough.
        size = self.task.batches_per_epoch(1)
        return size and math.ceil(size / self.config.optimiser.accumulate)

    @cached_property
    def epochs(self) -> float:
        """The number of epochs: the one that was given, or what the size of the data suggests."""
        loop, size = self.config.loop, self.steps_per_epoch
        if loop.epochs:
            return loop.epochs
        return math.inf if loop.steps or size is None else planned_epochs(loop.updates, size)

    @cached_property
    def total_steps(self) -> int | None:
        """The number of updates of the whole run; None if it has no end."""
        steps, size = self.config.loop.steps, self.steps_per_epoch
        if size is None or self.epochs == math.inf:
            return steps or None
        total = int(self.epochs) * size
        return min(total, steps) if steps else total

    @cached_property
    def evaluate_every(self) -> int:
        """Updates between validations; 0: at the end of each epoch."""
        loop = self.config.loop
        if loop.evaluate_every or loop.epochs or loop.steps or self.epochs >= VALIDATIONS:
            return loop.evaluate_every
        assert self.total_steps is not None
        return math.ceil(self.total_steps / VALIDATIONS)

    @property
    def share_spent(self) -> float:
        """The share of the time budget that is spent; 0 without a budget."""
        minutes = self.config.loop.minutes
        return self.here.spent / (60 * minutes) if minutes else 0.0

    @property
    def is_validation_due(self) -> bool:
        """Whether it is time for a validation in the middle of an epoch, by updates or by the time budget."""
        if self.evaluate_every and self.here.step % self.evaluate_every == 0:
            return True
        budget, here = 60 * self.config.loop.minutes, self.here
        return bool(budget) and here.spent - here.evaluated_at >= budget / VALIDATIONS

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.fabric.is_global_zero
