"""The code of a kernel: the traced lines, the LLVM or Triton source generated from them, machine code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from linnet.base.project import advice
from linnet.run.available import no_cpu_kernels, no_triton_kernels, not_on_gpu
from linnet.run.choose import backend
from linnet.units import UNITS

SIZE = 16
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def kernel(unit: str, backward: bool = False, assembly: bool = False, dtype: str = "float32") -> str:
    """Return the traced lines and the code of the kernels that a training step of `unit` runs.

    Raise RuntimeError, with the reason, if the unit has no kernel.
    """
    reason = no_cpu_kernels()
    if reason is not None:
        raise RuntimeError(f"CPU kernels are not available: {reason}")
    rnn = UNITS[unit](SIZE, SIZE, dtype=DTYPES[dtype])
    name = f"{type(rnn).__name__}, {'backward' if backward else 'forward'}, {dtype}"
    blocks = [name, *(f"the step, traced:\n{indent(lines)}" for lines in traced(rnn, backward))]
    code = [as_assembly(s) if assembly else s for s in sources(rnn, DTYPES[dtype])[backward]]
    blocks += [f"{'assembly' if assembly else 'LLVM'}:\n{source.strip()}" for source in code]
    return "\n\n".join(blocks)


# The compute capability of an A100, whose code `--assembly` shows: newer GPUs run it too.
CAPABILITY = 80


def gpu_kernel(unit: str, backward: bool = False, assembly: bool = False, dtype: str = "float32") -> str:
    """Like `kernel`, for a GPU: Triton's source, or PTX. The source needs neither triton nor a GPU."""
    from linnet.triton.kernels import emitted

    rnn, way = UNITS[unit](SIZE, SIZE), "backward" if backward else "forward"
    name = f"{type(rnn).__name__}, {way}, {dtype}" if assembly else f"{type(rnn).__name__}, {way}"
    blocks = [name, *(f"the step, traced:\n{indent(lines)}" for lines in traced(rnn, backward))]
    for recipe in recipes(rnn, backward):
        code = as_ptx(recipe, way, DTYPES[dtype]) if assembly else emitted(recipe, way).source
        blocks.append(f"{'PTX' if assembly else 'Triton'}:\n{code.strip()}")
    return "\n\n".join(blocks)


def recipes(rnn: Any, backward: bool) -> list[Any]:
    from linnet.triton.loop import Recipe

    plans = rnn.directions[0].plans_of_mode()
    lacking = [] if isinstance(plans, str) else [what for p in plans if (what := not_on_gpu(p.traced))]
    reason = f"there is no Triton kernel for {lacking[0]}" if lacking else plans
    if isinstance(reason, str):
        raise RuntimeError(f"{type(rnn).__name__} runs on the reference loop on a GPU: {reason}")
    return [Recipe.of(plan, plan.all_gradients() if backward else ()) for plan in plans]


def as_ptx(recipe: Any, way: str, dtype: torch.dtype) -> str:
    from linnet.triton.kernels import compile_ahead

    if no_triton_kernels() is not None:
        raise RuntimeError(f"PTX needs triton, which is not installed: {advice('triton')}")
    return compile_ahead(recipe, way, False, dtype, CAPABILITY).ptx


def indent(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())


def traced(rnn: Any, backward: bool) -> list[str]:
    """Return the traced lines of each stage; none for a unit whose kernel is not traced."""
    plans = rnn.directions[0].plans_of_mode()
    if isinstance(plans, str):
        return []
    return [str(plan.traced.backward if backward else plan.traced.forward) for plan in plans]


def sources(rnn: Any, dtype: torch.dtype) -> tuple[list[str], list[str]]:
    """Return the LLVM of the kernels that a small forward and backward pass compiles."""
    forward: list[str] = []
    backward: list[str] = []
    # Enough rows for a kernel that computes the projections itself.
    x = torch.zeros(2, 4 * torch.get_num_threads(), SIZE, dtype=dtype, requires_grad=True)
    with when_compiled(forward.append), backend("cpu"):
        y, _ = rnn(x)
    with when_compiled(backward.append):
        y.sum().backward()
    return forward, backward


@contextmanager
def when_compiled(note: Callable[[str], None]) -> Iterator[None]:
    """Within this context, call `note` with the LLVM of each pass when it is compiled."""
    from linnet.cpu import jit, scan_call
    from linnet.cpu.kernel_cache import KernelCache

    def noting(recipe: Hashable, emit: Callable[[Any], str], name: str) -> jit.Compiled:
        note(emit(recipe))
        return compile_recipe(recipe, emit, name)

    compile_recipe = jit.compile_recipe
    known = scan_call.KERNELS
    jit.compile_recipe = noting
    # A kernel that this process has compiled before is compiled again.
    scan_call.KERNELS = KernelCache(recent=8)
    try:
        yield
    finally:
        jit.compile_recipe = compile_recipe
        scan_call.KERNELS = known


def as_assembly(source: str) -> str:
    from linnet.cpu import jit

    return jit.assembly(source)
