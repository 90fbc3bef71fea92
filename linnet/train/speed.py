"""The training speed of several models, each measured alone and in turn.

The speed while a run trains depends on what else the machine does at that time. Here every model is timed for
at most a second, then the next one, and this several times over; the fastest round counts, because other
programs can only slow a model down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from linnet.runs.config import RunConfig
from linnet.runs.records import read_result, read_speed, write_speed
from linnet.tasks.base import Task
from linnet.train.fabric import make_fabric
from linnet.train.loop import Run, groups
from linnet.train.progress import Silent

ROUNDS = 3
SECONDS = 1.0  # of one model in one round,
SHARE = 0.1  # or this share of the time for which it was trained, if that is less


def measure_speeds(runs: Sequence[tuple[RunConfig, Path]], task: Task) -> None:
    """Write the tokens per second of every run into its directory, unless all have been measured."""
    if all(read_speed(folder) for _, folder in runs):
        return
    rounds = [[training_speed(config, folder, task) for config, folder in runs] for _ in range(ROUNDS)]
    for (_, folder), speeds in zip(runs, zip(*rounds, strict=True), strict=True):
        write_speed(folder, max(speeds))


def training_speed(config: RunConfig, folder: Path, task: Task) -> float:
    """Return the tokens per second of updates of a new model; nothing is written to `folder`."""
    run = Run(config, folder, make_fabric(config.loop), Silent(), task)
    updates, here = endless_updates(run), run.context.here
    # The first update loads kernels and allocates the states of the optimiser.
    next(updates)
    here.tokens, here.seconds = 0, 0.0
    trained = read_result(folder) or {"seconds": SECONDS / SHARE}
    end = time.perf_counter() + min(SECONDS, SHARE * trained["seconds"])
    while not here.tokens or time.perf_counter() < end:
        next(updates)
    return here.tokens / here.seconds


def endless_updates(run: Run) -> Iterator[Any]:
    run.updater.stepper.train()
    for epoch in count(1):
        run.updater.carry = None
        for group in groups(run.task.batches("train", epoch), run.config.optimiser.accumulate):
            yield run.updater.update(group)
