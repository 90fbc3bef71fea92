"""Sequences that move a state among a few, generated on demand; the answer is the state after the last step.

    parity     bits: whether the number of ones is even or odd
    pairs      bits: whether the number of changes, 01 and 10, is even or odd
    cycle      moves by -1, 0 or +1 on a cycle of 5 places: the place
    modular    digits 0 to 4 and the operators + - *, without brackets: the value modulo 5

These are the regular tasks of Delétang et al. (2022). A network may fit the lengths of its training without
tracking the state. So training and validation have lengths from `shortest` to `longest`, and the test has
lengths from `longest` to `test_longest`. All sequences of a batch have one length: training draws it for each
batch, and an evaluation spreads its batches evenly over the lengths.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from linnet.data.memory import MOST_STEPS, SPLITS, Endless, SequenceBatch, check_range

MODULUS = 5
EVEN_OR_ODD = ("even", "odd")
REMAINDERS = tuple(map(str, range(MODULUS)))


@dataclass(frozen=True)
class Tracking(Endless):
    """What the tasks share.

    shortest, longest   the lengths in training and validation
    test_longest        the test has lengths from `longest` to this
    """

    shortest: int = 1
    longest: int = 40
    test_longest: int = 256

    symbols: ClassVar[str]  # the inputs as characters, in the order of their classes
    answers: ClassVar[tuple[str, ...]]  # the states, in the order of their classes
    one_hot: ClassVar[bool] = True
    last: ClassVar[bool] = True
    real: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_range("the shortest length", self.shortest, 1, MOST_STEPS)
        check_range("the longest length of training", self.longest, self.shortest, MOST_STEPS)
        check_range("the longest length of the test", self.test_longest, self.longest, MOST_STEPS)

    @abstractmethod
    def final_states(self, inputs: np.ndarray) -> np.ndarray:
        """Return the states [B] after inputs [T, B]."""

    @property
    def input_size(self) -> int:
        return len(self.symbols)

    @property
    def output_size(self) -> int:
        return len(self.answers)

    @property
    def length(self) -> int:
        """The most steps of a sequence in training."""
        return self.longest

    @property
    def baseline(self) -> float:
        """The loss of an answer that takes all states for equally likely."""
        return math.log(self.output_size)

    def guessed(self, targets: Tensor) -> float:
        return targets.numel() * self.baseline

    def draw(self, random: np.random.RandomState, batch: int) -> np.ndarray:
        return self.draw_inputs(random, random.randint(self.shortest, self.longest + 1), batch)

    def draw_inputs(self, random: np.random.RandomState, length: int, batch: int) -> np.ndarray:
        """Return inputs [length, batch]."""
        return random.randint(0, self.input_size, size=(length, batch))

    def lay_out(self, drawn: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(drawn), torch.from_numpy(self.final_states(drawn)[None])

    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[SequenceBatch]:
        random = np.random.RandomState([seed, 1 + SPLITS.index(split)])
        first, last = (self.longest, self.test_longest) if split == "test" else (self.shortest, self.longest)
        lengths = np.linspace(first, last, math.ceil(examples / batch)).round().astype(int).tolist()
        for index, length in enumerate(lengths):
            yield SequenceBatch(*self.lay_out(self.draw_inputs(random, length, batch)), index)


@dataclass(frozen=True)
class Parity(Tracking):
    """Whether the number of ones is even or odd."""

    symbols = "01"
    answers = EVEN_OR_ODD

    def final_states(self, inputs: np.ndarray) -> np.ndarray:
        return inputs.sum(0) % 2


@dataclass(frozen=True)
class EvenPairs(Tracking):
    """Whether the number of pairs 01 and 10 of neighbours is even or odd."""

    symbols = "01"
    answers = EVEN_OR_ODD

    def final_states(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs[1:] != inputs[:-1]).sum(0) % 2


@dataclass(frozen=True)
class Cycle(Tracking):
    """The place on a cycle after moves back (-), none (0) and forward (+), from place 0."""

    symbols = "-0+"
    answers = REMAINDERS

    def final_states(self, inputs: np.ndarray) -> np.ndarray:
        return (inputs - 1).sum(0) % MODULUS


@dataclass(frozen=True)
class Modular(Tracking):
    """The value of an expression without brackets; products come before sums. An even length loses a step."""

    symbols = "01234+-*"
    answers = REMAINDERS

    def draw_inputs(self, random: np.random.RandomState, length: int, batch: int) -> np.ndarray:
        inputs = random.randint(0, MODULUS, size=(length - 1 + length % 2, batch))
        inputs[1::2] = random.randint(MODULUS, self.input_size, size=inputs[1::2].shape)
        return inputs

    def final_states(self, inputs: np.ndarray) -> np.ndarray:
        minus, times = self.symbols.index("-"), self.symbols.index("*")
        total, term = np.zeros_like(inputs[0]), inputs[0]
        for operator, digit in zip(inputs[1::2], inputs[2::2], strict=True):
            product = operator == times
            total = np.where(product, total, total + term) % MODULUS
            term = np.where(product, term * digit, np.where(operator == minus, -digit, digit)) % MODULUS
        return (total + term) % MODULUS
