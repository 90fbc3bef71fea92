"""Measurements of a model of the atlas: an update of training, a streamed step, and what int8 changes.

Times are of one thread, of all units in turn. The clock is the processor's time for the process, and the
faster fifth of the rounds counts: what else the machine does changes them little.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from linnet.atlas.plan import with_steps
from linnet.bench.timing import Call, clock_of, race
from linnet.deploy.quantize import int8_size, quantize
from linnet.recurrent.stream import stream
from linnet.run.choose import FallbackWarning
from linnet.runs.config import RunConfig
from linnet.runs.load import load
from linnet.tasks.base import Task
from linnet.train.fabric import make_fabric
from linnet.train.loop import Run
from linnet.train.progress import Silent
from linnet.units import UNITS

BATCHES = 5
"""The first batches of the first epoch, which are the same for all units."""
ROUNDS, SECONDS = 9, 60.0
ENDLESS = 10**9
SLOW = "slow step: each step of a stream runs on the reference loop, not as one native call"


class Times(NamedTuple):
    """The time of each entrant, and a note for each that has none, or an unusual one."""

    found: Mapping[str, float]
    notes: Mapping[str, str]


def update_times(configs: Mapping[str, RunConfig], task: Task, rounds: int = ROUNDS) -> Times:
    """Return the milliseconds of an update of each unit."""
    builders = {unit: partial(updates, config, task) for unit, config in configs.items()}
    times = in_turn(builders, rounds, "no training")
    return Times({unit: each / BATCHES for unit, each in times.found.items()}, times.notes)


def step_times(configs: Mapping[str, RunConfig], task: Task, rounds: int = ROUNDS) -> Times:
    """Return the microseconds of a step of the layers of each unit, by `linnet.stream`."""
    slow: dict[str, str] = {}
    builders = {unit: partial(one_step, unit, config, task, slow) for unit, config in configs.items()}
    times = in_turn(builders, rounds, "no stream")
    return Times({unit: 1000 * each for unit, each in times.found.items()}, {**slow, **times.notes})


def in_turn(builders: Mapping[str, Callable[[], Call]], rounds: int, without: str) -> Times:
    """Return the milliseconds of each call, and why others could not be built or made."""
    notes: dict[str, str] = {}

    def noted(line: str) -> None:
        _, unit, _, reason = line.split(": ", 3)
        notes[unit] = f"{without}: {reason}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # a note says so
        times = race(builders, rounds, 1, SECONDS, noted, clock=clock_of(1))
    return Times({unit: each.p20 for unit, each in times.items()}, notes)


def updates(config: RunConfig, task: Task) -> Call:
    """Return a call that makes BATCHES updates of a new model."""
    config = with_steps(config, ENDLESS)
    run = Run(config, Path("."), make_fabric(config.loop), Silent(), task)
    run.updater.stepper.train()
    batches = list(islice(run.task.batches("train", 1), BATCHES))

    def call() -> None:
        run.updater.carry = None
        for batch in batches:
            run.updater.update([batch])

    return call


def one_step(unit: str, config: RunConfig, task: Task, slow: dict[str, str]) -> Call:
    """Return a call that reads one step of one stream with the layers of the model.

    slow   gets a note if that is not one native call
    """
    settings = config.model
    first = task.with_model(settings).build().stack[0]
    layers = UNITS[unit](
        first.input_size,
        settings.hidden_size,
        settings.num_layers,
        bidirectional=first.bidirectional,
        **settings.unit_options,
    )
    session, x = stream(layers.eval()), torch.randn(1, first.input_size)
    if session.native is None:
        slow[unit] = SLOW
    return lambda: session(x)


class Int8(NamedTuple):
    """The figure of the test in int8, and the bytes of all tensors of the model."""

    value: float
    size: int


def in_int8(folder: Path, figure: str) -> Int8:
    """Evaluate the model of a run in int8."""
    run = load(folder)
    small = dataclasses.replace(run, model=quantize(run.model))
    return Int8(small.evaluate("test")[figure], int8_size(run.model))
