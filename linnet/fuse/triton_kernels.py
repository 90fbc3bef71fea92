"""From Triton source to kernels: made into functions, tuned and launched, or compiled ahead of time.

Triton is imported when the first kernel is made, and not before.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.fuse.backend import is_interpreted
from linnet.fuse.triton_source import Emitted, Place, Recipe, backward_source, forward_source


class Config(NamedTuple):
    """Channels of a program, the warps that share them, and how many steps are on their way at once."""

    block: int
    warps: int
    stages: int


# A step waits for its inputs longer than it computes, so what counts is how many bytes are on their way:
# enough programs for all multiprocessors, and the loads of coming steps begun before they are needed
# (stages; Triton moves them through shared memory). Such loads take four bytes a thread or more, which is
# why every configuration gives a thread two numbers: two of 16 bits are four bytes.
#   128 channels, 2 warps   the default
#    64 channels, 1 warp    twice the programs, for small batches and narrow layers
#   256 channels, 4 warps   half the programs, for large batches and wide layers
#   8 stages                more on its way at once, for memory that answers late
# The key by which a choice is remembered is the number of channels (and, by Triton itself, the dtypes).
# Neither the batch nor the length is part of it: both change from call to call, and tuning anew each time
# would cost more than it brings.
CONFIGS = (Config(128, 2, 4), Config(64, 1, 4), Config(256, 4, 4), Config(128, 2, 8))
TUNED_BY = ["size"]
# The interpreter's time goes by operations, however wide: all channels in one block.
INTERPRETED = Config(1024, 1, 1)

# Products and sums in one instruction, as on the CPU; said here, since Triton's default is about to change.
OPTIONS = {"enable_fp_fusion": True}


@cache
def emitted(recipe: Recipe, name: str) -> Emitted:
    return forward_source(recipe) if name == "forward" else backward_source(recipe)


@cache
def functions(source: str) -> dict[str, Any]:
    """What the source defines. Triton reads the source of a function anew: it finds it in linecache."""
    name = f"<linnet kernel {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "linnet.fuse.generated"}
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return namespace


@cache
def kernel(recipe: Recipe, name: str, both: bool) -> Any:
    """The kernel, which tunes itself at its first launch for a number of channels."""
    import triton

    function = functions(emitted(recipe, name).source)[f"{name}_both" if both else name]
    configs = (INTERPRETED,) if is_interpreted() else CONFIGS
    choices = [triton.Config(settings(c), num_warps=c.warps) for c in configs]
    return triton.autotune(choices, key=TUNED_BY)(function)


def settings(config: Config) -> dict[str, int]:
    return {"BLOCK": config.block, "STAGES": config.stages}


Tensors = Mapping[str, Tensor | None]


def launch(
    recipe: Recipe, name: str, sides: Sequence[Tensors], shape: tuple[int, int], when: tuple[int, int], **how: Any
) -> None:
    """One launch over [B, H] = shape for `sides`, the operands of one direction or of both.

    when    the step that is taken first and how many there are
    how     REVERSE (of a single side), KEEP
    """
    places = emitted(recipe, name).places
    arguments = [argument for side in sides for argument in flat(places, side)]
    (batch, size), (first, steps), both = shape, when, len(sides) > 1
    device = next(tensor for tensor in sides[0].values() if tensor is not None).device
    scalars = (steps, size) if both else (first, steps, size)

    def grid(meta: Mapping[str, int]) -> tuple[int, int]:
        return (batch * -(-size // meta["BLOCK"]), len(sides))

    # Triton launches on the current device, which need not be that of the operands.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel(recipe, name, both)[grid](*arguments, *scalars, **how, REAL=real_of(sides[0]), **OPTIONS)


def flat(places: Sequence[Place], tensors: Tensors) -> list[Any]:
    """Each operand and its strides."""
    arguments: list[Any] = []
    for place in places:
        tensor = tensors[place.key]
        strides = tensor.stride() if tensor is not None else (0,) * len(place.dims)
        arguments += [tensor, *strides]
    return arguments


def real_of(tensors: Tensors) -> Any:
    """Triton's name of the dtype of arithmetic: float64 for float64, float32 for all else."""
    import triton.language as tl

    dtypes = {t.dtype for t in tensors.values() if t is not None}
    return tl.float64 if torch.float64 in dtypes else tl.float32


# ------------------------------------------------------------------------------- ahead of time

TYPES = {
    **{torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"},
    torch.bool: "i1",
}
