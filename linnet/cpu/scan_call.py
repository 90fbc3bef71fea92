"""Chooses the CPU kernel of a scan and prepares its arguments."""

from __future__ import annotations

import torch

from linnet.cpu import jit, kernels
from linnet.cpu.kernel_cache import KernelCache
from linnet.cpu.recipe import Recipe
from linnet.cpu.width import vector_width
from linnet.program.operands import Operands

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


def kernel_for(
    operands: Operands,
    name: str,
    wanted: tuple[str, ...] = (),
    keeps_output: bool = True,
    projects: bool = False,
    unpacked: bool = False,
    shared: bool = False,
) -> tuple[jit.Compiled, tuple[str, ...]]:
    """Return the kernel and the names of its operands; see `Recipe`."""
    how = (wanted, keeps_output, () if operands.source is None else operands.plan.projected, projects)
    heads = operands.source.heads if projects and operands.source is not None else 1
    key = (name, operands.dtype, *how, bool(operands.drops), unpacked, shared, heads)
    if key not in operands.plan.kernels:
        pattern = operands.plan.pattern
        what = (pattern.traced, operands.plan.products, DTYPES[operands.dtype], vector_width(operands.dtype))
        recipe = Recipe(*what, *how, bool(operands.drops), unpacked, shared, len(pattern.numbers), heads)
        operands.plan.kernels[key] = compiled(recipe, name)
    return operands.plan.kernels[key]


# Plans reference the kernels they use; in addition, the last few are kept for modules that are built again.
KERNELS: KernelCache[jit.Compiled] = KernelCache(recent=32)


def compiled(recipe: Recipe, name: str) -> tuple[jit.Compiled, tuple[str, ...]]:
    """Plans of equal recipes share their kernels."""
    emit = kernels.forward_ir if name == "forward" else kernels.backward_ir
    operands = recipe.forward_operands() if name == "forward" else recipe.backward_operands()
    kernel = KERNELS.get((recipe, name), lambda: jit.compile_recipe(recipe, emit, name))
    return kernel, operands
