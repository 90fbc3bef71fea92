"""What a scan reads, and where a kernel finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse import cpu, jit
from linnet.fuse.call import Call, as_dtype, side_by_side, zeros
from linnet.fuse.kept import Kept
from linnet.fuse.plan import Plan
from linnet.fuse.width import vector_width

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which numbers of `dtype` are computed with."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Source(NamedTuple):
    """What a projection is made of: x [T, B, D], weight [n H, D], bias [m H] of the last m parts."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def linear(self) -> Tensor:
        bias = self.bias
        if bias is not None and len(bias) < len(self.weight):
            bias = F.pad(bias, (len(self.weight) - len(bias), 0))
        return F.linear(self.x, self.weight, bias)


@dataclass
class Operands:
    """What a scan reads.

    joint      [T, B, n H]: the first n inputs of the step side by side; of a projection that nobody
               sees, in the dtype of arithmetic; or only room for those of a few steps
    extras     [T, B, H]: the inputs that follow
    weights    [H]
    states     [B, H]
    matrices   [parts * H, H]: those of the products
    """

    plan: Plan
    joint: Tensor
    extras: list[Tensor]
    weights: list[Tensor]
    states: list[Tensor]
    matrices: list[Tensor]
    mask: Tensor | None = None
    resets: Tensor | None = None
    reverse: bool = False
    source: Source | None = None  # of the projection, where nobody sees it
    drops: Sequence[Tensor] = ()  # [B, H] for each product: what it reads of the state, and what not

    @classmethod
    def of(
        cls,
        plan: Plan,
        flags: tuple[Any, Any, Any],
        tensors: Sequence[Any],
        source: Source | None = None,
        drops: Sequence[Tensor] = (),
    ) -> Operands:
        """From the flat list of `tensors`."""
        joint, *rest = tensors
        groups = []
        for names in (plan.products, plan.traced.states, plan.traced.weights):
            cut = len(rest) - len(names)
            groups.append(rest[cut:])
            rest = rest[:cut]
        matrices, states, weights = groups
        return cls(plan, joint, rest, weights, states, matrices, *flags, source, drops)

    def __post_init__(self) -> None:
        like = self.joint if self.source is None else self.source.x
        self.dtype, self.real = like.dtype, arithmetic(like.dtype)
        self.shape = (*like.shape[:2], self.states[0].shape[-1])
        inputs, joints = self.plan.traced.inputs, self.joint.shape[-1] // self.shape[-1]
        self.joint_names = inputs[:joints]
        self.extra_names = inputs[joints : joints + len(self.extras)]

    def kernel(
        self,
        name: str,
        wanted: tuple[str, ...] = (),
        keeps_output: bool = True,
        projects: bool = False,
        plain: bool = False,
    ) -> tuple[jit.Compiled, tuple[str, ...]]:
        """The kernel and the names of its operands; see `cpu.Recipe`."""
        how = (wanted, keeps_output, () if self.source is None else self.joint_names, projects)
        asked = (name, self.dtype, *how, bool(self.drops), plain)
        if asked not in self.plan.kernels:
            pattern = self.plan.pattern
            what = (pattern.traced, self.plan.products, DTYPES[self.dtype], vector_width(self.dtype))
            recipe = cpu.Recipe(*what, *how, bool(self.drops), plain, len(pattern.numbers))
            self.plan.kernels[asked] = compiled(recipe, name)
        return self.plan.kernels[asked]


# The plans that use a kernel hold it; beyond those, the last few, for modules that are built again.
KERNELS: Kept[jit.Compiled] = Kept(recent=32)


def compiled(recipe: cpu.Recipe, name: str) -> tuple[jit.Compiled, tuple[str, ...]]:
    """Plans of equal recipes share their kernels."""
    emit = cpu.forward_ir if name == "forward" else cpu.backward_ir
    operands = recipe.forward_operands() if name == "forward" else recipe.backward_operands()
    kernel = KERNELS.get((recipe, name), lambda: jit.compile_function(emit(recipe), name))
    return kernel, operands


class ScanCall(Call):
    """A run over `operands`."""

    def __init__(self, operands: Operands):
        super().__init__(operands.shape, (operands.mask, operands.resets, operands.reverse), operands.real)
        self.operands = operands
        size = operands.shape[-1]
        for column, name in enumerate(operands.joint_names):
            self.put(name, operands.joint, column * size)
        for name, tensor in zip(operands.extra_names, operands.extras, strict=True):
            self.put(name, tensor)
        for name, weight in zip(operands.plan.traced.weights, operands.weights, strict=True):
            self.put(name, as_dtype(weight, operands.real).contiguous())
        self.put("zeros", zeros(size, operands.real))
        if operands.plan.pattern.numbers:
            self.put("numbers", operands.plan.numbers_as(operands.real))
        self.depth = sum(len(matrix) for matrix in operands.matrices)
        for i, drop in enumerate(operands.drops):
            self.put(f"dropped.{i}", side_by_side(as_dtype(drop, operands.real)))

    def put_products(self, keep: bool, plain: bool = False) -> list[Tensor]:
        """Room for the products: of all steps if they are to be kept, else of one."""
        products = []
        for i, matrix in enumerate(self.operands.matrices):
            put = self.put_plain if plain else self.put_packed
            wide = put(f"packed.{i}", matrix)
            products.append(self.room(f"product.{i}", wide, self.shape[0] if keep else 0))
            self.put_product(i, products[-1])
            if self.operands.drops:
                self.room(f"seen.{i}", self.shape[-1])
        return products

    def put_product(self, i: int, room: Tensor) -> None:
        for column, name in enumerate(self.operands.plan.products[i].parts):
            self.put(name, room, column * self.shape[-1])
