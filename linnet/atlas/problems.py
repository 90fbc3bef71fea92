"""The problems of the atlas: a task with its settings, in a quick form and in a full one.

A run of the quick form takes about a second and a run of the full form about half a minute on one core. All
models have two layers; a problem has one budget of parameters and one learning rate for all units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from linnet.atlas.samples import tagged_sample, text_sample, verse_sample
from linnet.base.suggest import no_such
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS
from linnet.tasks.results import Figure

BASELINE_UNIT = "lstm"
"""Equal time is the time that this unit takes for the updates of a problem."""
NEEDED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "quick": {"cfc": {"backbone_units": 16}, "ltc": {"implicit": True}, "nru": {"memory_size": 16}},
    "full": {"cfc": {"backbone_units": 32}, "ltc": {"implicit": True}},
}
"""Options other than the defaults: LTC divides by sums that may be 0 otherwise; the usual backbone of CfC and
the usual memory of NRU would take most of the parameters, or more than there are."""
COMMON = {
    **{"device": "cpu", "threads": 1, "num_layers": 2, "schedule": "linear", "patience": 0},
    **{"log_every": 10**9, "checkpoint_seconds": 0.0},
}
VALIDATIONS = 4
"""Of a run; the best checkpoint is tested."""
SEEDS = {"quick": (1, 2, 3), "full": (1, 2, 3, 4, 5)}
FORMS = tuple(SEEDS)

REMEMBER, TRACK, NUMBERS, TEXT = "remember", "track a state", "numbers and signals", "text"


class Form(NamedTuple):
    """The settings of one form, with `steps`, the updates at equal parameters."""

    budget: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """A task with its settings.

    figure     the figure of the test that is the result
    baseline   the baseline of the task, as `Task.baselines` names it, that a result must beat
    sample     writes the file that the quick form reads, and returns its settings
    in_quick   whether the quick form has this problem
    """

    name: str
    task: str
    kind: str
    about: str
    quick: Form
    full: Form
    figure: str = "accuracy"
    baseline: str = "memoryless"
    sample: Callable[[Path], Mapping[str, Any]] | None = None
    in_quick: bool = True
    shared: Mapping[str, Any] = field(default_factory=dict)

    def form(self, name: str) -> Form:
        return self.quick if name == "quick" else self.full

    def config(self, form: str, files: Path) -> RunConfig:
        """Return the settings that all units share; `files` is the folder of the samples."""
        chosen, task = self.form(form), TASKS[self.task]
        own = {**self.shared, **chosen.settings}
        if form == "quick" and self.sample is not None:
            own |= self.sample(files)
        return override(RunConfig(task=self.task), task.implied({**task.defaults, **COMMON, **own}))

    def main_figure(self, config: RunConfig) -> Figure:
        return next(each for each in TASKS[self.task].figures(config.data) if each.name == self.figure)


RECALL: dict[str, Any] = {"batch": 64, "lr": 0.01, "span": 10, "recalled": 3, "steps": 300}
LONG_RECALL: dict[str, Any] = {"batch": 64, "lr": 0.003, "steps": 3000, "eval_examples": 1000}
TRACKING = Form(
    5_000,
    {
        **{"longest": 10, "test_longest": 20, "lr": 0.01, "batch": 128, "steps": 300},
        **{"eval_batch": 100, "eval_examples": 1000},
    },
)
LONG_TRACKING = Form(20_000, {"longest": 40, "test_longest": 160, "lr": 0.003, "steps": 3000})
LENGTHS = "The test has longer sequences than training: the result shows whether the unit tracks the state."
PIXELS = Form(5_000, {"lr": 0.01, "batch": 64, "steps": 150})
MANY_PIXELS = Form(20_000, {"lr": 0.003, "batch": 64, "steps": 800, "eval_examples": 2000})
SAMPLED = "The quick form reads a sample of verses."

PROBLEMS = {
    each.name: each
    for each in (
        Problem(
            "copying",
            task="memory.copy",
            kind=REMEMBER,
            about="Read symbols, wait, and write them again in their order.",
            quick=Form(5_000, RECALL),
            full=Form(20_000, {**LONG_RECALL, "span": 50, "recalled": 10}),
        ),
        Problem(
            "selective copying",
            task="memory.selective",
            kind=REMEMBER,
            about="Write the symbols that were scattered among blanks, in their order.",
            quick=Form(5_000, RECALL),
            full=Form(20_000, {**LONG_RECALL, "span": 64, "recalled": 8}),
        ),
        Problem(
            "adding",
            task="memory.adding",
            kind=REMEMBER,
            about="Add the two marked numbers of a sequence; right is an error below 0.04.",
            quick=Form(5_000, {"span": 16, "lr": 0.01, "batch": 64, "steps": 300}),
            full=Form(20_000, {**LONG_RECALL, "span": 100}),
        ),
        Problem(
            "parity",
            task="memory.parity",
            kind=TRACK,
            about=f"Is the number of ones so far even or odd? {LENGTHS}",
            quick=TRACKING,
            full=LONG_TRACKING,
        ),
        Problem(
            "even pairs",
            task="memory.pairs",
            kind=TRACK,
            about=f"Is the number of changes between neighbouring bits even or odd? {LENGTHS}",
            quick=TRACKING,
            full=LONG_TRACKING,
            in_quick=False,
        ),
        Problem(
            "cycle",
            task="memory.cycle",
            kind=TRACK,
            about=f"The place after moves forward and back on a cycle of five. {LENGTHS}",
            quick=TRACKING,
            full=LONG_TRACKING,
        ),
        Problem(
            "modular arithmetic",
            task="memory.modular",
            kind=TRACK,
            about=f"The value of sums and products modulo 5. {LENGTHS}",
            quick=TRACKING,
            full=LONG_TRACKING,
            in_quick=False,
        ),
        Problem(
            "small digits",
            task="memory.smnist",
            kind=NUMBERS,
            about="Handwritten digits of 8 x 8 pixels, one pixel at a time (scikit-learn's digits).",
            quick=PIXELS,
            full=Form(20_000, {"lr": 0.003, "batch": 64, "steps": 2500}),
            shared={"images": "digits"},
        ),
        Problem(
            "sequential MNIST",
            task="memory.smnist",
            kind=NUMBERS,
            about="Handwritten digits of 28 x 28 pixels, one pixel at a time.",
            quick=PIXELS,
            full=MANY_PIXELS,
            shared={"images": "mnist"},
            in_quick=False,
        ),
        Problem(
            "permuted MNIST",
            task="memory.psmnist",
            kind=NUMBERS,
            about="The same with the pixels in a fixed random order.",
            quick=PIXELS,
            full=MANY_PIXELS,
            shared={"images": "mnist"},
            in_quick=False,
        ),
        Problem(
            "forecasting",
            task="forecast",
            kind=NUMBERS,
            about="The next values of a series: sunspots of each year.",
            quick=Form(6_000, {"context": 24, "horizon": 6, "batch": 16, "origins": 4, "steps": 120}),
            full=Form(20_000, {"batch": 16, "origins": 16, "steps": 1500}),
            shared={"set": "sunspots", "lr": 0.005},
            figure="mase",
            baseline="seasonal naive",
        ),
        Problem(
            "labelled series",
            task="series",
            kind=NUMBERS,
            about="Which of nine speakers said two vowels, by 12 channels of numbers (Japanese vowels).",
            quick=Form(6_000, {"steps": 120}),
            full=Form(20_000, {"steps": 1500}),
            shared={"set": "japanese_vowels", "lr": 0.005},
            baseline="majority",
        ),
        Problem(
            "characters",
            task="lm",
            kind=TEXT,
            about=f"The next character of the King James Bible. {SAMPLED}",
            quick=Form(
                10_000, {"batch": 32, "length": 32, "eval_batch": 64, "embedding_size": 16, "steps": 250}
            ),
            full=Form(
                80_000, {"batch": 32, "length": 64, "eval_batch": 128, "embedding_size": 32, "steps": 3000}
            ),
            sample=text_sample,
            shared={"corpus": "kjv", "level": "char", "lr": 0.01},
            figure="bpc",
            baseline="unigram",
        ),
        Problem(
            "classification",
            task="classify",
            kind=TEXT,
            about=f"Is a verse of the Old Testament or of the New? {SAMPLED}",
            quick=Form(12_000, {"embedding_size": 8, "least": 8, "steps": 150}),
            full=Form(150_000, {"embedding_size": 32, "least": 8, "steps": 2000}),
            sample=verse_sample,
            shared={
                **{"set": "kjv", "lr": 0.005, "init": "unit", "counts": "none", "pooling": "last"},
                **{"bidirectional": False, "input_dropout": 0.1, "pooled_dropout": 0.1, "eval_batch": 128},
                **{"best_by": "accuracy"},
            },
            baseline="majority",
        ),
        Problem(
            "tagging",
            task="tag",
            kind=TEXT,
            about="The capitals and the punctuation of each word of a verse, from which both were removed; "
            f"the models read in both directions. {SAMPLED}",
            quick=Form(
                40_000, {"embedding_size": 8, "character_size": 8, "character_hidden": 8, "steps": 80}
            ),
            full=Form(
                400_000, {"embedding_size": 24, "character_size": 16, "character_hidden": 16, "steps": 2000}
            ),
            sample=tagged_sample,
            shared={"set": "kjv", "lr": 0.01, "eval_batch": 128},
            figure="f1",
            baseline="most frequent tag",
        ),
    )
}
CHARACTERS = "characters"
"""The problem whose models have a lens."""


def problem_names(form: str) -> list[str]:
    return [each.name for each in PROBLEMS.values() if each.in_quick or form == "full"]


def find_problems(names: Sequence[str]) -> list[Problem]:
    """Return the problems of these names; a hyphen may stand for a space."""
    known = {name.replace(" ", "-").lower(): each for name, each in PROBLEMS.items()}
    wanted = [name.replace(" ", "-").lower() for name in names]
    for name in wanted:
        if name not in known:
            raise ValueError(no_such("task of the atlas", name, known))
    return [known[name] for name in dict.fromkeys(wanted)]
