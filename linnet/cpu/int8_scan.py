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

from linnet.cpu import jit
from linnet.cpu.call import side_by_side, zeros
from linnet.cpu.forward import GIVEN, ForwardScan, Kind, kind_of, new_buffer
from linnet.cpu.int8 import Int8Blocks, Int8Functions, Int8Panels, at_byte
from linnet.cpu.kernel_cache import KernelCache
from linnet.cpu.program import I64, PTR
from linnet.cpu.recipe import Recipe
from linnet.cpu.source import Kernel
from linnet.cpu.width import vector_width
from linnet.program.operands import Flags, Operands, ends
from linnet.program.plan import Plan, Product

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
            if product.heads > 1:
                self.quantise_heads(f"state.{product.state}", old_slot, i, product.heads)
                self.multiply_blocks(t, i, product)
            else:
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

    def quantise_heads(self, source: str, slot: ir.Value, i: int, heads: int) -> None:
        """Round each head of a row with a factor of its own; the factors are [heads, B]."""
        build, depth = self.builder, self.locations[f"panels.{i}"][2]
        size, row_bytes = build.mul(depth, I64(4)), build.udiv(self.locations[f"bytes.{i}"][2], I64(heads))
        with self.loop(self.begin, self.end, 1) as b, self.loop(I64(0), I64(heads), 1) as head:
            row = at_byte(build, self.row(source, slot, b), build.mul(head, size))
            made = at_byte(build, self.row(f"bytes.{i}", I64(0), b), build.mul(head, row_bytes))
            build.call(self.functions.quantise, [row, depth, made, self.factor(i, head, b)])

    def factor(self, i: int, head: ir.Value, b: ir.Value) -> ir.Value:
        first = self.row(f"factors.{i}", I64(0), head)
        return self.builder.gep(first, [b], source_etype=ir.FloatType())

    def multiply_blocks(self, t: ir.Value, i: int, product: Product) -> None:
        """All blocks of a matrix: a table has the addresses of each, see `Int8Scan.put_products`."""
        build, heads = self.builder, I64(product.heads)
        table, groups, _ = self.locations[f"panels.{i}"]
        q_row, c_row = self.locations[f"bytes.{i}"][2], self.locations[f"product.{i}"][2]
        rows, columns = build.sub(self.end, self.begin), build.udiv(self.header["size"], heads)
        bias = build.inttoptr(self.locations[f"tables.{i}"][2], PTR)
        with self.loop(I64(0), I64(len(product.parts) * product.heads), 1) as block:
            head = build.urem(block, heads)
            line = build.inttoptr(build.add(table, build.mul(block, I64(24))), PTR)
            panels, starts, scales = (
                build.inttoptr(build.load(build.gep(line, [I64(j)], source_etype=I64), typ=I64), PTR)
                for j in range(3)
            )
            offset = build.mul(head, build.udiv(q_row, heads))
            q = at_byte(build, self.row(f"bytes.{i}", I64(0), self.begin), offset)
            first = build.mul(build.mul(block, columns), I64(4))
            c = at_byte(build, self.row(f"product.{i}", t, self.begin), first)
            factors = self.factor(i, head, self.begin)
            where = [q, q_row, factors, rows, panels, groups, starts, scales, bias, c, c_row, columns]
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


class Int8Scan(ForwardScan):
    """A forward scan whose matrices are int8. The projections are given."""

    def __init__(self, operands: Operands, kind: Kind, matrices: Sequence[Int8Panels | Int8Blocks]):
        self.matrices = matrices
        super().__init__(operands, kind)
        self.buffers = [self.put_buffers(i, panels) for i, panels in enumerate(matrices)]
        self.nbytes = sum(buffer.nbytes for buffers in self.buffers for buffer in buffers)

    def compiled(self, operands: Operands) -> tuple[jit.Compiled, tuple[str, ...]]:
        return kernel_for(operands.plan)

    def depth_of(self, operands: Operands) -> int:
        return sum(panels.count for panels in self.matrices)

    def put_buffers(self, i: int, panels: Int8Panels | Int8Blocks) -> tuple[Tensor, Tensor, Tensor]:
        """Memory for rounded rows, for their factors, and for the product."""
        batch, heads = self.kind.batch, self.plan.heads[i]
        rounded = torch.empty(batch, panels.row_bytes, dtype=torch.int8, device="cpu")
        shape = (batch, 1) if heads == 1 else (heads, batch)
        factors, product = (new_buffer(each, self.real) for each in (shape, (batch, panels.count)))
        for name, buffer in ((f"bytes.{i}", rounded), (f"factors.{i}", factors), (f"product.{i}", product)):
            self.block.put(name, buffer)
        size = self.kind.sizes[0]
        parts = [(name, column * size) for column, name in enumerate(self.plan.products[i].parts)]
        self.block.put_parts(self.block.parts_at(parts), product)
        return rounded, factors, product

    def put_products(self, operands: Operands, alive: list[Tensor], taken: list[tuple]) -> list[Tensor]:
        for i, panels in enumerate(self.matrices):
            if isinstance(panels, Int8Blocks):
                self.put_blocks(i, panels, alive)
                continue
            nothing = zeros(panels.wide, torch.float32)
            tables = [table.data_ptr() for table in (panels.starts, panels.scales, nothing)]
            self.block.put_numbers(f"panels.{i}", panels.panels.data_ptr(), panels.groups, panels.depth)
            self.block.put_numbers(f"tables.{i}", *tables)
        return []

    def put_blocks(self, i: int, panels: Int8Blocks, alive: list[Tensor]) -> None:
        """A table with three addresses for each block of a block-diagonal matrix."""
        first = panels.blocks[0]
        operands = [(block.panels, block.starts, block.scales) for block in panels.blocks]
        table = torch.tensor([[t.data_ptr() for t in block] for block in operands], device="cpu")
        alive.append(table)
        self.block.put_numbers(f"panels.{i}", table.data_ptr(), first.groups, first.depth)
        self.block.put_numbers(f"tables.{i}", 0, 0, zeros(first.wide, torch.float32).data_ptr())


def run_sequence(
    plan: Plan,
    flags: Flags,
    joint: Tensor,
    others: tuple[Tensors, Tensors, Tensors],
    matrices: Sequence[Int8Panels | Int8Blocks],
) -> tuple[Tensor, list[Tensor]]:
    """Return the output [T, B, H] and the final states.

    joint    [T, B, n H]
    others   the extras, the weights and the states
    """
    extras, weights, states = others
    tensors = [*map(side_by_side, extras), *weights, *states]
    operands = Operands(plan, side_by_side(joint), tensors, flags)
    kind = kind_of(operands, keep=False, share=False)._replace(way=GIVEN)
    pool = plan.bindings.of(("int8", kind))
    scan = pool.take() or Int8Scan(operands, kind, matrices)
    scan.matrices = matrices
    y, sequences, _ = scan.run(operands)
    pool.append(scan)
    return y, ends(operands, sequences, y.dtype)
