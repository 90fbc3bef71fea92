"""Triton kernels from their source: tuned and launched, or compiled ahead of time.

Triton is imported when the first kernel is created, and not before.
"""

from __future__ import annotations

import hashlib
import linecache
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.base.forks import compiling
from linnet.triton import is_interpreted
from linnet.triton.loop import FLAGS, Emitted, Recipe, TensorArgument
from linnet.triton.source import backward_source, forward_source
from linnet.triton.step import SCALARS


class Config(NamedTuple):
    """The channels of a program, the warps that share them, and the steps whose loads overlap."""

    block: int
    warps: int
    stages: int


# A step waits longer for its inputs than it computes, so the number of bytes being loaded matters most:
# enough programs for all multiprocessors, and loads of later steps that start before they are needed
# (stages; Triton uses shared memory for them). Such loads need at least four bytes per thread, which is
# why every configuration gives a thread two numbers: two of 16 bits are four bytes.
#   128 channels, 2 warps   the default
#    64 channels, 1 warp    twice the programs, for small batches and narrow layers
#   256 channels, 4 warps   half the programs, for large batches and wide layers
#   8 stages                more loads at once, for memory with a high latency
# A choice is remembered for a number of channels (and, by Triton itself, for the dtypes). Neither the batch
# nor the length is part of the key: both change from call to call, and tuning again each time would cost more
# than it saves.
CONFIGS = (Config(128, 2, 4), Config(64, 1, 4), Config(256, 4, 4), Config(128, 2, 8))
TUNED_BY = ["size"]
# The interpreter's time depends on the number of operations, not on their width: all channels in one block.
INTERPRETED = Config(1024, 1, 1)

# Products and sums in one instruction, as on the CPU; set here, since Triton's default is going to change.
OPTIONS = {"enable_fp_fusion": True}


def configs_for(recipe: Recipe) -> tuple[Config, ...]:
    """The configurations to choose from; the first is the default."""
    if is_interpreted():
        return (INTERPRETED,)
    # Between products a kernel runs one step, so there is no later step to load for.
    single = tuple(dict.fromkeys(config._replace(stages=1) for config in CONFIGS))
    return single if recipe.products else CONFIGS


# How many kernels are kept. A step with other numbers is another kernel here, since Triton converts a number
# that is an argument to 32 bits.
MOST_KERNELS = 128


@lru_cache(maxsize=MOST_KERNELS)
def emitted(recipe: Recipe, name: str) -> Emitted:
    with compiling:
        return forward_source(recipe) if name == "forward" else backward_source(recipe)


@lru_cache(maxsize=MOST_KERNELS)
def functions(source: str) -> dict[str, Any]:
    """The functions that the source defines. Triton reads their source again, from linecache."""
    name = f"<linnet kernel {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    forget_sources()
    namespace: dict[str, Any] = {"__name__": "linnet.triton.generated"}
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    return namespace


def forget_sources() -> None:
    """Delete the oldest sources. Twice as many as kernels are kept, since a kernel may still be in use."""
    ours = [name for name in linecache.cache if name.startswith("<linnet kernel")]
    for name in ours[: -2 * MOST_KERNELS]:
        linecache.cache.pop(name, None)


@lru_cache(maxsize=MOST_KERNELS)
def kernel(recipe: Recipe, name: str, both: bool) -> Any:
    """The kernel, which tunes itself at its first launch for a number of channels."""
    # A fork waits for this lock, so that no child process has a half-imported Triton.
    with compiling:
        import triton

        function = functions(emitted(recipe, name).source)[f"{name}_both" if both else name]
        choices = [triton.Config(settings(c), num_warps=c.warps) for c in configs_for(recipe)]
        return triton.autotune(choices, key=TUNED_BY)(function)


def settings(config: Config) -> dict[str, int]:
    return {"BLOCK": config.block, "STAGES": config.stages}


Tensors = Mapping[str, Tensor | None]


