"""Sequences for memory tasks, generated on demand; the same seed gives the same sequences.

    copying     k symbols, T - 1 blanks, a marker, then the k symbols again
    variable    the same, with T drawn for each batch
    denoising   k symbols scattered over T steps of blanks, a marker, then the k symbols
    selective   k symbols scattered over T steps of blanks, then k markers, one for each of the k symbols
    adding      T numbers, two of them marked: their sum

The first three have the layout and the order of random draws of the NRU authors' code: with their seed the
batches are identical to theirs. Selective copying is that of Gu and Dao (2023) in the layout of Feng et al.
(2024), where the T steps contain the symbols. The adding problem is that of Hochreiter and Schmidhuber
(1997), with one mark in each half of the sequence, as in Arjovsky et al. (2016).

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
    """A batch of sequences with targets for every step or for the last one."""

    inputs: Tensor  # int64 [T, B], or real numbers [T, B, features]
    targets: Tensor  # [T, B], or [1, B] for the last step: int64 with IGNORE where none counts, or real
    index: int  # the number of the batch in its epoch


class Endless(ABC):
    """Batches that are generated on demand; all of them differ."""

    @abstractmethod
    def draw(self, random: np.random.RandomState, batch: int) -> Any:
        """Draw the random numbers of one batch."""

    @abstractmethod
    def lay_out(self, drawn: Any) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of a batch."""

    def describe(self) -> dict[str, Any]:
        """Return what must agree for a trained model to fit."""
        return asdict(self)  # type: ignore[call-overload]

    def batches_per_epoch(self, batch: int) -> None:
        return None

    def training(self, batch: int, seed: int, epoch: int = 1, first: int = 0) -> Iterator[SequenceBatch]:
        """Yield batches without end from number `first` on; earlier ones are drawn and discarded."""
        return self.batches(batch, seed, first)

    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[SequenceBatch]:
        """Yield the same batches at each call; training never shows them."""
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
    symbols         n, the number of different symbols
    recalled        k, the number of symbols to remember
    random_labels   the targets are drawn independently of the inputs: nothing can be learnt, and training
                    must not diverge (the paper's test of stability)
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
        """Return the summed loss of a model that answers at the right time and guesses: log n per symbol."""
        asked = (targets != IGNORE) & (targets != BLANK)
        return int(asked.sum()) * math.log(self.symbols)

    def symbols_drawn(self, random: np.random.RandomState, *shape: int) -> np.ndarray:
        return random.randint(1, self.symbols + 1, size=shape)

    def labels(self, random: np.random.RandomState, shown: np.ndarray) -> np.ndarray:
        return self.symbols_drawn(random, *shown.shape) if self.random_labels else shown


@dataclass(frozen=True)
class Copying(Recall):
    """Copying memory, T + 2k steps, all of which count.

    variable   the lag is drawn from 1 ... T for each batch
    """

    variable: bool = False

    @property
    def length(self) -> int:
        """The largest number of steps of a sequence."""
        return self.span + 2 * self.recalled

    @property
    def baseline(self) -> float:
        """The memoryless baseline: the loss is log n at k of the steps and 0 at the others."""
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
    def answer_inputs(self) -> list[int]:
        """The inputs after the first T: the marker, then blanks."""
        return [self.symbols + 1] + [BLANK] * self.recalled

    @property
    def baseline(self) -> float:
        """The memoryless baseline: every counted step is a guess."""
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
        inputs[self.span :] = np.array(self.answer_inputs)[:, None]
        targets[-self.recalled :] = labels.T
        return torch.from_numpy(inputs), torch.from_numpy(targets)


@dataclass(frozen=True)
class Selective(Denoising):
    """Selective copying: as denoising, but each of the last k steps is a marker. T + k steps."""

    @property
    def length(self) -> int:
        return self.span + self.recalled

    @property
    def answer_inputs(self) -> list[int]:
        return [self.symbols + 1] * self.recalled


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
        """The memoryless baseline, always 1: twice the variance of a number uniform in [0, 1)."""
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
        # Computed from the rounded numbers that the network reads, so that a perfect answer has no error.
        sums = (inputs[..., 0] * inputs[..., 1]).sum(0, keepdims=True)
        return torch.from_numpy(inputs), torch.from_numpy(sums)


def check_range(what: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{what} must be an integer; got {value!r}")
    if not least <= value <= most:
        raise DataError(f"{what} must be from {least:,} to {most:,}; got {value:,}")
