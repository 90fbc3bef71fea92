"""The LLVM of the kernels of a recipe."""

from __future__ import annotations

from linnet.cpu.loop_kernel import LoopKernel
from linnet.cpu.recipe import Recipe
from linnet.cpu.source import Kernel


def forward_ir(recipe: Recipe) -> str:
    return kernel_of(recipe)(recipe, "forward", recipe.forward_operands()).emit()


def backward_ir(recipe: Recipe) -> str:
    return kernel_of(recipe)(recipe, "backward", recipe.backward_operands()).emit()


def kernel_of(recipe: Recipe) -> type[Kernel]:
    return LoopKernel if recipe.traced.sizes else Kernel
