"""The loop over time of a unit whose recurrent matrices are int8.

At each step, the products round the state to int8 when they read it. The projection of the whole input, which
is one product, is computed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from llvmlite import ir
from torch import Tensor

from linnet.fuse.cpu import jit
from linnet.fuse.cpu.call import side_by_side
from linnet.fuse.cpu.int8 import Int8Functions, Int8Panels
from linnet.fuse.cpu.kernel_cache import KernelCache
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.program import I64, PTR
from linnet.fuse.cpu.recipe import Recipe
from linnet.fuse.cpu.scan_call import ScanCall
from linnet.fuse.cpu.source import Kernel
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.operands import Flags, Operands
from linnet.fuse.plan import Plan

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Int8Recipe(Recipe):
    """The recipe of a kernel whose matrices are int8."""

    def forward_operands(self) -> tuple[str, ...]:
        """For each matrix: its panels and tables, the rounded rows with their factors, and the product."""
        states = [f"state.{name}" for name in self.traced.states]
        kinds = ("panels", "tables", "bytes", "factors", "product")
        matrices = [f"{kind}.{i}" for i in range(len(self.products)) for kind in kinds]
        known = (*self.traced.inputs, *self.traced.weights, *states, "zeros", *self.number_operands)
        return (*known, "y", *matrices)


class Int8Kernel(Kernel):
    """The loop over time around a traced step, with int8 products."""

    def __init__(self, recipe: Int8Recipe):
        super().__init__(recipe, "forward", recipe.forward_operands())
        self.functions = Int8Functions(self.module)

    def products(self, t: ir.Value) -> None:
        old_slot, _ = self.slots(t)
        for i, product in enumerate(self.recipe.products):
            self.quantise_rows(f"state.{product.state}", old_slot, i)
            self.multiply_rows(t, i, len(product.parts))

    def quantise_rows(self, source: str, slot: ir.Value, i: int) -> None:
        depth = self.locations[f"panels.{i}"][2]
        with self.loop(self.begin, self.end, 1) as b:
            made = [self.row(f"{kind}.{i}", I64(0), b) for kind in ("bytes", "factors")]
            self.builder.call(self.functions.quantise, [self.row(source, slot, b), depth, *made])

    def multiply_rows(self, t: ir.Value, i: int, parts: int) -> None:
        build = self.builder
        panels, groups, _ = self.locations[f"panels.{i}"]
        tables = [build.inttoptr(table, PTR) for table in self.locations[f"tables.{i}"]]
        q, factors, c = (
            self.row(f"{kind}.{i}", time, self.begin)
            for kind, time in (("bytes", I64(0)), ("factors", I64(0)), ("product", t))
        )
        q_row, c_row = self.locations[f"bytes.{i}"][2], self.locations[f"product.{i}"][2]
        rows, columns = build.sub(self.end, self.begin), build.mul(self.header["size"], I64(parts))
        matrix = build.inttoptr(panels, PTR)
        where = [q, q_row, factors, rows, matrix, groups, *tables, c, c_row, columns]
        build.call(self.functions.multiply, where)


# Plans reference the kernels they use; in addition, the last few are kept for modules that are built again.
KERNELS: KernelCache[jit.Compiled] = KernelCache(recent=32)


def int8_ir(recipe: Int8Recipe) -> str:
    return Int8Kernel(recipe).emit()


def kernel_for(plan: Plan) -> tuple[jit.Compiled, tuple[str, ...]]:
    if ("int8",) not in plan.kernels:
        traced, numbers = plan.pattern.traced, len(plan.pattern.numbers)
        width = vector_width(torch.float32)
        recipe = Int8Recipe(traced, plan.products, "float32", width, numbers=numbers)
        made = KERNELS.get(recipe, lambda: jit.compile_recipe(recipe, int8_ir, "forward"))
        plan.kernels[("int8",)] = made, recipe.forward_operands()
    return plan.kernels[("int8",)]


class Int8Call(ScanCall):
    """A run of an int8 kernel."""

    def __init__(self, operands: Operands, matrices: Sequence[Int8Panels]):
        super().__init__(operands)
        for i, (product, panels) in enumerate(zip(operands.plan.products, matrices, strict=True)):
            self.put_int8(i, panels)
            buffer = self.buffer(f"product.{i}", panels.count)
            for column, name in enumerate(product.parts):
                self.put(name, buffer, column * self.shape[-1])

    def put_int8(self, i: int, panels: Int8Panels) -> None:
        batch, nothing = self.shape[1], self.keep(panels.padded_bias(None))
        tables = [table.data_ptr() for table in (panels.starts, panels.scales, nothing)]
        self.locations[f"panels.{i}"] = (panels.panels.data_ptr(), panels.groups, panels.depth)
        self.locations[f"tables.{i}"] = (tables[0], tables[1], tables[2])
        self.put(f"bytes.{i}", torch.empty(batch, panels.row_bytes, dtype=torch.int8, device="cpu"))
        self.put(f"factors.{i}", torch.empty(batch, 1, device="cpu"))


def run_sequence(
    plan: Plan,
    flags: Flags,
    joint: Tensor,
    others: tuple[Tensors, Tensors, Tensors],
    matrices: Sequence[Int8Panels],
) -> tuple[Tensor, list[Tensor]]:
    """Return the output [T, B, H] and the final states.

    joint    [T, B, n H]
    others   the extras, the weights and the states
    """
    extras, weights, states = others
    sequences = [side_by_side(extra) for extra in extras]
    operands = Operands(plan, joint, sequences, list(weights), list(states), [], *flags)
    call = Int8Call(operands, matrices)
    slots = [state.clone(memory_format=torch.contiguous_format) for state in states]
    for name, slot in zip(plan.traced.states, slots, strict=True):
        call.put(f"state.{name}", slot)
    y = call.put("y", new_empty(operands.shape, torch.float32))
    function, names = kernel_for(plan)
    # Rows are not divided into blocks of channels: products read the whole state.
    call.run(function, names, depth=sum(panels.count for panels in matrices))
    return y, slots
