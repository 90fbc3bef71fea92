"""The hand-written kernels of a memory written by outer products, as in NRU.

The state is S = [h; m], concatenated. One step, with k heads that write and k that erase:

    h_t = relu(a_t + S_{t-1} W)                        a product, then elementwise; or relu(norm(...))
    (alpha, beta, p, q, p', q') = [h_t; m_{t-1}] U + b   a product
    u_i = row i of g(p q^T), viewed as k x |m|;  n_i = max(||u_i||_5, 1e-12)
    m_t = m_{t-1} + c sum_i (g(alpha_i) u_i / n_i - g(beta_i) u'_i / n'_i)

with g the identity or relu and c = 1/k for the mean over heads, 1 for the sum. The backward kernel computes
u and n again; for a write head, with d_j the gradient of m_t and D_i = sum_j d_j u_ij,

    d alpha_i = c D_i / n_i
    d u_ij    = c alpha_i / n_i (d_j - D_i u_ij |u_ij|^3 / n_i^5)

and d p, d q follow from u = p q^T. Fifth powers overflow and underflow early: in float32 those of 1e8 and
1e-9. So the kernels compute with u / scale, and n >= 1e-12 / scale, where `scale` is 1 for almost all heads.
If the fifth powers of a head underflow, `scale` is the largest |u_ij|; if they overflow, nothing is written,
and gradients are 0. With n = (s - mean s) / sigma and norm(s) = gain n + shift, the gradient of s is
(e - mean e - n mean(e n)) / sigma, where e is gain times the gradient of norm(s). The gradients of W and
U are single products after the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llvmlite import ir

from linnet.fuse.cpu.emit import Emitter
from linnet.fuse.cpu.gemm import broadcast
from linnet.fuse.cpu.program import I64, Program

LEAST_NORM = 1e-12
# For float32 and float64: the smallest normal number divided by the precision. A smaller sum of fifth powers
# has lost digits to underflow, or is 0.
UNDERFLOW = {32: 2.0**-126 / 2.0**-23, 64: 2.0**-1022 / 2.0**-52}
# Emits the values at some channels of a row: a vector of them, or a single one.
Part = Callable[[Emitter, ir.Value], ir.Value]
FORWARD = ("a", "state", "z", "zeros", "matrix.state", "product", "matrix.heads", "heads", "bias", "y")
BACKWARD = (
    *("state", "z", "zeros", "heads", "bias", "dy", "da", "dheads", "carry"),
    *("matrix.heads", "dz", "matrix.state", "state_gradient"),
)
# Further operands with a layer norm; `rate` is 1 / sigma.
NORM_FORWARD = ("gain", "shift", "normed", "rate")
NORM_BACKWARD = ("gain", "normed", "rate", "dnorm")


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
    def lanes(self) -> int:
        return self.width // 2

    @property
    def sides(self) -> list[tuple[int, int, float]]:
        """For writing and erasing: the columns of the heads where strengths and p start, and the factor."""
        k, root = self.heads, self.root
        scale = 1 / k if self.mean else 1.0
        return [(0, 2 * k, scale), (k, 2 * k + 2 * root, -scale)]


def forward_ir(recipe: OuterRecipe) -> str:
    return OuterKernel("forward", recipe.forward_operands, recipe).emit_forward()


def hidden_ir(recipe: OuterRecipe) -> str:
    """The part of a single step between the two products; see `memory_ir`."""
    kernel = OuterKernel("hidden", recipe.forward_operands, recipe)
    return kernel.emit_rows(kernel.hidden_row)


def memory_ir(recipe: OuterRecipe) -> str:
    """The part of a single step after the second product."""
    kernel = OuterKernel("memory", recipe.forward_operands, recipe)
    return kernel.emit_rows(kernel.memory_row)


def backward_ir(recipe: OuterRecipe) -> str:
    return OuterKernel("backward", recipe.backward_operands, recipe).emit_backward()


class OuterKernel(Program):
    def __init__(self, name: str, operands: tuple[str, ...], recipe: OuterRecipe):
        super().__init__(name, operands, recipe.bits, recipe.width)
        self.recipe = recipe
        self.wide = Emitter(self.builder, self.form, recipe.lanes)
        self.one = Emitter(self.builder, self.form, 1)
        self.hidden = (I64(0), I64(recipe.hidden))
        self.memory = (I64(recipe.hidden), I64(recipe.hidden + recipe.memory))

    def emit_forward(self) -> str:
        with self.times() as t:
            self.multiply("state", self.slots(t)[0], "matrix.state", "product", t)
            with self.loop(self.begin, self.end, 1) as b:
                self.hidden_row(t, b)
            self.multiply("z", t, "matrix.heads", "heads", t)
            with self.loop(self.begin, self.end, 1) as b:
                self.memory_row(t, b)
        return self.finish()

    def emit_rows(self, do: Callable[[ir.Value, ir.Value], None]) -> str:
        with self.loop(self.begin, self.end, 1) as b:
            do(I64(0), b)
        return self.finish()

    def hidden_row(self, t: ir.Value, b: ir.Value) -> None:
        """h_t, and [h_t; m_{t-1}] for the heads."""
        old, new, reset = self.state_rows(t, b)
        z, a = self.row("z", t, b), self.row("a", t, b)
        product = self.builder.select(reset, self.row("zeros", t, b), self.row("product", t, b))

        def total(emit: Emitter, at: ir.Value) -> ir.Value:
            return emit.emit_add(self.load_plain(emit, a, at), self.load_plain(emit, product, at))

        inside = total if self.recipe.eps is None else self.norm_row(t, b, total, self.recipe.eps)

        def hidden(emit: Emitter, at: ir.Value) -> None:
            h = emit.emit_maximum(inside(emit, at), emit.number(0.0))
            self.store_plain(emit, z, at, h)
            self.store_plain(emit, new, at, h)

        def keep(emit: Emitter, at: ir.Value) -> None:
            self.store_plain(emit, z, at, self.load_plain(emit, old, at))

        self.along(self.hidden, hidden)
        self.along(self.memory, keep)

    def norm_row(self, t: ir.Value, b: ir.Value, total: Part, eps: float) -> Part:
        """The layer norm of `total`; stores the normalised values and 1 / sigma for the backward kernel."""
        one, normed = self.one, self.row("normed", t, b)
        gain, shift = self.row("gain", t, b), self.row("shift", t, b)
        mean = self.mean(total)

        def square(emit: Emitter, at: ir.Value) -> ir.Value:
            centred = emit.emit_sub(total(emit, at), broadcast(emit, mean))
            self.store_plain(emit, normed, at, centred)
            return emit.emit_mul(centred, centred)

        sigma = one.intrinsic("llvm.sqrt", one.emit_add(self.mean(square), one.number(eps)))
        rate = one.emit_div(one.number(1.0), sigma)
        self.store_plain(one, self.row("rate", t, b), I64(0), rate)

        def result(emit: Emitter, at: ir.Value) -> ir.Value:
            n = emit.emit_mul(self.load_plain(emit, normed, at), broadcast(emit, rate))
            self.store_plain(emit, normed, at, n)
            return emit.fma(n, self.load_plain(emit, gain, at), self.load_plain(emit, shift, at))

        return result

    def memory_row(self, t: ir.Value, b: ir.Value) -> None:
        """m_t and the output; at a padded step, the state as it was."""
        old, new, _ = self.state_rows(t, b)
        y = self.row("y", t, b)

        def copy(source: ir.Value, target: ir.Value) -> Callable[[Emitter, ir.Value], None]:
            return lambda emit, at: self.store_plain(emit, target, at, self.load_plain(emit, source, at))

        with self.builder.if_else(self.flag("mask", t, b, absent=True)) as (real, padded):
            with real:
                self.along(self.hidden, copy(new, y))
                self.along(self.memory, copy(old, new))
                heads, bias = self.row("heads", t, b), self.row("bias", t, b)
                for side in self.recipe.sides:
                    self.write(heads, bias, new, *side)
            with padded:
                self.along((I64(0), self.memory[1]), copy(old, new))
                zero = lambda emit, at: self.store_plain(emit, y, at, emit.number(0.0))  # noqa: E731
                self.along(self.hidden, zero)

    def write(
        self, heads: ir.Value, bias: ir.Value, m: ir.Value, strengths: int, p: int, scale: float
    ) -> None:
        """m += scale sum_i g(alpha_i) u_i / n_i."""
        emit, one = self.wide, self.one
        q = self.read_all(heads, bias, p + self.recipe.root)
        for i in range(self.recipe.heads):
            inverse_scale, fifth, _ = self.sums_in_range(heads, bias, p, q, i, None)
            strength = self.strength(heads, bias, strengths + i)
            by = one.emit_div(one.emit_mul(strength, one.number(scale)), self.norm(fifth, inverse_scale))
            factors = self.broadcast(by)
            with self.rows_of(i) as (r, at):
                u = self.products_of(heads, bias, p, r, q, inverse_scale)
                for j, value in enumerate(u):
                    at_memory = self.builder.add(at, I64(self.recipe.hidden + j * emit.width))
                    old = self.load_plain(emit, m, at_memory)
                    self.store_plain(emit, m, at_memory, emit.fma(factors, value, old))

    def emit_backward(self) -> str:
        with self.times() as t:
            with self.loop(self.begin, self.end, 1) as b:
                self.memory_gradient(t, b)
            self.multiply("dheads", t, "matrix.heads", "dz", t)
            with self.loop(self.begin, self.end, 1) as b:
                self.hidden_gradient(t, b)
            self.multiply("da", t, "matrix.state", "state_gradient", t)
            with self.loop(self.begin, self.end, 1) as b:
                self.carry_gradient(t, b)
        return self.finish()

    def memory_gradient(self, t: ir.Value, b: ir.Value) -> None:
        """The gradients of the heads; zeros at a padded step."""
        heads, bias = self.row("heads", t, b), self.row("bias", t, b)
        carry, gradient = self.row("carry", t, b), self.row("dheads", t, b)
        width = 2 * self.recipe.heads + 4 * self.recipe.root
        zero = lambda emit, at: self.store_plain(emit, gradient, at, emit.number(0.0))  # noqa: E731
        self.along((I64(0), I64(width)), zero)
        with self.builder.if_then(self.flag("mask", t, b, absent=True)):
            for side in self.recipe.sides:
                self.write_gradient(heads, bias, carry, gradient, *side)

    def write_gradient(
        self,
        heads: ir.Value,
        bias: ir.Value,
        carry: ir.Value,
        gradient: ir.Value,
        strengths: int,
        p: int,
        scale: float,
    ) -> None:
        one, root = self.one, self.recipe.root
        q = self.read_all(heads, bias, p + root)
        for i in range(self.recipe.heads):
            inverse_scale, fifth, along_u = self.sums_in_range(heads, bias, p, q, i, carry)
            norm = self.norm(fifth, inverse_scale)
            strength = self.strength(heads, bias, strengths + i)
            scaled = one.emit_div(one.number(scale), norm)
            self.store_strength(gradient, heads, bias, strengths + i, one.emit_mul(scaled, along_u))
            # A norm at its lower limit is a constant.
            free = self.builder.fcmp_ordered(">", norm, self.least_norm(inverse_scale))
            norm_factor = self.builder.select(free, one.emit_div(along_u, fifth), one.number(0.0))
            factor = self.broadcast(one.emit_mul(one.emit_mul(scaled, strength), inverse_scale))
            with self.rows_of(i) as (r, at):
                products = self.products_of(heads, bias, p, r, q, inverse_scale)
                p_r = self.broadcast(self.read_one(heads, bias, self.builder.add(r, I64(p))))
                factors = factor, self.broadcast(norm_factor)
                self.row_gradient(carry, gradient, (p, p_r, r), zip(products, q, strict=True), at, factors)

    def row_gradient(self, carry, gradient, p_and_row, products, at, factors) -> None:
        """du of one row of p q^T, and what it contributes to dp and dq."""
        emit, root = self.wide, self.recipe.root
        (p, p_r, r), (factor, norm_factor) = p_and_row, factors
        total = emit.number(0.0)
        for j, (u, q_j) in enumerate(products):
            at_memory = self.builder.add(at, I64(self.recipe.hidden + j * emit.width))
            d = self.load_plain(emit, carry, at_memory)
            cube = emit.emit_mul(emit.emit_mul(u, u), emit.intrinsic("llvm.fabs", u))
            by_norm = emit.emit_mul(emit.emit_mul(u, cube), norm_factor)
            du = emit.emit_mul(factor, emit.emit_sub(d, by_norm))
            if self.recipe.relu:
                du = self.builder.select(
                    self.builder.fcmp_ordered(">", u, emit.number(0.0)), du, emit.number(0.0)
                )
            total = emit.fma(du, q_j, total)
            dq = I64(p + root + j * emit.width)
            self.store_plain(emit, gradient, dq, emit.fma(du, p_r, self.load_plain(emit, gradient, dq)))
        self.store_plain(self.one, gradient, self.builder.add(r, I64(p)), self.total(total))

    def hidden_gradient(self, t: ir.Value, b: ir.Value) -> None:
        """da = dh where h > 0, else 0."""
        carry, dz, dy, da = (self.row(name, t, b) for name in ("carry", "dz", "dy", "da"))
        z, real = self.row("z", t, b), self.flag("mask", t, b, absent=True)

        def hidden(emit: Emitter, at: ir.Value) -> None:
            above = emit.emit_add(self.load_plain(emit, carry, at), self.load_plain(emit, dy, at))
            above = emit.emit_add(above, self.load_plain(emit, dz, at))
            off = self.builder.fcmp_ordered("<=", self.load_plain(emit, z, at), emit.number(0.0))
            above = self.builder.select(off, emit.number(0.0), above)
            self.store_plain(emit, inside, at, self.builder.select(real, above, emit.number(0.0)))

        inside = da if self.recipe.eps is None else self.row("dnorm", t, b)
        self.along(self.hidden, hidden)
        if self.recipe.eps is not None:
            self.norm_gradient(t, b, da, real)

    def norm_gradient(self, t: ir.Value, b: ir.Value, da: ir.Value, real: ir.Value) -> None:
        above, gain, normed = (self.row(name, t, b) for name in ("dnorm", "gain", "normed"))
        rate = self.load_plain(self.one, self.row("rate", t, b), I64(0))

        def scaled(emit: Emitter, at: ir.Value) -> ir.Value:
            return emit.emit_mul(self.load_plain(emit, above, at), self.load_plain(emit, gain, at))

        def along_n(emit: Emitter, at: ir.Value) -> ir.Value:
            return emit.emit_mul(scaled(emit, at), self.load_plain(emit, normed, at))

        mean, slope = self.mean(scaled), self.mean(along_n)

        def gradient(emit: Emitter, at: ir.Value) -> None:
            by_variance = emit.emit_mul(self.load_plain(emit, normed, at), broadcast(emit, slope))
            rest = emit.emit_sub(emit.emit_sub(scaled(emit, at), broadcast(emit, mean)), by_variance)
            made = emit.emit_mul(rest, broadcast(emit, rate))
            self.store_plain(emit, da, at, self.builder.select(real, made, emit.number(0.0)))

        self.along(self.hidden, gradient)

    def mean(self, part: Part) -> ir.Value:
        """The mean of `part` over the hidden channels."""
        total = self.sum_along(self.hidden, part)
        return self.one.emit_div(total, self.one.number(float(self.recipe.hidden)))

    def carry_gradient(self, t: ir.Value, b: ir.Value) -> None:
        """The gradient of S_{t-1}; zero at a reset, unchanged at a padded step."""
        carry, dz, by_product = (self.row(name, t, b) for name in ("carry", "dz", "state_gradient"))
        real, reset = self.flag("mask", t, b, absent=True), self.flag("resets", t, b)

        def put(emit: Emitter, at: ir.Value, value: ir.Value) -> None:
            value = self.builder.select(real, value, self.load_plain(emit, carry, at))
            self.store_plain(emit, carry, at, self.builder.select(reset, emit.number(0.0), value))

        def hidden(emit: Emitter, at: ir.Value) -> None:
            put(emit, at, self.load_plain(emit, by_product, at))

        def memory(emit: Emitter, at: ir.Value) -> None:
            total = emit.emit_add(self.load_plain(emit, carry, at), self.load_plain(emit, dz, at))
            put(emit, at, emit.emit_add(total, self.load_plain(emit, by_product, at)))

        self.along(self.hidden, hidden)
        self.along(self.memory, memory)

    def state_rows(self, t: ir.Value, b: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The row of S before the step (zeros at a reset), the row after it, and whether there is a reset."""
        old_slot, new_slot = self.slots(t)
        reset = self.flag("resets", t, b)
        old = self.builder.select(reset, self.row("zeros", t, b), self.row("state", old_slot, b))
        return old, self.row("state", new_slot, b), reset

    def read_one(self, heads: ir.Value, bias: ir.Value, at: ir.Value) -> ir.Value:
        one = self.one
        return one.emit_add(self.load_plain(one, heads, at), self.load_plain(one, bias, at))

    def read_all(self, heads: ir.Value, bias: ir.Value, start: int) -> list[ir.Value]:
        """All of q, as vectors."""
        emit = self.wide
        starts = [I64(start + j) for j in range(0, self.recipe.root, emit.width)]
        return [
            emit.emit_add(self.load_plain(emit, heads, at), self.load_plain(emit, bias, at)) for at in starts
        ]

    def strength(self, heads: ir.Value, bias: ir.Value, at: int) -> ir.Value:
        value = self.read_one(heads, bias, I64(at))
        return self.one.emit_maximum(value, self.one.number(0.0)) if self.recipe.relu else value

    def store_strength(self, gradient, heads, bias, at: int, value: ir.Value) -> None:
        if self.recipe.relu:
            on = self.builder.fcmp_ordered(">", self.read_one(heads, bias, I64(at)), self.one.number(0.0))
            value = self.builder.select(on, value, self.one.number(0.0))
        self.store_plain(self.one, gradient, I64(at), value)

    def products_of(
        self, heads, bias, p: int, r: ir.Value, q: list[ir.Value], inverse_scale: ir.Value
    ) -> list[ir.Value]:
        """Row r of g(p q^T), divided by the scale."""
        emit = self.wide
        p_r = self.read_one(heads, bias, self.builder.add(r, I64(p)))
        p_r = self.broadcast(self.one.emit_mul(p_r, inverse_scale))
        u = [emit.emit_mul(p_r, q_j) for q_j in q]
        return [emit.emit_maximum(value, emit.number(0.0)) for value in u] if self.recipe.relu else u

    def sums_in_range(self, heads, bias, p: int, q: list[ir.Value], i: int, carry: ir.Value | None):
        """Return 1 / scale, and the `sums` computed with it.

        A scale of 1 is tried first: it suits almost all heads, and these do not run the loop over u twice.
        """
        build, one = self.builder, self.one
        fifth, along_u = self.sums(heads, bias, p, q, i, carry, one.number(1.0))
        with build.goto_entry_block():
            variables = [build.alloca(one.vector) for _ in range(3)]
        for variable, value in zip(variables, (one.number(1.0), fifth, along_u), strict=True):
            build.store(value, variable)
        overflows = build.fcmp_ordered("==", fifth, one.number(math.inf))
        underflows = build.fcmp_ordered("<", fifth, one.number(UNDERFLOW[self.recipe.bits]))
        with build.if_then(build.or_(overflows, underflows), likely=False):
            inverse_scale = self.inverse_scale(overflows, self.largest(heads, bias, p, q, i))
            fifth, along_u = self.sums(heads, bias, p, q, i, carry, inverse_scale)
            # The norm is too large for the format: it stays infinite.
            fifth = build.select(overflows, one.number(math.inf), fifth)
            for variable, value in zip(variables, (inverse_scale, fifth, along_u), strict=True):
                build.store(value, variable)
        return tuple(build.load(variable, typ=one.vector) for variable in variables)

    def inverse_scale(self, overflows: ir.Value, largest: ir.Value) -> ir.Value:
        """1 / scale if a scale of 1 does not suit; 0 if nothing is to be written."""
        build, one = self.builder, self.one
        smallest = one.emit_maximum(largest, one.number(LEAST_NORM))
        # An infinite product of p and q is left as it is: it becomes NaN, which users notice.
        infinite = build.fcmp_ordered("==", largest, one.number(math.inf))
        silent = build.select(infinite, one.number(1.0), one.number(0.0))
        return build.select(overflows, silent, one.emit_div(one.number(1.0), smallest))

    def largest(self, heads, bias, p: int, q: list[ir.Value], i: int) -> ir.Value:
        """max_j |u_ij|."""
        emit, one, build = self.wide, self.one, self.builder
        with build.goto_entry_block():
            maximum = build.alloca(emit.vector)
        build.store(emit.number(0.0), maximum)
        with self.rows_of(i) as (r, _):
            found = build.load(maximum, typ=emit.vector)
            for u in self.products_of(heads, bias, p, r, q, one.number(1.0)):
                found = emit.emit_maximum(found, emit.intrinsic("llvm.fabs", u))
            build.store(found, maximum)
        return self.fold(one.emit_maximum, build.load(maximum, typ=emit.vector))

    def sums(self, heads, bias, p: int, q: list[ir.Value], i: int, carry: ir.Value | None, inverse_scale):
        """sum_j |u_ij|^5 and, if there is a gradient, sum_j d_j u_ij."""
        emit, build = self.wide, self.builder
        with build.goto_entry_block():
            variables = [build.alloca(emit.vector) for _ in range(2)]
        for variable in variables:
            build.store(emit.number(0.0), variable)
        with self.rows_of(i) as (r, at):
            fifth, along_u = (build.load(variable, typ=emit.vector) for variable in variables)
            for j, u in enumerate(self.products_of(heads, bias, p, r, q, inverse_scale)):
                square = emit.emit_mul(u, u)
                fourth = emit.emit_mul(square, square)
                fifth = emit.fma(fourth, emit.intrinsic("llvm.fabs", u), fifth)
                if carry is not None:
                    at_memory = build.add(at, I64(self.recipe.hidden + j * emit.width))
                    along_u = emit.fma(self.load_plain(emit, carry, at_memory), u, along_u)
            build.store(fifth, variables[0])
            build.store(along_u, variables[1])
        return tuple(self.total(build.load(variable, typ=emit.vector)) for variable in variables)

    @contextmanager
    def rows_of(self, i: int) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The rows of p q^T that belong to head i, and where each starts in m."""
        root = self.recipe.root
        many = self.recipe.memory // root
        with self.loop(I64(i * many), I64((i + 1) * many), 1) as r:
            yield r, self.builder.mul(self.builder.sub(r, I64(i * many)), I64(root))

    def norm(self, fifth: ir.Value, inverse_scale: ir.Value) -> ir.Value:
        root = self.one.emit_pow(fifth, self.one.number(0.2))
        return self.one.emit_maximum(root, self.least_norm(inverse_scale))

    def least_norm(self, inverse_scale: ir.Value) -> ir.Value:
        return self.one.emit_mul(self.one.number(LEAST_NORM), inverse_scale)

    def broadcast(self, number: ir.Value) -> ir.Value:
        return broadcast(self.wide, number)

    def total(self, vector: ir.Value) -> ir.Value:
        """The sum of a vector, in order."""
        return self.fold(self.builder.fadd, vector)
