"""The settings of a run: frozen dataclasses, to JSON and back.

The fields of the parts become the options of the command line: `optimiser.lr` is `--lr`. So a name is used in
one part only, and each field has one line of help.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from linnet.base.settings import Checked, fingerprint, fit, option, refuse_unknown, settings_from
from linnet.base.suggest import did_you_mean
from linnet.tasks import TASKS

OPTIMISERS = ("adam", "adamw", "adamax", "adadelta", "adagrad", "sgd", "asgd", "nt-asgd")
SCHEDULES = ("linear", "constant", "after", "once", "plateau", "patient", "cosine", "noam", "gnmt")
LOGGERS = ("tensorboard", "csv", "mlflow", "wandb")
SEEDS = 2**62  # each process adds to it, and torch takes 64 bits
PRECISIONS = ("32-true", "64-true", "16-mixed", "bf16-mixed", "bf16-true")


@dataclass(frozen=True)
class OptimiserConfig(Checked):
    """How a gradient changes the weights."""

    optimiser: str = option(
        "adam", "nt-asgd: SGD, then ASGD once the validation stops improving", choices=OPTIMISERS
    )
    lr: float = option(0.003, "the learning rate before the schedule", least=0)
    weight_decay: float = option(
        0.0, "add this times the weight to its gradient, an L2 penalty; adamw: decay the weight", least=0
    )
    momentum: float = option(0.0, "of SGD", least=0, most=1)
    betas: tuple[float, float] = option((0.9, 0.999), "of Adam, AdamW and Adamax")
    rho: float = option(0.9, "of Adadelta: decay of its averages of squares", least=0, most=1)
    epsilon: float = option(1e-8, "of Adam, AdamW, Adamax, Adagrad and Adadelta (there often 1e-6)", least=0)
    epsilon_unscaled: bool = option(
        False, "Adam as in TensorFlow: epsilon is not scaled by the bias correction"
    )
    amsgrad: bool = option(False, "Adam and AdamW divide by the largest second moment so far")
    fused: bool = option(
        False,
        "Adam and AdamW: update all weights in one pass; faster for large tables, other rounding",
    )
    accumulator: float = option(0.0, "the initial value of Adagrad's sum of squares", least=0)
    non_monotone: int = option(
        5, "nt-asgd: compare a validation with the best one before the last n", least=1
    )
    clip: float = option(1.0, "the largest norm of the whole gradient (0: no limit)", least=0)
    clip_exact: bool = option(
        False, "clip as in TensorFlow: the norm becomes --clip; torch divides by the norm plus 1e-6"
    )
    loss_over: str = option(
        "tokens",
        "mean over tokens, or over sequences: the sum over the steps of a window",
        choices=("tokens", "sequences"),
    )
    accumulate: int = option(1, "batches whose gradients are averaged for one update", least=1)
    ema: float = option(
        0.0, "evaluate a moving average of the weights with this decay (0: the weights)", least=0, most=1
    )
    ema_warmup: bool = option(False, "the decay grows as (1 + t) / (10 + t) up to --ema")


@dataclass(frozen=True)
class ScheduleConfig(Checked):
    """How the learning rate changes during training."""

    schedule: str = option(
        "linear",
        "linear: rise for the first twentieth of the run, then fall to 0 at its planned end; "
        "after: decay each epoch after --decay-after; once: decay once after that epoch; "
        "plateau: decay if validation is no better; "
        "patient: decay if --decay-patience validations in a row are no better; "
        "cosine: warm up, then decay to 0 at the end of the run; noam: warm up, then decay as t^-1/2; "
        "gnmt: warm up to --peak times the learning rate, stay, then decay exponentially",
        choices=SCHEDULES,
    )
    decay: float = option(0.5, "after, once, plateau, patient: the factor of one decay", least=0)
    decay_patience: int = option(3, "patient: validations without improvement before a decay", least=1)
    decay_after: int = option(0, "after, once: the last epoch with the initial learning rate", least=0)
    warmup: int = option(
        0, "cosine, noam: updates until the learning rate is highest (gnmt: --peak times as many)", least=0
    )
    width: int = option(1, "noam: divide the learning rate by the root of this", least=1)
    peak: int = option(4, "gnmt: the highest learning rate is this many times --lr", least=1)
    decay_start: int = option(600_000, "gnmt: --peak times the update at which the decay begins", least=0)
    decay_end: int = option(
        1_200_000, "gnmt: --peak times the update at which the rate has fallen to half of --lr", least=1
    )
    scale_by_length: bool = option(False, "scale the learning rate by the length of the window")


@dataclass(frozen=True)
class LoopConfig(Checked):
    """How long to train, how often to evaluate and write, and on which device."""

    seed: int = option(1, "of the weights, of dropout and of window lengths", least=0, most=SEEDS)
    epochs: int = option(0, "passes over the training data (0: follow --updates, or --steps)", least=0)
    steps: int = option(0, "stop after this many updates (0: after --epochs)", least=0)
    updates: int = option(
        2000,
        "without --epochs and --steps: about how many updates to plan for a training set of 100 batches; "
        "for n times the data, sqrt(n) times as many",
        least=1,
    )
    minutes: float = option(
        0.0,
        "stop after this many minutes of training and validation (0: no limit); resume with more",
        least=0,
    )
    patience: int = option(
        6,
        "stop at a validation that is worse than the best one which is more than this many older (0: never)",
        least=0,
    )
    stop_below: float = option(0.0, "stop once the selecting metric is below this (0: never)", least=0)
    stop_above: float = option(0.0, "stop once the selecting metric is above this (0: never)", least=0)
    evaluate_every: int = option(
        0,
        "updates between validations (0: at the end of each epoch, and at least ten times in a run whose "
        "length follows --updates or --minutes)",
        least=0,
    )
    log_every: int = option(100, "updates between rows of the training loss", least=1)
    checkpoint_steps: int = option(0, "updates between checkpoints (0: only by time)", least=0)
    checkpoint_seconds: float = option(
        60.0, "seconds between checkpoints (0: only after validations)", least=0
    )
    select: str = option(
        "best", "test the weights of the best validation or the last", choices=("best", "last")
    )
    precision: str = option("32-true", "number format, by Fabric's names", choices=PRECISIONS)
    device: str = option(
        "auto", "auto: a GPU if there is one, else the CPU", choices=("auto", "cpu", "cuda", "mps")
    )
    threads: int = option(
        0, "CPU threads of each process (0: one, or torch's number for more than 10M parameters)", least=0
    )
    logger: tuple[str, ...] = option(
        (), "also write the metrics to these; metrics.csv is always written", choices=LOGGERS
    )
    start_from: str | None = option(None, "start with the best weights of this run (finetuning)")
    store: str = option("", "also copy the results to this URL of fsspec: s3://bucket/run, gs://, file://")
    store_checkpoints: bool = option(False, "copy the last checkpoint too, to resume on another machine")


LATER = (
    *("epochs", "steps", "updates", "minutes", "patience", "stop_below", "stop_above"),
    *("log_every", "checkpoint_steps", "checkpoint_seconds", "logger", "store", "store_checkpoints"),
)
"""The settings that may change when a run is resumed: how long it trains and how often it writes."""
HORIZON = ("epochs", "steps", "updates")
"""Of these, the ones on which the learning rate of the cosine schedule depends."""


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run. `data` and `model` are of the classes `Data` and `Model` of the task."""

    task: str = "lm"
    data: Any = None
    model: Any = None
    # None: the defaults, with those of the task.
    optimiser: OptimiserConfig = None  # type: ignore[assignment]
    schedule: ScheduleConfig = None  # type: ignore[assignment]
    loop: LoopConfig = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        defaults = TASKS[self.task].defaults
        for part, cls in parts(self.task).items():
            if getattr(self, part) is None:
                names = {each.name for each in dataclasses.fields(cls)}
                own = {name: value for name, value in defaults.items() if name in names}
                object.__setattr__(self, part, cls(**own))
        if self.schedule.scale_by_length and not hasattr(self.data, "length"):
            raise ValueError(f"scale_by_length needs windows of text with a --length; {self.task} has none")

    @property
    def fingerprint(self) -> str:
        return fingerprint(to_dict(self))


