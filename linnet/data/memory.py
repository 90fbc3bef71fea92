"""Tasks that ask for nothing but memory, made as they are needed and the same for the same seed.

    copying     k symbols, T - 1 blanks, a marker, then the k symbols again
    variable    the same, with T drawn anew for each batch
    denoising   k symbols strewn over T steps of blanks, a marker, then the k symbols
    adding      T numbers, two of them marked: their sum

The layout and the order of the draws of the first three are those of the NRU authors: with their seed the
batches are theirs, number for number. The adding problem is that of Hochreiter and Schmidhuber (1997) with
the two marks in the two halves of the sequence, as in Arjovsky et al. (2016).

Symbols are class numbers: 0 is the blank, 1 ... n are the symbols, n + 1 is the marker.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.data.batches import IGNORE, TimeBatch
from linnet.data.errors import DataError

BLANK = 0
SPLITS = ("train", "valid", "test")
MOST_STEPS, MOST_SYMBOLS = 1_000_000, 10_000


@dataclass(frozen=True, eq=False)
class SequenceBatch(TimeBatch):
    """Sequences side by side, with what is to be answered at every step or at the last one."""

    inputs: Tensor  # int64 [T, B], or real numbers [T, B, features]
    targets: Tensor  # [T, B], or [1, B] for the last step: int64 with IGNORE where none counts, or real
    index: int  # which batch of the epoch it is


class Endless(ABC):
    """Batches that are made as they are needed; no two are the same."""

    @abstractmethod
    def draw(self, random: np.random.RandomState, batch: int) -> Any:
        """The random numbers of one batch, in the order in which they are drawn."""

    @abstractmethod
    def lay_out(self, drawn: Any) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a batch."""

    def describe(self) -> dict[str, Any]:
        """What a trained model must have been trained for to fit."""
        return asdict(self)  # type: ignore[call-overload]

    def batches_per_epoch(self, batch: int) -> None:
        return None

    def training(self, batch: int, seed: int, epoch: int = 1, first: int = 0) -> Iterator[SequenceBatch]:
        """Without end, from number `first` on: what comes before it is drawn too, and thrown away."""
        return self.batches(batch, seed, first)

    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[SequenceBatch]:
        """The same ones whenever they are asked for, and none that training shows."""
        return islice(self.batches(batch, [seed, 1 + SPLITS.index(split)]), math.ceil(examples / batch))

    def batches(self, batch: int, seed: int | list[int], first: int = 0) -> Iterator[SequenceBatch]:
        random = np.random.RandomState(seed)
        for _ in range(first):
            self.draw(random, batch)
        index = first
        while True:
            yield SequenceBatch(*self.lay_out(self.draw(random, batch)), index)
            index += 1


@dataclass(frozen=True)
class Recall(Endless):
    """What the symbol tasks share.

    span            T
    symbols         n, how many different ones there are
    recalled        k, how many are to be remembered
    random_labels   what is asked for is drawn too and has nothing to do with what was shown: nothing can be
                    learnt, and training must not diverge (the paper's test of stability)
    """

    span: int = 100
    symbols: int = 8
    recalled: int = 10
    random_labels: bool = False

    one_hot = True
    last = False
    real = False

    def __post_init__(self) -> None:
        check_range("the number of symbols, n,", self.symbols, 2, MOST_SYMBOLS)
        check_range("the number of symbols to recall, k,", self.recalled, 1, MOST_STEPS)
        check_range("the span T", self.span, self.least_span, MOST_STEPS)

    @property
    def least_span(self) -> int:
        return 1

    @property
    def input_size(self) -> int:
        return self.symbols + 2

    @property
    def output_size(self) -> int:
        return self.symbols + 1

    def guessed(self, targets: Tensor) -> float:
        """The summed loss of who knows when to answer, and guesses: log n for each symbol."""
        asked = (targets != IGNORE) & (targets != BLANK)
        return int(asked.sum()) * math.log(self.symbols)

    def symbols_drawn(self, random: np.random.RandomState, *shape: int) -> np.ndarray:
        return random.randint(1, self.symbols + 1, size=shape)

    def labels(self, random: np.random.RandomState, shown: np.ndarray) -> np.ndarray:
        return self.symbols_drawn(random, *shown.shape) if self.random_labels else shown


