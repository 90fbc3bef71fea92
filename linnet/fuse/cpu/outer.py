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

and d p, d q follow from u = p q^T; outer_heads.py has u and n. With n = (s - mean s) / sigma and
norm(s) = gain n + shift, the gradient of s is (e - mean e - n mean(e n)) / sigma, where e is gain times the
gradient of norm(s). The gradients of W and U are single products after the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from linnet.fuse.cpu.emit import Emitter
from linnet.fuse.cpu.gemm import broadcast
from linnet.fuse.cpu.outer_heads import HeadProgram, OuterRecipe, Side
from linnet.fuse.cpu.program import I64

# Emits the values at some channels of a row: a vector of them, or a single one.
Part = Callable[[Emitter, ir.Value], ir.Value]


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


class OuterKernel(HeadProgram):
    def __init__(self, name: str, operands: tuple[str, ...], recipe: OuterRecipe):
        super().__init__(name, operands, recipe)
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
                for side in self.sides(t, b):
                    self.write(side, new)
            with padded:
                self.along((I64(0), self.memory[1]), copy(old, new))
                zero = lambda emit, at: self.store_plain(emit, y, at, emit.number(0.0))  # noqa: E731
                self.along(self.hidden, zero)

    def write(self, side: Side, m: ir.Value) -> None:
        """m += scale sum_i g(alpha_i) u_i / n_i."""
        emit, one = self.wide, self.one
        for i in range(self.recipe.heads):
            sums = self.sums_in_range(side, i)
            scaled = one.emit_mul(self.strength(side, i), one.number(side.columns.scale))
            factors = self.broadcast(one.emit_div(scaled, self.norm(sums)))
            with self.rows_of(i) as (r, at):
                for j, u in enumerate(self.products_of(side, r, sums.inverse_scale)):
                    old = self.load_plain(emit, m, self.in_memory(at, j))
                    self.store_plain(emit, m, self.in_memory(at, j), emit.fma(factors, u, old))

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
        carry, gradient = self.row("carry", t, b), self.row("dheads", t, b)
        zero = lambda emit, at: self.store_plain(emit, gradient, at, emit.number(0.0))  # noqa: E731
        self.along((I64(0), I64(self.recipe.columns)), zero)
        with self.builder.if_then(self.flag("mask", t, b, absent=True)):
            for side in self.sides(t, b):
                for i in range(self.recipe.heads):
                    self.write_gradient(side, i, carry, gradient)

    def write_gradient(self, side: Side, i: int, carry: ir.Value, gradient: ir.Value) -> None:
        one = self.one
        sums = self.sums_in_range(side, i, carry)
        norm = self.norm(sums)
        scaled = one.emit_div(one.number(side.columns.scale), norm)
        self.store_strength(side, i, gradient, one.emit_mul(scaled, sums.along_u))
        # A norm at its lower limit is a constant.
        free = self.builder.fcmp_ordered(">", norm, self.least_norm(sums))
        along_norm = self.builder.select(free, one.emit_div(sums.along_u, sums.fifth), one.number(0.0))
        factor = one.emit_mul(one.emit_mul(scaled, self.strength(side, i)), sums.inverse_scale)
        with self.rows_of(i) as (r, at):
            du = self.row_gradient(
                self.products_of(side, r, sums.inverse_scale),
                [self.load_plain(self.wide, carry, self.in_memory(at, j)) for j in range(len(side.q))],
                self.broadcast(factor),
                self.broadcast(along_norm),
            )
            self.store_row_gradient(side, r, du, gradient)

    def store_strength(self, side: Side, i: int, gradient: ir.Value, value: ir.Value) -> None:
        if self.recipe.relu:
            on = self.builder.fcmp_ordered(">", self.strength_before(side, i), self.one.number(0.0))
            value = self.builder.select(on, value, self.one.number(0.0))
        self.store_plain(self.one, gradient, I64(side.columns.strengths + i), value)

    def row_gradient(
        self, u: list[ir.Value], d: list[ir.Value], factor: ir.Value, along_norm: ir.Value
    ) -> list[ir.Value]:
        """du of one row of p q^T."""
        emit, made = self.wide, []
        for u_j, d_j in zip(u, d, strict=True):
            cube = emit.emit_mul(emit.emit_mul(u_j, u_j), emit.intrinsic("llvm.fabs", u_j))
            by_norm = emit.emit_mul(emit.emit_mul(u_j, cube), along_norm)
            du = emit.emit_mul(factor, emit.emit_sub(d_j, by_norm))
            if self.recipe.relu:
                on = self.builder.fcmp_ordered(">", u_j, emit.number(0.0))
                du = self.builder.select(on, du, emit.number(0.0))
            made.append(du)
        return made

    def store_row_gradient(self, side: Side, r: ir.Value, du: list[ir.Value], gradient: ir.Value) -> None:
        """What du of row r contributes to dp and dq."""
        emit, p, total = self.wide, side.columns.p, self.wide.number(0.0)
        p_r = self.broadcast(self.p_at(side, r))
        for j, (du_j, q_j) in enumerate(zip(du, side.q, strict=True)):
            total = emit.fma(du_j, q_j, total)
            at = I64(p + self.recipe.root + j * emit.width)
            self.store_plain(emit, gradient, at, emit.fma(du_j, p_r, self.load_plain(emit, gradient, at)))
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
