"""The one evaluation loop, for every task and for one process or several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from linnet.base.options import choose
from linnet.recurrent.modes import evaluating
from linnet.tasks.base import Task
from linnet.tasks.results import Chart, Metrics


def evaluate(task: Task, model: nn.Module, split: str, fabric: Any = None) -> dict[str, float]:
    """Return the figures of a model on a split."""
    return collect(task, model, split, fabric).compute()


@torch.no_grad()
def collect(task: Task, model: nn.Module, split: str, fabric: Any = None) -> Metrics:
    """Return the task's metrics after all batches of a split.

    fabric   Lightning's Fabric of a run: each of its processes evaluates a part of the sequences, and all
             processes get the metrics of all sequences
    """
    choose("split", split, task.splits)
    rank, world = (fabric.global_rank, fabric.world_size) if fabric else (0, 1)
    with evaluating(model), fabric.autocast() if fabric else nullcontext():
        metrics = run_batches(task, model, shares(task.batches(split), rank, world))
    return merged(metrics, world)


@torch.no_grad()
def charts(task: Task, model: nn.Module, split: str, metrics: Metrics) -> list[Chart]:
    """Return the task's charts of a split, for the metrics that `collect` returned."""
    with evaluating(model):
        return task.charts(model, split, metrics)


def run_batches(task: Task, model: nn.Module, batches: Iterator[Any]) -> Metrics:
    device = next(model.parameters()).device
    metrics, carry = task.metrics(), None
    for batch in batches:
        result = task.step(model, batch.to(device), carry)
        carry = result.carry
        metrics.update(result)
    return metrics


def shares(batches: Iterator[Any], rank: int, world: int) -> Iterator[Any]:
    """Yield the share of process `rank` of each batch; of a small batch, the last processes have none."""
    if world == 1:
        yield from batches
        return
    for batch in batches:
        sharing = min(world, len(batch))
        if rank < sharing:
            yield batch.columns(rank, sharing)


def merged(own: Metrics, world: int) -> Metrics:
    """Return the metrics of all processes, merged in the order of their ranks; all get the same result."""
    if world == 1:
        return own
    gathered: list[Any] = [None] * world
    torch.distributed.all_gather_object(gathered, own)
    first, *others = gathered
    for other in others:
        first.merge(other)
    return first
