"""The heads of a memory written by outer products: u = g(p q^T) and the norms of its parts; see outer.py.

Fifth powers overflow and underflow early: in float32 those of 1e8 and 1e-9. So the kernels compute with
u / scale, and n >= 1e-12 / scale, where `scale` is 1 for almost all heads. If the fifth powers of a head
underflow, `scale` is the largest |u_ij|; if they overflow, nothing is written, and gradients are 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from linnet.fuse.cpu.emit import Emitter
from linnet.fuse.cpu.gemm import broadcast
from linnet.fuse.cpu.program import I64, Program

LEAST_NORM = 1e-12
# For float32 and float64: the smallest normal number divided by the precision. A smaller sum of fifth powers
# has lost digits to underflow, or is 0.
UNDERFLOW = {32: 2.0**-126 / 2.0**-23, 64: 2.0**-1022 / 2.0**-52}
FORWARD = ("a", "state", "z", "zeros", "matrix.state", "product", "matrix.heads", "heads", "bias", "y")
BACKWARD = (
    *("state", "z", "zeros", "heads", "bias", "dy", "da", "dheads", "carry"),
    *("matrix.heads", "dz", "matrix.state", "state_gradient"),
)
# Further operands with a layer norm; `rate` is 1 / sigma.
NORM_FORWARD = ("gain", "shift", "normed", "rate")
NORM_BACKWARD = ("gain", "normed", "rate", "dnorm")


class Columns(NamedTuple):
    """Where the values of the heads that write, or of those that erase, start in a row; and their factor."""

    strengths: int
    p: int
    scale: float


@dataclass(frozen=True)
class OuterRecipe:
    """Everything the kernels depend on."""

    hidden: int
    memory: int
    heads: int
    relu: bool
    mean: bool
    bits: int
    width: int
    eps: float | None = None  # of the layer norm, if there is one

    @property
    def forward_operands(self) -> tuple[str, ...]:
        return FORWARD if self.eps is None else FORWARD + NORM_FORWARD

    @property
    def backward_operands(self) -> tuple[str, ...]:
        return BACKWARD if self.eps is None else BACKWARD + NORM_BACKWARD

    @property
    def root(self) -> int:
        """The length of p and of q."""
        return int((self.heads * self.memory) ** 0.5)

    @property
    def columns(self) -> int:
        """The number of values in a row of heads."""
        return 2 * self.heads + 4 * self.root

    @property
    def lanes(self) -> int:
        return self.width // 2

    @property
    def sides(self) -> list[Columns]:
        """Those that write, and those that erase."""
        k, root = self.heads, self.root
        scale = 1 / k if self.mean else 1.0
        return [Columns(0, 2 * k, scale), Columns(k, 2 * k + 2 * root, -scale)]


class Side(NamedTuple):
    """The heads of one row that write, or those that erase: the addresses of their values, and all of q."""

    heads: ir.Value
    bias: ir.Value
    columns: Columns
    q: list[ir.Value]


class Sums(NamedTuple):
    """Of one head: 1 / scale; sum_j |u_ij|^5 and sum_j d_j u_ij, of u divided by the scale."""

    inverse_scale: ir.Value
    fifth: ir.Value
    along_u: ir.Value


class HeadProgram(Program):
    """What the forward and the backward kernels compute of the heads.

    `i` is the index of a head, `r` that of a row of p q^T, and `carry` the address of the gradients of m.
    """

    def __init__(self, name: str, operands: tuple[str, ...], recipe: OuterRecipe):
        super().__init__(name, operands, recipe.bits, recipe.width)
        self.recipe = recipe
        self.wide = Emitter(self.builder, self.form, recipe.lanes)
        self.one = Emitter(self.builder, self.form, 1)

    def sides(self, t: ir.Value, b: ir.Value) -> Iterator[Side]:
        heads, bias = self.row("heads", t, b), self.row("bias", t, b)
        emit, root = self.wide, self.recipe.root
        for columns in self.recipe.sides:
            starts = [I64(columns.p + root + j) for j in range(0, root, emit.width)]
            q = [self.read(emit, heads, bias, at) for at in starts]
            yield Side(heads, bias, columns, q)

    def read(self, emit: Emitter, heads: ir.Value, bias: ir.Value, at: ir.Value) -> ir.Value:
        return emit.emit_add(self.load_plain(emit, heads, at), self.load_plain(emit, bias, at))

    def strength_before(self, side: Side, i: int) -> ir.Value:
        """The strength of a head before g."""
        return self.read(self.one, side.heads, side.bias, I64(side.columns.strengths + i))

    def strength(self, side: Side, i: int) -> ir.Value:
        value = self.strength_before(side, i)
        return self.one.emit_maximum(value, self.one.number(0.0)) if self.recipe.relu else value

    def p_at(self, side: Side, r: ir.Value) -> ir.Value:
        return self.read(self.one, side.heads, side.bias, self.builder.add(r, I64(side.columns.p)))

    @contextmanager
    def rows_of(self, i: int) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The rows of p q^T that belong to head i, and where each starts in m."""
        root = self.recipe.root
        many = self.recipe.memory // root
        with self.loop(I64(i * many), I64((i + 1) * many), 1) as r:
            yield r, self.builder.mul(self.builder.sub(r, I64(i * many)), I64(root))

    def in_memory(self, at: ir.Value, j: int) -> ir.Value:
        """The channel of the state where vector j of a row of p q^T starts; the row starts at `at` in m."""
        return self.builder.add(at, I64(self.recipe.hidden + j * self.wide.width))

    def products_of(self, side: Side, r: ir.Value, inverse_scale: ir.Value) -> list[ir.Value]:
        """Row r of g(p q^T), divided by the scale."""
        emit = self.wide
        p_r = self.broadcast(self.one.emit_mul(self.p_at(side, r), inverse_scale))
        u = [emit.emit_mul(p_r, q_j) for q_j in side.q]
        return [emit.emit_maximum(value, emit.number(0.0)) for value in u] if self.recipe.relu else u

    def sums_in_range(self, side: Side, i: int, carry: ir.Value | None = None) -> Sums:
        """Return the sums with a scale that suits.

        A scale of 1 is tried first: it suits almost all heads, and these do not run the loop over u twice.
        """
        build, one = self.builder, self.one
        first = self.sums(side, i, carry, one.number(1.0))
        with build.goto_entry_block():
            variables = [build.alloca(one.vector) for _ in first]
        self.set_all(variables, first)
        overflows = build.fcmp_ordered("==", first.fifth, one.number(math.inf))
        underflows = build.fcmp_ordered("<", first.fifth, one.number(UNDERFLOW[self.recipe.bits]))
        with build.if_then(build.or_(overflows, underflows), likely=False):
            scaled = self.sums(side, i, carry, self.inverse_scale(overflows, self.largest(side, i)))
            # The norm is too large for the format: it stays infinite.
            fifth = build.select(overflows, one.number(math.inf), scaled.fifth)
            self.set_all(variables, scaled._replace(fifth=fifth))
        return Sums(*(build.load(variable, typ=one.vector) for variable in variables))

    def set_all(self, variables: list[ir.Value], sums: Sums) -> None:
        for variable, value in zip(variables, sums, strict=True):
            self.builder.store(value, variable)

    def inverse_scale(self, overflows: ir.Value, largest: ir.Value) -> ir.Value:
        """1 / scale if a scale of 1 does not suit; 0 if nothing is to be written."""
        build, one = self.builder, self.one
        smallest = one.emit_maximum(largest, one.number(LEAST_NORM))
        # An infinite product of p and q is left as it is: it becomes NaN, which users notice.
        infinite = build.fcmp_ordered("==", largest, one.number(math.inf))
        silent = build.select(infinite, one.number(1.0), one.number(0.0))
        return build.select(overflows, silent, one.emit_div(one.number(1.0), smallest))

    def largest(self, side: Side, i: int) -> ir.Value:
        """max_j |u_ij|."""
        emit, one, build = self.wide, self.one, self.builder
        with build.goto_entry_block():
            maximum = build.alloca(emit.vector)
        build.store(emit.number(0.0), maximum)
        with self.rows_of(i) as (r, _):
            found = build.load(maximum, typ=emit.vector)
            for u in self.products_of(side, r, one.number(1.0)):
                found = emit.emit_maximum(found, emit.intrinsic("llvm.fabs", u))
            build.store(found, maximum)
        return self.fold(one.emit_maximum, build.load(maximum, typ=emit.vector))

    def sums(self, side: Side, i: int, carry: ir.Value | None, inverse_scale: ir.Value) -> Sums:
        emit, build = self.wide, self.builder
        with build.goto_entry_block():
            variables = [build.alloca(emit.vector) for _ in range(2)]
        for variable in variables:
            build.store(emit.number(0.0), variable)
        with self.rows_of(i) as (r, at):
            fifth, along_u = (build.load(variable, typ=emit.vector) for variable in variables)
            for j, u in enumerate(self.products_of(side, r, inverse_scale)):
                square = emit.emit_mul(u, u)
                fourth = emit.emit_mul(square, square)
                fifth = emit.fma(fourth, emit.intrinsic("llvm.fabs", u), fifth)
                if carry is not None:
                    d = self.load_plain(emit, carry, self.in_memory(at, j))
                    along_u = emit.fma(d, u, along_u)
            build.store(fifth, variables[0])
            build.store(along_u, variables[1])
        totals = (self.total(build.load(variable, typ=emit.vector)) for variable in variables)
        return Sums(inverse_scale, *totals)

    def norm(self, sums: Sums) -> ir.Value:
        root = self.one.emit_pow(sums.fifth, self.one.number(0.2))
        return self.one.emit_maximum(root, self.least_norm(sums))

    def least_norm(self, sums: Sums) -> ir.Value:
        return self.one.emit_mul(self.one.number(LEAST_NORM), sums.inverse_scale)

    def broadcast(self, number: ir.Value) -> ir.Value:
        return broadcast(self.wide, number)

    def total(self, vector: ir.Value) -> ir.Value:
        """The sum of a vector, in order."""
        return self.fold(self.builder.fadd, vector)