def parts(task: str) -> dict[str, type]:
    """The parts of the settings of a task, in the order in which help shows them."""
    shared = {"optimiser": OptimiserConfig, "schedule": ScheduleConfig, "loop": LoopConfig}
    return {"data": TASKS[task].Data, "model": TASKS[task].Model, **shared}


def options(task: str) -> Iterator[tuple[str, dataclasses.Field, Any]]:
    """Every option of a run: its part, its field and its type."""
    for part, cls in parts(task).items():
        hints = typing.get_type_hints(cls)
        for each in dataclasses.fields(cls):
            yield part, each, hints[each.name]


# ------------------------------------------------------------------------------------------ JSON


def to_dict(config: RunConfig) -> dict[str, Any]:
    return {"task": config.task} | {
        name: dataclasses.asdict(getattr(config, name)) for name in parts(config.task)
    }


def to_json(config: RunConfig) -> str:
    return json.dumps(to_dict(config), indent=2) + "\n"


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    task = values.get("task", "lm")
    if not isinstance(task, str):
        raise ValueError(f"task is the name of a task; got {task!r}")
    known = {"task": str, **parts(task)}
    refuse_unknown("a run", values, known)
    made = {name: settings_from(known[name], value) for name, value in values.items() if name != "task"}
    return RunConfig(task=task, **made)


def from_json(text: str) -> RunConfig:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the settings of a run are JSON; {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"the settings of a run are an object; got {type(values).__name__}")
    return from_dict(values)


# --------------------------------------------------------------------------------------- changing


def override(config: RunConfig, given: Mapping[str, Any]) -> RunConfig:
    """The same run with these fields changed, each by its own name: override(config, {"lr": 0.5})."""
    where = {each.name: (part, hint) for part, each, hint in options(config.task)}
    changed: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        if name not in where:
            raise ValueError(f"a run has no option {name!r}{did_you_mean(name, where)}")
        part, hint = where[name]
        changed.setdefault(part, {})[name] = fit(name, value, hint)
    new = {part: dataclasses.replace(getattr(config, part), **values) for part, values in changed.items()}
    return dataclasses.replace(config, **new)


def changeable(config: RunConfig) -> tuple[str, ...]:
    """Return the settings that may change when the run is resumed."""
    fixed = HORIZON if config.schedule.schedule == "cosine" else ()
    return tuple(name for name in LATER if name not in fixed)


def current(config: RunConfig, name: str) -> Any:
    """Return the value of an option of a run by its name."""
    part = next(part for part, each, _ in options(config.task) if each.name == name)
    return getattr(getattr(config, part), name)


def differences(a: RunConfig, b: RunConfig, ignore: tuple[str, ...] = ()) -> dict[str, tuple[Any, Any]]:
    """The fields in which two runs differ, with both values."""
    if a.task != b.task:
        return {"task": (a.task, b.task)}
    pairs = {
        e.name: (getattr(getattr(a, p), e.name), getattr(getattr(b, p), e.name))
        for p, e, _ in options(a.task)
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1] and name not in ignore}
