"""Memory tasks: a source of sequences, and a model that answers about them.

The loss is the mean over the steps that the NRU authors count: all steps of copying, the last k of denoising,
the last step of images and of the adding problem (there, the square of the error).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_size, choose
from linnet.data.batches import IGNORE
from linnet.data.memory import BLANK, SPLITS, Batch
from linnet.models.language import detach
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.tasks.task import StepResult, evaluating

CLOSE = 0.04
"""How near a sum must be to count as right, by Hochreiter and Schmidhuber (1997)."""


class Source(Protocol):
    """Where sequences come from: linnet.data.memory makes them, linnet.data.digits reads them."""

    @property
    def input_size(self) -> int: ...
    @property
    def output_size(self) -> int: ...
    @property
    def one_hot(self) -> bool:
        """Whether the inputs are classes."""

    @property
    def last(self) -> bool:
        """Whether only the last step is asked for."""

    @property
    def real(self) -> bool:
        """Whether a number is asked for, and not a class."""

    @property
    def length(self) -> int:
        """The most steps of a sequence."""

    @property
    def baseline(self) -> float:
        """The mean loss of the best answers that remember nothing."""

    def guessed(self, targets: Tensor) -> float:
        """What such answers cost with these targets, summed."""

    def describe(self) -> dict[str, Any]:
        """What a trained model must have been trained for to fit."""

    def batches_per_epoch(self, batch: int) -> int | None: ...
    def training(self, batch: int, seed: int, epoch: int, first: int) -> Iterator[Batch]: ...
    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[Batch]: ...


class Judged(NamedTuple):
    """What the answers to a batch are worth."""

    objective: Tensor  # the mean loss over what counts, to be differentiated
    count: int  # type: ignore[assignment]  # how many steps count
    right: int  # right answers among those that ask for memory
    asked: int  # how many of these there are


class MemoryTask:
    """A source of sequences and a model.

    batch           sequences side by side
    eval_batch      the same in evaluation (batch)
    eval_examples   sequences of an evaluation (0: all that there are)
    reset_every     sequences after which the state starts anew; with more than 1, the network has to learn
                    to forget what was before (the paper's test of forgetting)
    seed            of the sequences
    """

    def __init__(
        self,
        name: str,
        source: Source,
        config: SequenceModelConfig,
        *,
        batch: int = 10,
        eval_batch: int | None = None,
        eval_examples: int = 200,
        reset_every: int = 1,
        seed: int = 1,
    ):
        check_size("batch", batch)
        check_size("reset_every", reset_every)
        check_size("eval_examples", eval_examples, least=0 if source.batches_per_epoch(batch) else 1)
        self.name, self.source, self.config, self.seed = name, source, config, seed
        self.batch, self.eval_batch = batch, eval_batch or batch
        self.eval_examples, self.reset_every = eval_examples, reset_every

    def build(self, device: str | None = None) -> SequenceModel:
        source = self.source
        return SequenceModel(
            source.input_size,
            source.output_size,
            self.config,
            one_hot=source.one_hot,
            last=source.last,
            device=device,
        )

    # ----------------------------------------------------------------------------------- training

    def training(self, epoch: int, first: int = 0, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        of_all = self.source.training(self.batch, self.seed, epoch, first)
        return of_all if world == 1 else (batch.columns(rank, world) for batch in of_all)

    def batches_per_epoch(self, epoch: int) -> int | None:
        return self.source.batches_per_epoch(self.batch)

    def step(self, model: nn.Module, batch: Batch, carry: Any) -> StepResult:
        judged, state = self.judge(model, batch, carry)
        nll, (steps, width) = judged.objective.detach() * judged.count, batch.inputs.shape[:2]
        metrics = {"accuracy": share(judged)}
        return StepResult(judged.objective, nll, judged.count, steps * width, metrics, state)

    def judge(self, model: nn.Module, batch: Batch, carry: Any) -> tuple[Judged, Any]:
        """The answers to a batch, and the state for the next one: None where it starts anew."""
        fresh, anew_next = (index % self.reset_every == 0 for index in (batch.index, batch.index + 1))
        answers, state = model(batch.inputs, None if fresh else carry)
        return self.compare(answers, batch.targets), None if anew_next else detach(state)

    def compare(self, answers: Tensor, targets: Tensor) -> Judged:
        if self.source.real:
            errors = answers.squeeze(-1) - targets.to(answers.dtype)
            right = int((errors.detach().abs() < CLOSE).sum())
            return Judged(errors.square().mean(), errors.numel(), right, errors.numel())
        loss = F.cross_entropy(answers.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
        counted = targets != IGNORE
        # A blank is right to say before it is time to answer, and asks for no memory.
        asked = counted if self.source.last else counted & (targets != BLANK)
        right = int((answers.detach().argmax(-1) == targets)[asked].sum())
        return Judged(loss, int(counted.sum()), right, int(asked.sum()))

    # --------------------------------------------------------------------------------- evaluation

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """loss and accuracy, over the same sequences each time; baseline: the loss there without a memory."""
        choose("split", split, SPLITS)
        with evaluating(model):
            return self.total(model, split)

    def total(self, model: nn.Module, split: str) -> dict[str, float]:
        device = next(model.parameters()).device
        loss, guessed, count, right, asked, carry = 0.0, 0.0, 0, 0, 0, None
        for batch in self.source.evaluation(split, self.eval_batch, self.seed, self.eval_examples):
            here = Batch(batch.inputs.to(device), batch.targets.to(device), batch.index)
            judged, carry = self.judge(model, here, carry)
            loss, count = loss + float(judged.objective) * judged.count, count + judged.count
            right, asked = right + judged.right, asked + judged.asked
            guessed += self.source.guessed(batch.targets)
        return {"loss": loss / count, "accuracy": right / asked, "baseline": guessed / count}

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, **self.source.describe(), "model": asdict(self.config)}


def share(judged: Judged) -> float:
    return judged.right / max(judged.asked, 1)
