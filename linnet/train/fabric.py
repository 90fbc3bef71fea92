"""One process or several: Lightning Fabric, and what processes tell each other."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from linnet.base.slurm import join_step
from linnet.runs.config import LoopConfig
from linnet.runs.errors import Stopped, missing

SMALL = 10_000_000
"""A model of up to this many parameters is trained with one thread."""
TORCH_THREADS = torch.get_num_threads()
"""The number of threads that torch chose, before anything changed it."""


def make_fabric(settings: LoopConfig) -> Any:
    """Return the Fabric of this process, or of the processes that torchrun or srun has started."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise missing("training", "lightning-fabric") from None
    refuse_half_on_cpu(settings)
    world, local = processes(), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    fabric = Fabric(
        accelerator=settings.device,
        devices=local,
        num_nodes=max(world // local, 1),
        strategy="ddp" if world > 1 else "auto",
        precision=settings.precision,  # type: ignore[arg-type]
        plugins=surroundings(),
    )
    fabric.launch()
    if world > 1:
        leave_group_at_exit()
    if fabric.device.type == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return fabric


def surroundings() -> list[Any]:
    """Return how the processes of a run know each other, where Fabric would guess something else.

    In a job of SLURM it takes every process for one of as many as the job has tasks, with or without `srun`.
    """
    from lightning_fabric.plugins.environments import LightningEnvironment

    return [LightningEnvironment()] if "SLURM_JOB_ID" in os.environ and processes() == 1 else []


def processes() -> int:
    """Return the number of processes that make each run together."""
    join_step()
    return int(os.environ.get("WORLD_SIZE", 1))


def threads_of(settings: LoopConfig, parameters: int) -> int:
    """Return the number of CPU threads with which a process trains a model of this size.

    An idle thread of OpenMP spins, so on a busy machine two threads can be ten times as slow as one, while
    small models gain little from the second one. OMP_NUM_THREADS is a choice that the user has made.
    """
    one = parameters <= SMALL and "OMP_NUM_THREADS" not in os.environ
    return settings.threads or (1 if one else TORCH_THREADS)


@cache
def leave_group_at_exit() -> None:
    """The threads of gloo must end before the process does: otherwise it may abort after a complete run."""
    atexit.register(leave_group)


def leave_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def refuse_half_on_cpu(settings: LoopConfig) -> None:
    """Fabric would use bf16-mixed instead, and the run would not be what its settings say."""
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not torch.accelerator.is_available())
    if settings.precision == "16-mixed" and on_cpu:
        raise ValueError("precision 16-mixed needs a GPU and there is none; on a CPU use bf16-mixed")


def agreed(fabric: Any, decide: Callable[[], Any]) -> Any:
    """Return in every process what the first one decides; raise in every process what stops the first one."""
    outcome: Any = None
    if fabric.is_global_zero:
        try:
            outcome = decide()
        except Stopped as error:
            outcome = error
    outcome = fabric.broadcast(outcome) if fabric.world_size > 1 else outcome
    if isinstance(outcome, Stopped):
        raise outcome
    return outcome


def gathered(fabric: Any, own: Any) -> list[Any]:
    """Return in the first process what every process has, by rank."""
    if fabric.world_size == 1:
        return [own]
    found: list[Any] = [None] * fabric.world_size
    torch.distributed.gather_object(own, found if fabric.is_global_zero else None)
    return found


def summed(fabric: Any, values: list[float]) -> list[float]:
    """Return in every process the sums over all processes."""
    if fabric.world_size == 1:
        return values
    return fabric.all_reduce(torch.tensor(values, dtype=torch.float64), reduce_op="sum").tolist()
