"""The one evaluation loop, for every task and for one process or several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from linnet.base.options import choose
from linnet.tasks.base import Metrics, Task


def evaluate(task: Task, model: nn.Module, split: str, fabric: Any = None) -> dict[str, float]:
    """Return the figures of a model on a split."""
    return collect(task, model, split, fabric).compute()


@torch.no_grad()
def collect(task: Task, model: nn.Module, split: str, fabric: Any = None) -> Metrics:
    """Return what the task's metrics have collected from all batches of a split.

    `fabric` is Lightning's, of a run: each of its processes evaluates some of the sequences, and all get the
    figures of all of them.
    """
    choose("split", split, task.splits)
    rank, world = (fabric.global_rank, fabric.world_size) if fabric else (0, 1)
    with evaluating(model), fabric.autocast() if fabric else nullcontext():
        found = run_batches(task, model, shares(task.batches(split), rank, world))
    return merged(found, world)


def run_batches(task: Task, model: nn.Module, batches: Iterator[Any]) -> Metrics:
    device = next(model.parameters()).device
    metrics, carry = task.metrics(), None
    for batch in batches:
        result = task.step(model, batch.to(device), carry)
        carry = result.carry
        metrics.update(result)
    return metrics


def shares(batches: Iterator[Any], rank: int, world: int) -> Iterator[Any]:
    """Yield what process `rank` evaluates of each batch; a small batch has no share for the last ones."""
    if world == 1:
        yield from batches
        return
    for batch in batches:
        sharing = min(world, len(batch))
        if rank < sharing:
            yield batch.columns(rank, sharing)


def merged(own: Metrics, world: int) -> Metrics:
    """Return what all processes have found, in the order of their ranks: the same in each of them."""
    if world == 1:
        return own
    found: list[Any] = [None] * world
    torch.distributed.all_gather_object(found, own)
    for other in found[1:]:
        found[0].merge(other)
    return found[0]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within this, the model is in evaluation mode; afterwards it is in the mode that it was in."""
    mode = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(mode)
