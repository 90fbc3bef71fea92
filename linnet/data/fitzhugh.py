"""The FitzHugh-Nagumo system, a model of a neuron with a fast and a slow variable, to be predicted.

Rusch et al. (2022, LEM), section 4:

    v' = v - v^3 / 3 - w + I          I = 0.5
    w' = tau (v + a - b w)            tau = 0.02, a = 0.7, b = 0.8

from v uniform in [-1, 1) and w = 0, over 400 units of time. A sequence has T steps at equal distances: its
input is v, its target v at the next step. w is not shown, so a network has to find it out.

With the same seed the values at the start are those of the authors' code: first those for training, then
those for validation and the test. Differs from the authors' code in the solver: theirs is scipy's RK45 with
its default tolerance of 0.001, which moves the spikes in time: v is up to 0.6 off. Here the error is below
1e-7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from linnet.data.batches import epoch_generator
from linnet.data.errors import DataError
from linnet.data.memory import MOST_STEPS, SPLITS, SequenceBatch, check_range

TIME = 400.0
CURRENT, TAU, A, B = 0.5, 0.02, 0.7, 0.8
# A step of Runge and Kutta's method of order 4 is no longer than this: its error is then below 1e-7.
LONGEST_STEP = 0.025


@dataclass(frozen=True)
class FitzHughNagumo:
    """Sequences of T steps: v, and v at the next step.

    span        T
    sequences   how many sequences the training set has
    """

    span: int = 1000
    sequences: int = 128

    one_hot = False
    last = False
    real = True
    input_size, output_size = 1, 1

    def __post_init__(self) -> None:
        check_range("the span T", self.span, 2, MOST_STEPS)
        check_range("the number of sequences", self.sequences, 1, MOST_STEPS)

    @property
    def length(self) -> int:
        return self.span

    @property
    def baseline(self) -> float:
        """The loss of repeating v, over the possible values at the start."""
        v = solve(np.linspace(-1, 1, 65), self.span)
        return float(np.square(np.diff(v, axis=0)[1:]).mean())

    def guessed(self, targets: Tensor) -> float:
        """Return the loss of repeating v; at the first step, whose v is no target, the mean of the others."""
        return float(targets.double().diff(dim=0).square().mean()) * targets.numel()

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    def batches_per_epoch(self, batch: int) -> int:
        if batch > self.sequences:
            raise DataError(
                f"a batch of {batch} is larger than the training set of {self.sequences:,} sequences"
            )
        return self.sequences // batch

    def training(self, batch: int, seed: int, epoch: int = 1, first: int = 0) -> Iterator[SequenceBatch]:
        """Yield every sequence once, in an order that depends on the seed and the epoch only."""
        v = self.solved(seed, 0, self.sequences)
        drawn = torch.randperm(self.sequences, generator=epoch_generator(seed, epoch))
        for index in range(first, self.batches_per_epoch(batch)):
            yield as_batch(v[:, drawn[index * batch : (index + 1) * batch]], index)

    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[SequenceBatch]:
        """Yield the same sequences at each call; training never shows them."""
        before = self.sequences + (SPLITS.index(split) - 1) * examples
        v = self.solved(seed, before, examples)
        for index, start in enumerate(range(0, examples, batch)):
            yield as_batch(v[:, start : start + batch], index)

    def solved(self, seed: int, first: int, count: int) -> Tensor:
        """v, [T + 1, count], of the sequences from number `first` on."""
        return solved(seed, first, count, self.span)


@lru_cache(maxsize=3)  # one for each split
def solved(seed: int, first: int, count: int, span: int) -> Tensor:
    starts = np.random.RandomState(seed).uniform(-1, 1, first + count)[first:]
    return torch.from_numpy(solve(starts, span).astype(np.float32))


def as_batch(v: Tensor, index: int) -> SequenceBatch:
    return SequenceBatch(v[:-1, :, None], v[1:], index)


# ------------------------------------------------------------------------------------------ solver


def solve(v: np.ndarray, span: int, time: float = TIME) -> np.ndarray:
    """Return v at `span` + 1 equally distant times from 0 to `time`, [span + 1, N], from v [N] and w = 0."""
    inner = int(np.ceil(time / span / LONGEST_STEP))
    state, step = np.stack([v, np.zeros_like(v)]), time / span / inner
    kept = [state[0]]
    for _ in range(span):
        for _ in range(inner):
            state = runge_kutta(state, step)
        kept.append(state[0])
    return np.stack(kept)


def runge_kutta(state: np.ndarray, step: float) -> np.ndarray:
    """One step of the classical method of order 4."""
    k1 = slope(state)
    k2 = slope(state + step / 2 * k1)
    k3 = slope(state + step / 2 * k2)
    k4 = slope(state + step * k3)
    return state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def slope(state: np.ndarray) -> np.ndarray:
    v, w = state
    return np.stack([v - v**3 / 3 - w + CURRENT, TAU * (v + A - B * w)])
