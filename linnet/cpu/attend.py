"""Attention of single queries to a memory, with any pointwise score function: forward and two gradients.

    s_i = sum_j w_j f(q_j, k_ij)      a = softmax of s where the mask is true      c_j = sum_i a_i v_ij

f is traced, and so is its gradient. Given dc and da,

    e_i = sum_j dc_j v_ij + da_i      ds_i = a_i (e_i - sum_l a_l e_l)
    dq_j = sum_i df/dq (ds_i w_j)     dk_ij = df/dk (ds_i w_j)
    dw_j = sum_i ds_i f(q_j, k_ij)    dv_ij = a_i dc_j

A recurrence needs dq step by step, so `query` computes only that. The others are sums over the steps, and
`memory` computes them for all steps at once. Both compute f again, which is faster than loading it.

A unit of work is a row of the batch in one head. If its channels do not divide into whole vectors, the last
vector overlaps the one before, and only its new channels count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from linnet.cpu.emit import Emitter, Format
from linnet.cpu.gemm import I32, I64, PTR, broadcast, loop
from linnet.program.trace import Traced

I8 = ir.IntType(8)
SIZES = ("steps", "rows", "group", "heads", "length", "size", "mask")
READ = ("q", "k", "v", "w", "a")
OPERANDS = {
    "attend": (*READ, "c"),
    "query": (*READ, "dc", "da", "ds", "dq"),
    "memory": (*READ, "dc", "da", "ds", "dk", "dv", "dw"),
}


@dataclass(frozen=True)
class AttendRecipe:
    """Everything a kernel depends on: the traced f(q, k), the format of numbers, the width of vectors."""

    traced: Traced
    bits: int
    width: int
    name: str

    def __repr__(self) -> str:
        graphs = f"{self.traced.forward}\n{self.traced.backward}"
        return f"AttendRecipe({graphs!r}, {self.bits}, {self.width}, {self.name!r})"


def emit(recipe: AttendRecipe) -> str:
    return AttendKernel(recipe).emit()


class AttendKernel:
    """void name(first unit, last, arguments): SIZES, then the address of each operand.

    All operands are contiguous: q, c, dc [steps, rows, heads, size]; a, da, ds [steps, rows, heads, length];
    k, v [rows / group, heads, length, size]; w [size]; dw [rows, heads, size]. `group` rows share a memory;
    `steps` is 1 except in "memory". mask is 0 or the address of bytes [rows / group, length].
    """

    def __init__(self, recipe: AttendRecipe):
        self.recipe, self.form = recipe, Format(recipe.bits)
        self.module = ir.Module(recipe.name)
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64, I64, PTR]), recipe.name)
        self.begin, self.end, arguments = function.args
        self.build = build = ir.IRBuilder(function.append_basic_block("entry"))
        names = (*SIZES, *OPERANDS[recipe.name])
        self.given = {
            name: build.load(build.gep(arguments, [I64(i)], source_etype=I64), typ=I64)
            for i, name in enumerate(names)
        }
        self.wide, self.one = Emitter(build, self.form, recipe.width), Emitter(build, self.form, 1)
        self.size, self.length = self.given["size"], self.given["length"]

    def emit(self) -> str:
        bodies: dict[str, Callable[[ir.Value], None]] = {
            "attend": self.attend,
            "query": self.query_gradient,
            "memory": self.memory_gradient,
        }
        with loop(self.build, self.begin, self.end, I64(1)) as unit:
            bodies[self.recipe.name](unit)
        self.build.ret_void()
        return str(self.module)

    # ---------------------------------------------------------------------------------- the three kernels

    def attend(self, unit: ir.Value) -> None:
        q, c = (self.at(name, unit, self.size) for name in ("q", "c"))
        a, w, k, v = self.at("a", unit, self.length), self.at("w"), *self.memory_of(unit)
        real = self.mask_of(unit)
        lowest = self.one.number(float("-inf"))
        with loop(self.build, I64(0), self.length, I64(1)) as i:
            row = self.moved(k, self.build.mul(i, self.size))
            with self.build.if_else(real(i)) as (yes, no):
                with yes:
                    self.store(self.one, a, i, self.score(q, row, w))
                with no:
                    self.store(self.one, a, i, lowest)
        self.softmax(a)
        self.clear(c)
        with loop(self.build, I64(0), self.length, I64(1)) as i:
            self.add_multiple(c, self.load(self.one, a, i), self.moved(v, self.build.mul(i, self.size)))

    def query_gradient(self, unit: ir.Value) -> None:
        k, v = self.memory_of(unit)
        q, dc, dq = (self.at(name, unit, self.size) for name in ("q", "dc", "dq"))
        w, ds = self.at("w"), self.score_gradients(unit, v, dc)
        self.clear(dq)
        with loop(self.build, I64(0), self.length, I64(1)) as i:
            row, above = self.moved(k, self.build.mul(i, self.size)), self.load(self.one, ds, i)

            def body(
                emit: Emitter, at: ir.Value, new: Any, row: ir.Value = row, above: ir.Value = above
            ) -> None:
                gradients = self.gradients(emit, q, row, w, at, above)
                self.add_to(emit, dq, at, gradients["d.q"], new)

            self.along(self.size, body)

    def memory_gradient(self, unit: ir.Value) -> None:
        build, units = self.build, self.build.mul(self.given["rows"], self.given["heads"])
        whole = build.mul(self.length, self.size)
        dk, dv = (self.at(name, unit, whole) for name in ("dk", "dv"))
        dw, w, (k, v) = self.at("dw", unit, self.size), self.at("w"), self.memory_of(unit)
        for row, count in ((dk, whole), (dv, whole), (dw, self.size)):
            self.clear(row, count)
        with loop(build, I64(0), self.given["steps"], I64(1)) as t:
            now = build.add(build.mul(t, units), unit)
            q, dc = (self.at(name, now, self.size) for name in ("q", "dc"))
            a, ds = self.at("a", now, self.length), self.score_gradients(now, v, dc)
            with loop(build, I64(0), self.length, I64(1)) as i:
                offset = build.mul(i, self.size)
                k_i, dk_i, dv_i = (self.moved(rows, offset) for rows in (k, dk, dv))
                above, share = self.load(self.one, ds, i), self.load(self.one, a, i)

                def body(
                    emit: Emitter,
                    at: ir.Value,
                    new: Any,
                    k_i: ir.Value = k_i,
                    dk_i: ir.Value = dk_i,
                    dv_i: ir.Value = dv_i,
                ) -> None:
                    # Load everything before the first store: the compiler would compute f again after it.
                    gradient = self.gradients(emit, q, k_i, w, at, above)["d.k"]
                    value = emit.emit_mul(broadcast(emit, above), self.value(emit, q, k_i, at))
                    read = emit.emit_mul(broadcast(emit, share), self.load(emit, dc, at))
                    self.add_to(emit, dk_i, at, gradient, new)
                    self.add_to(emit, dw, at, value, new)
                    self.add_to(emit, dv_i, at, read, new)

                self.along(self.size, body)

    # --------------------------------------------------------------------------------- parts of the kernels

    def score(self, q: ir.Value, k: ir.Value, w: ir.Value) -> ir.Value:
        """sum_j w_j f(q_j, k_j)"""
        return self.total(
            self.size, lambda emit, at: emit.emit_mul(self.load(emit, w, at), self.value(emit, q, k, at))
        )

    def value(self, emit: Emitter, q: ir.Value, k: ir.Value, at: ir.Value) -> ir.Value:
        inputs = {"q": self.load(emit, q, at), "k": self.load(emit, k, at)}
        return emit.run(self.recipe.traced.forward, inputs)["y"]

    def gradients(
        self, emit: Emitter, q: ir.Value, k: ir.Value, w: ir.Value, at: ir.Value, above: ir.Value
    ) -> dict[str, ir.Value]:
        """The gradients of q and k, given that of the score."""
        dy = emit.emit_mul(broadcast(emit, above), self.load(emit, w, at))
        inputs = {"q": self.load(emit, q, at), "k": self.load(emit, k, at), "dy": dy}
        return emit.run(self.recipe.traced.backward, inputs)

    def score_gradients(self, unit: ir.Value, v: ir.Value, dc: ir.Value) -> ir.Value:
        """Compute ds into its buffer."""
        one, (a, da, ds) = self.one, (self.at(name, unit, self.length) for name in ("a", "da", "ds"))
        with loop(self.build, I64(0), self.length, I64(1)) as i:
            row = self.moved(v, self.build.mul(i, self.size))
            e = self.total(
                self.size, lambda emit, at: emit.emit_mul(self.load(emit, dc, at), self.load(emit, row, at))
            )
            self.store(one, ds, i, one.emit_add(e, self.load(one, da, i)))
        mean = self.total(
            self.length, lambda emit, at: emit.emit_mul(self.load(emit, a, at), self.load(emit, ds, at))
        )

        def body(emit: Emitter, at: ir.Value) -> None:
            apart = emit.emit_sub(self.load(emit, ds, at), broadcast(emit, mean))
            self.store(emit, ds, at, emit.emit_mul(self.load(emit, a, at), apart))

        self.one_by_one(self.length, body)
        return ds

    def softmax(self, a: ir.Value) -> None:
        one = self.one
        highest = self.fold(
            self.length, one.number(float("-inf")), lambda m, i: one.emit_maximum(m, self.load(one, a, i))
        )

        def power(emit: Emitter, at: ir.Value) -> None:
            self.store(
                emit, a, at, emit.emit_exp(emit.emit_sub(self.load(emit, a, at), broadcast(emit, highest)))
            )

        self.one_by_one(self.length, power)
        total = self.fold(self.length, one.number(0.0), lambda m, i: one.emit_add(m, self.load(one, a, i)))

        def divide(emit: Emitter, at: ir.Value) -> None:
            self.store(emit, a, at, emit.emit_div(self.load(emit, a, at), broadcast(emit, total)))

        self.one_by_one(self.length, divide)

    def add_multiple(self, target: ir.Value, factor: ir.Value, row: ir.Value) -> None:
        def body(emit: Emitter, at: ir.Value, new: Any) -> None:
            self.add_to(
                emit, target, at, emit.emit_mul(broadcast(emit, factor), self.load(emit, row, at)), new
            )

        self.along(self.size, body)

    def add_to(self, emit: Emitter, row: ir.Value, at: ir.Value, value: ir.Value, new: Any) -> None:
        """`new`: which channels count; None for all."""
        if new is not None:
            value = self.build.select(new, value, emit.number(0.0))
        self.store(emit, row, at, emit.emit_add(self.load(emit, row, at), value))

    def clear(self, row: ir.Value, count: ir.Value | None = None) -> None:
        self.one_by_one(
            self.size if count is None else count,
            lambda emit, at: self.store(emit, row, at, emit.number(0.0)),
        )

    # ---------------------------------------------------------------------------------------------- loops

    def one_by_one(self, count: ir.Value, body: Callable[[Emitter, ir.Value], None]) -> None:
        """Run `body` for whole vectors, then for each remaining number."""
        whole = self.build.sub(count, self.build.urem(count, I64(self.wide.width)))
        with loop(self.build, I64(0), whole, I64(self.wide.width)) as at:
            body(self.wide, at)
        with loop(self.build, whole, count, I64(1)) as at:
            body(self.one, at)

    def along(self, count: ir.Value, body: Callable[[Emitter, ir.Value, Any], None]) -> None:
        """Run `body` for whole vectors, then for one that overlaps the last of them.

        Fewer channels than a vector has are taken one by one.
        """
        build, width = self.build, I64(self.wide.width)
        rest = build.urem(count, width)
        whole = build.sub(count, rest)
        with loop(build, I64(0), whole, width) as at:
            body(self.wide, at, None)
        left = build.icmp_signed("!=", rest, I64(0))
        many = build.icmp_signed(">", count, width)
        with build.if_then(build.and_(left, many)):
            body(self.wide, build.sub(count, width), self.new_lanes(rest))
        # Fewer channels than a vector: `whole` is 0.
        with loop(build, I64(0), build.select(many, I64(0), rest), I64(1)) as at:
            body(self.one, at, None)

    def new_lanes(self, rest: ir.Value) -> ir.Value:
        """The last `rest` lanes of a vector."""
        build, width = self.build, self.wide.width
        numbers = ir.VectorType(I64, width)
        undefined = ir.Constant(numbers, ir.Undefined)
        first = build.insert_element(undefined, build.sub(I64(width), rest), I32(0))
        everywhere = ir.Constant(ir.VectorType(I32, width), [I32(0)] * width)
        first_lanes = build.shuffle_vector(first, undefined, everywhere)
        return build.icmp_signed(">=", ir.Constant(numbers, [I64(i) for i in range(width)]), first_lanes)

    def total(self, count: ir.Value, part: Callable[[Emitter, ir.Value], ir.Value]) -> ir.Value:
        """The sum of `part` over all channels."""
        build = self.build
        with build.goto_entry_block():
            sums = {emit.width: build.alloca(emit.vector) for emit in (self.wide, self.one)}
        for emit in (self.wide, self.one):
            build.store(emit.number(0.0), sums[emit.width])

        def body(emit: Emitter, at: ir.Value, new: Any) -> None:
            value = part(emit, at)
            if new is not None:
                value = build.select(new, value, emit.number(0.0))
            build.store(emit.emit_add(build.load(sums[emit.width]), value), sums[emit.width])

        self.along(count, body)
        vector = build.load(sums[self.wide.width])
        return self.one.emit_add(self.across(vector), build.load(sums[1]))

    def across(self, vector: ir.Value) -> ir.Value:
        """The sum of the numbers of a vector."""
        kind = ir.FunctionType(self.form.scalar, [self.form.scalar, vector.type])
        name = f"llvm.vector.reduce.fadd.v{self.wide.width}f{self.form.bits}"
        known = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return self.build.call(known, [self.one.number(0.0), vector], fastmath=("reassoc",))

    def fold(
        self, count: ir.Value, start: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> ir.Value:
        build = self.build
        with build.goto_entry_block():
            kept = build.alloca(self.form.scalar)
        build.store(start, kept)
        with loop(build, I64(0), count, I64(1)) as i:
            build.store(join(build.load(kept), i), kept)
        return build.load(kept)

    # ------------------------------------------------------------------------------------------- addresses

    def at(self, name: str, unit: ir.Value | None = None, wide: ir.Value | None = None) -> ir.Value:
        """The row of an operand that belongs to a unit."""
        address = self.build.inttoptr(self.given[name], PTR)
        return address if unit is None else self.moved(address, self.build.mul(unit, wide))

    def memory_of(self, unit: ir.Value) -> tuple[ir.Value, ir.Value]:
        build, heads = self.build, self.given["heads"]
        row = build.udiv(build.udiv(unit, heads), self.given["group"])
        index = build.add(build.mul(row, heads), build.urem(unit, heads))
        whole = build.mul(self.length, self.size)
        return self.at("k", index, whole), self.at("v", index, whole)

    def mask_of(self, unit: ir.Value) -> Callable[[ir.Value], ir.Value]:
        build, address = self.build, self.given["mask"]
        row = build.udiv(build.udiv(unit, self.given["heads"]), self.given["group"])
        there = build.icmp_signed("!=", address, I64(0))
        # Without a mask, read any valid address and ignore the value.
        start = build.select(there, build.add(address, build.mul(row, self.length)), self.given["w"])

        def real(i: ir.Value) -> ir.Value:
            at = build.select(there, build.add(start, i), start)
            byte = build.load(build.inttoptr(at, PTR), typ=I8)
            return build.or_(build.icmp_unsigned("!=", byte, I8(0)), build.not_(there))

        return real

    def moved(self, row: ir.Value, numbers: ir.Value) -> ir.Value:
        return self.build.gep(row, [numbers], source_etype=self.form.scalar)

    def load(self, emit: Emitter, row: ir.Value, at: ir.Value) -> ir.Value:
        return self.build.load(self.moved(row, at), align=self.form.bits // 8, typ=emit.vector)

    def store(self, emit: Emitter, row: ir.Value, at: ir.Value, value: ir.Value) -> None:
        self.build.store(value, self.moved(row, at), align=self.form.bits // 8)
