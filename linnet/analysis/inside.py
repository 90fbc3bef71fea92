"""The states of a trained model of a memory task: how its memory changes, how far back gradients reach."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.analysis.runs import Recorded
from linnet.models.sequence import SequenceModel
from linnet.tasks import TASKS

SEQUENCES = 3
"""The number of consecutive sequences that are shown if the state is kept between them."""


class Changes(NamedTuple):
    sizes: Tensor  # [steps, memory cells], how much each cell changed
    starts: list[int]  # the step at which each sequence starts
    answers: list[int]  # the step of the first answer to each sequence


def trained(runs: Sequence[Recorded]) -> list[Recorded]:
    """Return the runs that have a checkpoint of a sequence model."""
    return [
        run for run in runs if TASKS[run.config.task].is_sequence_model and (run.folder / "best").exists()
    ]


def unroll(model: SequenceModel, x: Tensor, state: Any = None) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """Return the answer after the last step, and the tensors of the state after every step."""
    states = []
    for step in model.read(x):
        y, state = model.rnn(step[None], state)
        states.append(tuple(state) if isinstance(state, tuple) else (state,))
    return model.output(y[-1]), states


@torch.no_grad()
def memory_changes(task: Any, model: SequenceModel) -> Changes:
    """Return the changes in one sequence, or in a few consecutive ones if the state is kept between them."""
    batches = list(
        islice(task.source.evaluation("test", 1, task.seed, SEQUENCES), min(task.reset_every, SEQUENCES))
    )
    lengths = [len(batch.inputs) for batch in batches]
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    _, states = unroll(model, torch.cat([batch.inputs for batch in batches]))
    memory = torch.stack([named[-1][-1, 0] for named in states])
    before = torch.cat([torch.zeros_like(memory[:1]), memory[:-1]])
    answers = [
        start + first_answer(batch.targets, length)
        for start, batch, length in zip(starts, batches, lengths, strict=True)
    ]
    return Changes((memory - before).abs(), starts, answers)


def first_answer(targets: Tensor, length: int) -> int:
    """Return the first step whose target needs memory: it is neither a blank nor ignored."""
    if len(targets) < length:
        return length - 1
    return int((targets[:, 0] > 0).nonzero()[0])


def reach(task: Any, model: SequenceModel, examples: int = 16) -> Tensor:
    """Return how much the last answer depends on the state d steps before it, for d = 1, 2, ...: [steps - 1].

    This is the norm of the Jacobian, d answer / d state. Its square is the mean of |v J|^2 over random signs
    v. Drawing one v for each of the `examples` needs one backward pass instead of one for each output.
    """
    batch = next(iter(task.source.evaluation("test", examples, task.seed, examples)))
    with torch.enable_grad():
        answer, states = unroll(model, batch.inputs)
        signs = torch.randint(0, 2, answer.shape, generator=torch.Generator().manual_seed(0)) * 2.0 - 1
        # The answer is computed from the output of the last step, not from the last state.
        before = [part for parts in states[:-1] for part in parts]
        gradients = torch.autograd.grad((answer * signs).sum(), before, materialize_grads=True)
    squares = torch.stack([gradient.square().sum() for gradient in gradients]) / answer.shape[0]
    return squares.unflatten(0, (-1, len(states[0]))).sum(1).sqrt().flip(0)