@dataclass(frozen=True)
class Copying(Recall):
    """Copying memory, T + 2k steps, all of which count.

    variable   the lag is no longer T but drawn from 1 ... T for each batch
    """

    variable: bool = False

    @property
    def length(self) -> int:
        """The most steps that a sequence has."""
        return self.span + 2 * self.recalled

    @property
    def baseline(self) -> float:
        """The loss of who guesses when it is time to answer: k of the steps cost log n each."""
        lag = (1 + self.span) / 2 if self.variable else self.span
        return self.recalled * math.log(self.symbols) / (lag + 2 * self.recalled)

    def draw(self, random: np.random.RandomState, batch: int) -> Any:
        lag = random.randint(1, self.span + 1) if self.variable else self.span
        shown = self.symbols_drawn(random, self.recalled, batch)
        return lag, shown, self.labels(random, shown)

    def lay_out(self, drawn: Any) -> tuple[Tensor, Tensor]:
        lag, shown, labels = drawn
        inputs, targets = np.zeros((2, lag + 2 * len(shown), shown.shape[1]), dtype=np.int64)
        inputs[: len(shown)] = shown
        inputs[lag + len(shown) - 1] = self.symbols + 1
        targets[-len(shown) :] = labels
        return torch.from_numpy(inputs), torch.from_numpy(targets)


@dataclass(frozen=True)
class Denoising(Recall):
    """Symbols among blanks, T + 1 + k steps, the last k of which count."""

    @property
    def least_span(self) -> int:
        return self.recalled

    @property
    def length(self) -> int:
        return self.span + 1 + self.recalled

    @property
    def baseline(self) -> float:
        """Every step that counts is a guess."""
        return math.log(self.symbols)

    def draw(self, random: np.random.RandomState, batch: int) -> Any:
        shown = self.symbols_drawn(random, batch, self.recalled)
        places = [random.choice(self.span, self.recalled, replace=False) for _ in range(batch)]
        return np.sort(places, axis=1), shown, self.labels(random, shown)

    def lay_out(self, drawn: Any) -> tuple[Tensor, Tensor]:
        places, shown, labels = drawn
        inputs = np.zeros((self.length, len(shown)), dtype=np.int64)
        targets = np.full_like(inputs, IGNORE)
        inputs[places, np.arange(len(shown))[:, None]] = shown
        inputs[self.span] = self.symbols + 1
        targets[-self.recalled :] = labels.T
        return torch.from_numpy(inputs), torch.from_numpy(targets)


@dataclass(frozen=True)
class Adding(Endless):
    """T pairs of a number in [0, 1) and a mark; the sum of the two marked numbers, at the last step."""

    span: int = 100

    one_hot = False
    last = True
    real = True
    input_size, output_size = 2, 1

    def __post_init__(self) -> None:
        check_range("the span T", self.span, 2, MOST_STEPS)

    @property
    def length(self) -> int:
        return self.span

    @property
    def baseline(self) -> float:
        """The mean square error of always saying 1: twice the variance of a number uniform in [0, 1)."""
        return 2 * 1 / 12

    def guessed(self, targets: Tensor) -> float:
        return targets.numel() * self.baseline

    def draw(self, random: np.random.RandomState, batch: int) -> Any:
        half = self.span // 2
        numbers = random.uniform(size=(self.span, batch))
        return numbers, (random.randint(0, half, batch), random.randint(half, self.span, batch))

    def lay_out(self, drawn: Any) -> tuple[Tensor, Tensor]:
        numbers, marked = drawn
        columns = np.arange(numbers.shape[1])
        marks = np.zeros_like(numbers)
        for row in marked:
            marks[row, columns] = 1
        inputs = np.stack([numbers, marks], -1).astype(np.float32)
        # Of the numbers as the network gets them, so that a perfect answer has no error.
        sums = (inputs[..., 0] * inputs[..., 1]).sum(0, keepdims=True)
        return torch.from_numpy(inputs), torch.from_numpy(sums)


def check_range(what: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{what} must be a whole number; got {value!r}")
    if not least <= value <= most:
        raise DataError(f"{what} must be from {least:,} to {most:,}; got {value:,}")
