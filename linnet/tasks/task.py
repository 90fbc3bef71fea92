"""What the training loop asks of a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class StepResult(NamedTuple):
    """What a batch costs, and what the next one starts from."""

    objective: Tensor  # a mean over what the batch counts, with all penalties; to be differentiated
    nll: Tensor  # the sum of the loss over what is counted, without penalties and without a graph
    count: int  # type: ignore[assignment]  # how much is counted
    tokens: int  # how much was read, all steps of all sequences: what a speed is of
    metrics: dict[str, float]  # further figures of this batch
    carry: Any  # the recurrent state, without a graph; None where batches are independent


class Task(Protocol):
    """A model to build, batches to train it by, and figures to judge it by."""

    name: str

    def build(self) -> nn.Module:
        """A model in its first state."""

    def training(self, epoch: int, first: int = 0, rank: int = 0, world: int = 1) -> Iterator[Any]:
        """The batches of an epoch from number `first` on: what process `rank` of `world` reads of them.

        They depend on the task and on `epoch` alone, so that a run can go on in the middle.
        """

    def batches_per_epoch(self, epoch: int) -> int | None:
        """How many they are; None if the task has no end."""

    def step(self, model: nn.Module, batch: Any, carry: Any) -> StepResult:
        """The loss of a batch; `carry` is that of the batch before, None at the start of an epoch."""

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """The figures of a model on "train", "valid" or "test"; "loss" among them, the less the better."""

    def describe(self) -> dict[str, Any]:
        """What a checkpoint must have been made for to fit this task."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards the model is in the mode it was in."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)