def launch(
    recipe: Recipe,
    name: str,
    sides: Sequence[Tensors],
    shape: tuple[int, int],
    when: tuple[int, int],
    **how: Any,
) -> None:
    """Launch a kernel once over [B, H] = shape for `sides`, the operands of one direction or of both.

    when    the first step and the number of steps
    how     REVERSE (for a single side), KEEP
    """
    expected = emitted(recipe, name).tensors
    arguments = [argument for side in sides for argument in flat(expected, side)]
    (batch, size), (first, steps), both = shape, when, len(sides) > 1
    device = next(tensor for tensor in sides[0].values() if tensor is not None).device
    scalars = (steps, size) if both else (first, steps, size)

    def grid(meta: Mapping[str, int]) -> tuple[int, int]:
        return (batch * -(-size // meta["BLOCK"]), len(sides))

    # Triton launches on the current device, which need not be that of the operands.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel(recipe, name, both)[grid](*arguments, *scalars, **how, REAL=real_of(sides[0]), **OPTIONS)


def flat(expected: Sequence[TensorArgument], tensors: Tensors) -> list[Any]:
    """Each operand, followed by its strides."""
    arguments: list[Any] = []
    for argument in expected:
        tensor = tensors[argument.key]
        strides = tensor.stride() if tensor is not None else (0,) * len(argument.dims)
        arguments += [tensor, *strides]
    return arguments


def real_of(tensors: Tensors) -> Any:
    """Triton's name of the dtype of arithmetic: float64 for float64, float32 for all others."""
    import triton.language as tl

    dtypes = {t.dtype for t in tensors.values() if t is not None}
    return tl.float64 if torch.float64 in dtypes else tl.float32


# ------------------------------------------------------------------------------- ahead of time

TYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
# Operands that always have the dtype of arithmetic.
WIDE = ("states", "carry", "initial_sum", "sum")


class Compiled(NamedTuple):
    """A kernel for a GPU that need not be in this machine: its code, and the resources it uses."""

    intermediate: str  # Triton's own code, which does not depend on the GPU
    ptx: str
    registers: int  # per thread
    spilled: int  # bytes per thread that did not fit into registers
    shared: int  # bytes of shared memory per program


def compile_ahead(recipe: Recipe, name: str, both: bool, dtype: torch.dtype, capability: int) -> Compiled:
    """Compile for a compute capability (80: A100, 90: H100) in the default configuration, with masks and
    resets, for sizes that are multiples of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    made, config = emitted(recipe, name), configs_for(recipe)[0]
    function = functions(made.source)[f"{name}_both" if both else name]
    types = argument_types(made.tensors, dtype, both)
    constants = {n: v for n, v in constants_of(config, dtype).items() if n in function.arg_names}
    signature = {n: "constexpr" if n in constants else types[n] for n in function.arg_names}
    constants |= {n: 1 for n, kind in signature.items() if kind == "constexpr" and n not in constants}
    even = [i for i, n in enumerate(function.arg_names) if n not in constants and n not in ("first", "steps")]
    source = ASTSource(function, signature, constants, {(i,): [["tt.divisibility", 16]] for i in even})
    options = {"num_warps": config.warps, **OPTIONS}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    used = resources(compiled.asm["cubin"])
    spilled = max(used["STACK"], used["LOCAL"])
    code = compiled.asm
    return Compiled(code["ttir"], code["ptx"], used["REG"], spilled, compiled.metadata.shared)


def constants_of(config: Config, dtype: torch.dtype) -> dict[str, Any]:
    import triton.language as tl

    real = tl.float64 if dtype == torch.float64 else tl.float32
    return {"REVERSE": False, "KEEP": True, "REAL": real, **settings(config)}


def argument_types(expected: Sequence[TensorArgument], dtype: torch.dtype, both: bool) -> dict[str, str]:
    """The types in Triton's notation. Channels are contiguous, so their stride is a constant."""
    wide = "fp64" if dtype == torch.float64 else "fp32"
    types = dict.fromkeys(SCALARS, "i64")
    for argument in expected:
        kind = "u1" if argument.key in FLAGS else wide if argument.key.split(".")[0] in WIDE else TYPES[dtype]
        strides = {argument.stride(dim): "constexpr" if dim == "c" else "i64" for dim in argument.dims}
        own = {argument.name: f"*{kind}", **strides}
        types |= {f"{n}_{way}": t for n, t in own.items() for way in ("ahead", "back")} if both else own
    return types


def resources(cubin: bytes) -> dict[str, int]:
    """The resources of a kernel, as NVIDIA's own tool reports them: {"REG": 32, "STACK": 0, ...}."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"([A-Z]+)(?:\[\d+\])?:(\d+)", told)}
