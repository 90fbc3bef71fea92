"""What the parts of a run share: its settings, its directory, its processes, its task, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from linnet.runs.config import RunConfig
from linnet.tasks.base import Task


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
    evaluated: int = -1  # the step of the last validation
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
    def total_steps(self) -> int | None:
        """The number of updates of the whole run; None if it has no end."""
        loop = self.config.loop
        # With windows of varied lengths, epochs differ a little; the first one is close enough.
        size = self.task.batches_per_epoch(1)
        if size is None:
            return loop.steps or None
        total = loop.epochs * math.ceil(size / self.config.optimiser.accumulate)
        return min(total, loop.steps) if loop.steps else total

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.fabric.is_global_zero
