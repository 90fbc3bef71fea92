"""State tracking: the parity of bits, even pairs, moves on a cycle, and arithmetic modulo 5.

Training and validation have short sequences, and the test has longer ones: the accuracy of the validation is
that in distribution, and the accuracy of the test shows whether the model generalises to longer sequences.
`linnet eval` and the report show it by length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from linnet.base.settings import Checked, option
from linnet.data import tracking
from linnet.data.errors import DataError
from linnet.data.tracking import Tracking
from linnet.data.vocabulary import Vocabulary
from linnet.tasks.memory import ACCURACY, BASELINE, ENDLESS, Memory, MemoryMetrics
from linnet.tasks.results import LOSS, Metrics, Section, StepResult
from linnet.tasks.typed import TypedText

MOST_ROWS = 8
"""Of the table of accuracies by length."""


@dataclass(frozen=True)
class TrackingData(Checked):
    """Sequences of several lengths, generated when they are needed."""

    shortest: int = option(1, "the shortest sequences of training and validation", least=1)
    longest: int = option(40, "the longest sequences of training and validation", least=1)
    test_longest: int = option(256, "the test has lengths from --longest to this", least=1)
    batch: int = option(128, "sequences in a batch, all of one length, over all processes", least=1)
    data_seed: int | None = option(None, "seed of the sequences (--seed)", least=0)
    eval_batch: int = option(50, "sequences of each length in an evaluation", least=1)
    eval_examples: int = option(2000, "sequences of an evaluation, the same each time", least=1)


class LengthMetrics(MemoryMetrics):
    """Also counts the right answers to sequences of each length."""

    def __init__(self) -> None:
        super().__init__()
        self.right_at: Counter[int] = Counter()
        self.asked_at: Counter[int] = Counter()

    def update(self, result: StepResult) -> None:
        super().update(result)
        judged, steps = result.outputs.judged, len(result.outputs.batch.inputs)
        self.right_at[steps] += judged.right
        self.asked_at[steps] += judged.asked

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield ranges of lengths, the number of sequences, and the accuracy."""
        lengths = sorted(self.asked_at)
        size = -(-len(lengths) // MOST_ROWS)
        for group in (lengths[start : start + size] for start in range(0, len(lengths), size)):
            right, asked = (sum(counts[each] for each in group) for counts in (self.right_at, self.asked_at))
            span = str(group[0]) if len(group) == 1 else f"{group[0]} to {group[-1]}"
            yield span, f"{asked:,}", ACCURACY.show(right / asked)


class StateTracking(Memory):
    """`predict` takes the inputs as characters, "1101", and returns the state after the last."""

    Data = TrackingData
    defaults = {**ENDLESS, "lr": 3e-3, "steps": 4000, "evaluate_every": 400}
    judged_by = (ACCURACY, LOSS, BASELINE)
    remedies = (
        "a longer training (--steps, --minutes), longer sequences (--longest), or a unit whose gates read "
        "its state (--unit lstm)"
    )
    source_class: ClassVar[type[Tracking]]
    pattern: ClassVar[str]  # what `predict` takes, as a regular expression
    example: ClassVar[str]

    @classmethod
    def source_of(cls, data: TrackingData) -> Tracking:
        return cls.source_class(data.shortest, data.longest, data.test_longest)

    @classmethod
    def title(cls, data: TrackingData) -> str:
        return f"{cls.name}, lengths {data.shortest} to {data.longest}"

    def metrics(self) -> Metrics:
        return LengthMetrics()

    def details(self, split: str, metrics: Any) -> list[Section]:
        about = f"Training has lengths from {self.data.shortest} to {self.data.longest}."
        head = ("length", "sequences", "accuracy")
        return [Section("Accuracy by length", about, head, tuple(metrics.rows()))]

    def guesses(self, split: str) -> dict[str, float]:
        return {"accuracy": self.most_frequent(split)}

    def encode(self, raw: Any) -> Tensor:
        text = "".join(raw.split() if isinstance(raw, str) else map(str, raw))
        if not re.fullmatch(self.pattern, text):
            raise DataError(f'{self.name} takes a sequence like "{self.example}"; got {raw!r}')
        return torch.tensor([[self.source_class.symbols.index(each)] for each in text])

    def answer(self, outputs: Tensor) -> str:
        return self.source_class.answers[int(outputs[-1].argmax())]

    def typed_text(self) -> TypedText:
        known = Vocabulary("char", tuple(self.source_class.symbols))
        return TypedText(known, labels=self.source_class.answers, example=self.example)


class Parity(StateTracking):
    """See linnet.data.tracking.Parity."""

    name, about = "memory.parity", "whether the number of ones is even or odd"
    source_class = tracking.Parity
    pattern, example = "[01]+", "11010"


class EvenPairs(StateTracking):
    """See linnet.data.tracking.EvenPairs."""

    name, about = "memory.pairs", "whether the number of changes between neighbouring bits is even or odd"
    source_class = tracking.EvenPairs
    pattern, example = "[01]+", "11010"


class Cycle(StateTracking):
    """See linnet.data.tracking.Cycle."""

    name, about = "memory.cycle", "the place after moves forward and back on a cycle of five"
    source_class = tracking.Cycle
    pattern, example = "[-0+]+", "++0-+"


class Modular(StateTracking):
    """See linnet.data.tracking.Modular."""

    name, about = "memory.modular", "the value of sums and products modulo 5"
    source_class = tracking.Modular
    pattern, example = "[0-4]([-+*][0-4])*", "1+2*3-4"
