"""Chooses the CPU kernel of a scan and prepares its arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.fuse.cpu import jit, source
from linnet.fuse.cpu.call import Call, side_by_side, zeros
from linnet.fuse.cpu.kernel_cache import KernelCache
from linnet.fuse.cpu.recipe import Recipe
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.operands import Operands, as_dtype

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
    how = (wanted, keeps_output, () if operands.source is None else operands.joint_names, projects)
    key = (name, operands.dtype, *how, bool(operands.drops), unpacked, shared)
    if key not in operands.plan.kernels:
        pattern = operands.plan.pattern
        what = (pattern.traced, operands.plan.products, DTYPES[operands.dtype], vector_width(operands.dtype))
        recipe = Recipe(*what, *how, bool(operands.drops), unpacked, shared, len(pattern.numbers))
        operands.plan.kernels[key] = compiled(recipe, name)
    return operands.plan.kernels[key]


# Plans reference the kernels they use; in addition, the last few are kept for modules that are built again.
KERNELS: KernelCache[jit.Compiled] = KernelCache(recent=32)


def compiled(recipe: Recipe, name: str) -> tuple[jit.Compiled, tuple[str, ...]]:
    """Plans of equal recipes share their kernels."""
    emit = source.forward_ir if name == "forward" else source.backward_ir
    operands = recipe.forward_operands() if name == "forward" else recipe.backward_operands()
    kernel = KERNELS.get((recipe, name), lambda: jit.compile_recipe(recipe, emit, name))
    return kernel, operands


class ScanCall(Call):
    """The arguments of a scan over `operands`."""

    def __init__(self, operands: Operands):
        super().__init__(operands.shape, (operands.mask, operands.resets, operands.reverse), operands.real)
        self.operands = operands
        for name, offset in operands.offsets().items():
            self.put(name, operands.joint, offset)
        for name, tensor in zip(operands.extra_names, operands.extras, strict=True):
            self.put(name, tensor)
        for name, weight in zip(operands.plan.traced.weights, operands.weights, strict=True):
            self.put(name, as_dtype(weight, operands.real).contiguous())
        self.put("zeros", zeros(max(operands.sizes), operands.real))
        self.put_groups(operands.sizes)
        if operands.plan.pattern.numbers:
            self.put("numbers", operands.plan.numbers_as(operands.real))
        self.depth = sum(len(matrix) for matrix in operands.matrices)
        for i, drop in enumerate(operands.drops):
            self.put(f"drop_mask.{i}", side_by_side(as_dtype(drop, operands.real)))

    def put_products(self, keep: bool, unpacked: bool = False) -> list[Tensor]:
        """Room for the products, and for what inner products read: of all steps to be kept, else of one."""
        products, steps = [], self.shape[0] if keep else 0
        for i, matrix in enumerate(self.operands.matrices):
            put = self.put_unpacked if unpacked else self.put_packed
            wide = put(f"matrix.{i}", matrix)
            products.append(self.buffer(f"product.{i}", wide, steps))
            if unpacked:
                # A product with a packed matrix writes zeros beyond its columns; a registered operation
                # returns all of it.
                products[-1][..., len(matrix) :] = 0
            self.put_product(i, products[-1])
        for i in range(len(self.operands.drops)):
            self.buffer(f"visible.{i}", self.operands.matrices[i].shape[1])
        inner = [f"inner.{i}" for i in range(len(self.operands.plan.traced.inner))]
        return products + [self.buffer(name, self.operands.size_of(name), steps) for name in inner]

    def put_product(self, i: int, buffer: Tensor) -> None:
        _, parts = self.operands.plan.matrices[i]
        for column, name in enumerate(parts):
            self.put(name, buffer, column * self.operands.size_of(name))
