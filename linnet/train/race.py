"""A race: language models of one width, each trained for the same number of seconds, in turn.

Every model trains for a second, then the next one, and so on round after round. Whatever else the machine
does slows all of them alike, and the speeds of one round can be compared. The seconds of a model are its time
budget, over which its learning rate falls.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from torch import Tensor, nn

from linnet.models.language import LanguageModel
from linnet.runs.config import RunConfig, override
from linnet.runs.load import keep_assets
from linnet.runs.records import Row, claim, make_folder, open_run
from linnet.tasks.baselines import Baseline
from linnet.tasks.language import Language
from linnet.train.clock import Clock
from linnet.train.fabric import make_fabric
from linnet.train.loop import Run
from linnet.train.progress import Silent
from linnet.train.speed import endless_updates
from linnet.units import LSTM

TORCH = "nn.LSTM"
"""The entrant that is torch's own layer."""
VALIDATED = 40_000
"""Tokens of the validation text that are read for a point of a curve; the test text is read as a whole."""
TURN = 1.0
"""Seconds for which one model trains before the next."""


class RaceTask(Language):
    """A language model whose validations take a fraction of a second."""

    def tokens(self, split: str) -> Tensor:
        found = super().tokens(split)
        return found[:VALIDATED] if split == "valid" else found

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        """None for each model: all have the same, which takes seconds."""
        return []


class TorchTask(RaceTask):
    """The same with torch's own nn.LSTM in place of linnet.LSTM, with the same initial weights."""

    def build(self) -> LanguageModel:
        model = super().build()
        model.layers = nn.ModuleList(TorchLayer.like(layer) for layer in model.stack)  # type: ignore[arg-type]
        return model


class TorchLayer(nn.LSTM):
    """torch's nn.LSTM as a layer of a model, whose parameters are those of linnet.LSTM."""

    @classmethod
    def like(cls, layer: LSTM) -> TorchLayer:
        made = cls(layer.input_size, layer.hidden_size)
        made.load_state_dict(layer.state_dict())
        return made

    def forward(self, x: Tensor, state: Any = None, mask: None = None) -> Any:  # type: ignore[override]
        return super().forward(x, state)


# ----------------------------------------------------------------------------------- the race


class Spread(NamedTuple):
    """The median of several ratios, and the range of the middle half of them."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(*quantiles([*values, *values], n=4, method="inclusive"))


class Point(NamedTuple):
    """A validation: after how many seconds of training, and the bits per character."""

    seconds: float
    bits: float


@dataclass
class Lane:
    """A model under way."""

    name: str
    run: Run
    updates: Iterator[Any]
    curve: list[Point] = field(default_factory=list)
    # Characters per second of each turn; None if the model had no time left for an update.
    speeds: list[float | None] = field(default_factory=list)
    result: Row = field(default_factory=dict)

    def train(self, seconds: float) -> None:
        """Train until the model has trained for `seconds` in all."""
        here = self.run.context.here
        tokens, before = here.tokens, here.seconds
        while here.seconds < seconds:
            next(self.updates)
            self.run.clock.read()
        passed = here.seconds - before
        self.speeds.append((here.tokens - tokens) / passed if passed else None)

    def validate(self) -> None:
        self.run.evaluate()
        self.run.updater.stepper.train()
        bits = self.run.context.here.history[-1] / math.log(2)
        self.curve.append(Point(self.run.context.here.seconds, bits))

    def finish(self) -> None:
        self.result = self.run.finish()
        self.run.recorder.close()


class TurnClock(Clock):
    """Counts the turns of one model only, without validations."""

    def read(self) -> None:
        self.context.here.spent = self.context.here.seconds


def speed_ratio(lane: Lane, baseline: Lane) -> Spread:
    """Return the speed of a model relative to that of another, of the same rounds."""
    rounds = zip(lane.speeds, baseline.speeds, strict=True)
    return Spread.of([own / other for own, other in rounds if own and other])


def race(
    config: RunConfig,
    units: Sequence[str],
    folder: Path,
    seconds: float,
    validations: int,
    validated: Callable[[list[Lane]], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Lane]:
    """Train a model of each unit for `seconds`, and of torch's nn.LSTM; return them with their curves.

    validated   is called after all models have been validated, and in the end after the test
    clock       returns the seconds in which the time of training is counted
    """
    config = override(config, {"minutes": seconds / 60})
    data = RaceTask(config.data, config.model, config.loop.seed)
    with ExitStack() as stack:
        lanes = [entered(stack, name, of_unit(config, name), folder / name, data) for name in (TORCH, *units)]
        rounds = max(1, round(seconds / TURN))
        due = {round(rounds * (number + 1) / validations) for number in range(validations)}
        for lane in lanes:
            lane.run.updater.now = clock
        for number in range(1, rounds + 1):
            first = number % len(lanes)
            for lane in lanes[first:] + lanes[:first]:
                lane.train(seconds * number / rounds)
            if number in due and number < rounds:
                for lane in lanes:
                    lane.validate()
                validated(lanes)
        for lane in lanes:
            lane.validate()
            lane.finish()
        validated(lanes)
    return lanes


def of_unit(config: RunConfig, name: str) -> RunConfig:
    return override(config, Language.implied({"unit": "lstm" if name == TORCH else name}))


def entered(stack: ExitStack, name: str, config: RunConfig, folder: Path, task: RaceTask) -> Lane:
    """Return a model at the start, and claim its folder."""
    task = copy.copy(task)
    task.__class__ = TorchTask if name == TORCH else RaceTask
    fabric = make_fabric(config.loop)
    # The first update loads kernels: another model makes it.
    next(endless_updates(Run(config, folder, fabric, Silent(), task)))
    run = Run(config, folder, fabric, Silent(), task)
    run.clock = TurnClock(run.context)
    make_folder(folder)
    stack.enter_context(claim(folder))
    open_run(folder, config)
    keep_assets(folder, run.task.assets())
    return Lane(name, run, endless_updates(run))
