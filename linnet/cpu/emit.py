"""LLVM for a list of pointwise operations, on vectors of any width.

The elementary functions are written out here, so that they inline and vectorise: range reduction to
|r| <= ln(2)/2 and a polynomial, with errors of one or two units in the last place. NaN and infinity
are treated as in torch: comparisons are ordered such that NaN is preserved, and the only relaxation of
floating-point rules is that a product and a sum may be contracted into one instruction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llvmlite import ir

from linnet.program.trace import Operand, Pointwise

CONTRACT = ("contract",)
COMPARISONS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
INTRINSICS = {"abs": "llvm.fabs", "sqrt": "llvm.sqrt", "floor": "llvm.floor"}
LIBRARY = {"log": "llvm.log", "sin": "llvm.sin", "cos": "llvm.cos"}


class Format:
    """The constants of float32 or float64 for the elementary functions."""

    def __init__(self, bits: int):
        self.bits = bits
        self.scalar = ir.FloatType() if bits == 32 else ir.DoubleType()
        self.integer = ir.IntType(bits)
        self.fraction = 23 if bits == 32 else 52
        self.bias = 127 if bits == 32 else 1023
        # Adding and subtracting this rounds to a whole number.
        self.rounder = 1.5 * 2**self.fraction
        self.terms = 7 if bits == 32 else 13
        # ln(2) in two parts, the first with so few digits that its integer multiples are exact.
        self.ln2_high = 0.693145751953125 if bits == 32 else 0.6931471803691238
        self.ln2_low = math.log(2) - 0.693145751953125 if bits == 32 else 1.9082149292705877e-10
        self.exp_high, self.exp_low = (89.0, -104.0) if bits == 32 else (710.0, -746.0)
        # Beyond this exp(x) - 1 is exp(x), and tanh(x / 2) is 1.
        self.tanh_limit = 20.0 if bits == 32 else 44.0


class Emitter:
    """Emits operations on vectors of `width` numbers into an LLVM builder.

    With a mask, only the numbers where it is true are loaded and stored; the others are computed from zeros.
    """

    def __init__(self, builder: ir.IRBuilder, form: Format, width: int, mask: ir.Value | None = None):
        self.builder, self.form, self.width, self.mask = builder, form, width, mask
        self.vector = form.scalar if width == 1 else ir.VectorType(form.scalar, width)
        self.integers = form.integer if width == 1 else ir.VectorType(form.integer, width)

    def run(self, graph: Pointwise, inputs: Mapping[str, ir.Value]) -> dict[str, ir.Value]:
        values: dict[str, ir.Value] = dict(inputs)
        for line in graph.lines:
            operands = [self.value(operand, values) for operand in line.operands]
            values[line.result] = self.emit(line.op, operands)
        return {name: self.value(operand, values) for name, operand in graph.outputs}

    def value(self, operand: Operand, values: Mapping[str, ir.Value]) -> ir.Value:
        return values[operand] if isinstance(operand, str) else self.number(operand)

    def emit(self, op: str, operands: list[ir.Value]) -> ir.Value:
        if op in COMPARISONS:
            # Ordered, so false for NaN; only "not equal" is true for NaN.
            compare = self.builder.fcmp_unordered if op == "ne" else self.builder.fcmp_ordered
            return compare(COMPARISONS[op], *operands)
        if op in INTRINSICS or op in LIBRARY:
            return self.intrinsic((INTRINSICS | LIBRARY)[op], *operands)
        return getattr(self, f"emit_{op}")(*operands)

    def number(self, value: float) -> ir.Constant:
        one = ir.Constant(self.form.scalar, value)
        return one if self.width == 1 else ir.Constant(self.vector, [one] * self.width)

    def whole(self, value: int) -> ir.Constant:
        one = ir.Constant(self.form.integer, value)
        return one if self.width == 1 else ir.Constant(self.integers, [one] * self.width)

    def intrinsic(self, name: str, *operands: ir.Value) -> ir.Value:
        many = "" if self.width == 1 else f"v{self.width}"
        full_name = f"{name}.{many}f{self.form.bits}"
        module = self.builder.module
        if full_name not in module.globals:
            ir.Function(module, ir.FunctionType(self.vector, [self.vector] * len(operands)), full_name)
        return self.builder.call(module.globals[full_name], operands)

    def load(self, address: ir.Value, kind: ir.Type, align: int) -> ir.Value:
        """A vector or number of type `kind`, aligned to `align` bytes."""
        if self.mask is None:
            return self.builder.load(address, align=align, typ=kind)
        zeros = ir.Constant(kind, None)
        return self.masked("load", kind, kind, [address, ir.IntType(32)(align), self.mask, zeros])

    def store(self, value: ir.Value, address: ir.Value, align: int) -> None:
        if self.mask is None:
            self.builder.store(value, address, align=align)
        else:
            operands = [value, address, ir.IntType(32)(align), self.mask]
            self.masked("store", value.type, ir.VoidType(), operands)

    def masked(self, name: str, kind: ir.Type, result: ir.Type, operands: list[ir.Value]) -> ir.Value:
        scalar = f"f{self.form.bits}" if kind.element == self.form.scalar else f"i{kind.element.width}"
        full_name, module = f"llvm.masked.{name}.v{self.width}{scalar}.p0", self.builder.module
        if full_name not in module.globals:
            ir.Function(module, ir.FunctionType(result, [each.type for each in operands]), full_name)
        return self.builder.call(module.globals[full_name], operands)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self.intrinsic("llvm.fma", a, b, c)

    def emit_add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fadd(a, b, flags=CONTRACT)

    def emit_sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fsub(a, b, flags=CONTRACT)

    def emit_mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fmul(a, b, flags=CONTRACT)

    def emit_div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.fdiv(a, b)

    def emit_neg(self, a: ir.Value) -> ir.Value:
        return self.builder.fneg(a)

    def emit_maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """NaN if either is NaN, as torch.maximum."""
        larger = self.builder.select(self.builder.fcmp_unordered(">", a, b), a, b)
        return self.builder.select(self.builder.fcmp_unordered("uno", b, b), b, larger)

    def emit_minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        smaller = self.builder.select(self.builder.fcmp_unordered("<", a, b), a, b)
        return self.builder.select(self.builder.fcmp_unordered("uno", b, b), b, smaller)

    def emit_sign(self, a: ir.Value) -> ir.Value:
        zero = self.number(0.0)
        above = self.builder.select(self.builder.fcmp_ordered(">", a, zero), self.number(1.0), zero)
        return self.builder.select(self.builder.fcmp_ordered("<", a, zero), self.number(-1.0), above)

    def emit_pow(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.intrinsic("llvm.pow", a, b)

    def emit_where(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.select(condition, a, b)

    def emit_logical_and(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.and_(a, b)

    def emit_logical_or(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.builder.or_(a, b)

    def emit_logical_not(self, a: ir.Value) -> ir.Value:
        return self.builder.not_(a)

    def emit_exp(self, x: ir.Value) -> ir.Value:
        x = self.clamp(x, self.form.exp_low, self.form.exp_high)
        q, n = self.exp_reduced(x)
        # Scale in two steps, so that the ends of the range give 0, a denormal number or infinity.
        half = self.builder.ashr(n, self.whole(1))
        e = self.emit_mul(self.emit_add(self.number(1.0), q), self.power_of_two(half))
        return self.emit_mul(e, self.power_of_two(self.builder.sub(n, half)))

    def emit_sigmoid(self, x: ir.Value) -> ir.Value:
        """1 / (1 + exp(-x))."""
        # Scaling in one step is enough: at the upper end 2^n is infinite, which makes the quotient 0, and
        # below the lower end the sum is 1.
        highest, lowest = self.form.bias + 1, 1 - self.form.bias
        q, n = self.exp_reduced(self.clamp(self.emit_neg(x), lowest * math.log(2), highest * math.log(2)))
        one = self.number(1.0)
        return self.emit_div(one, self.fma(self.emit_add(one, q), self.power_of_two(n), one))

    def emit_tanh(self, x: ir.Value) -> ir.Value:
        """expm1(2x) / (expm1(2x) + 2), which is accurate around 0, too."""
        limit = self.form.tanh_limit
        e = self.near_expm1(self.clamp(self.emit_add(x, x), -limit, limit))
        return self.emit_div(e, self.emit_add(e, self.number(2.0)))

    def emit_expm1(self, x: ir.Value) -> ir.Value:
        """exp(x) - 1; far above 0, where the 1 is rounded away, exp(x)."""
        limit = self.number(self.form.tanh_limit)
        near = self.near_expm1(self.clamp(x, -2 * self.form.tanh_limit, self.form.tanh_limit))
        return self.builder.select(self.builder.fcmp_ordered(">", x, limit), self.emit_exp(x), near)

    def near_expm1(self, x: ir.Value) -> ir.Value:
        """exp(x) - 1 = (exp(r) - 1) 2^n + (2^n - 1)."""
        q, n = self.exp_reduced(x)
        scale = self.power_of_two(n)
        return self.fma(q, scale, self.emit_sub(scale, self.number(1.0)))

    def emit_log1p(self, x: ir.Value) -> ir.Value:
        """log(1 + x), corrected for the rounding error of 1 + x."""
        one = self.number(1.0)
        u = self.builder.fadd(one, x)
        lost = self.emit_div(self.builder.fsub(self.builder.fsub(u, one), x), u)
        # At the ends of the range the correction is NaN, and none is needed.
        ends = self.builder.fcmp_unordered("uno", lost, lost)
        lost = self.builder.select(ends, self.number(0.0), lost)
        return self.emit_sub(self.intrinsic("llvm.log", u), lost)

    def exp_reduced(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """q and n with exp(x) = (1 + q) 2^n: x = n ln(2) + r, q = r + r^2/2! + r^3/3! + ..."""
        rounder = self.number(self.form.rounder)
        shifted = self.fma(x, self.number(1 / math.log(2)), rounder)
        n = self.builder.sub(
            self.builder.bitcast(shifted, self.integers), self.builder.bitcast(rounder, self.integers)
        )
        times = self.emit_neg(self.builder.fsub(shifted, rounder))
        r = self.fma(times, self.number(self.form.ln2_high), x)
        r = self.fma(times, self.number(self.form.ln2_low), r)
        q = self.number(1 / math.factorial(self.form.terms))
        for term in range(self.form.terms - 1, 1, -1):
            q = self.fma(q, r, self.number(1 / math.factorial(term)))
        return self.fma(self.emit_mul(q, r), r, r), n

    def power_of_two(self, n: ir.Value) -> ir.Value:
        raised = self.builder.add(n, self.whole(self.form.bias))
        return self.builder.bitcast(self.builder.shl(raised, self.whole(self.form.fraction)), self.vector)

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """NaN stays NaN, since every ordered comparison with it is false."""
        least, most = self.number(low), self.number(high)
        x = self.builder.select(self.builder.fcmp_ordered(">", x, most), most, x)
        return self.builder.select(self.builder.fcmp_ordered("<", x, least), least, x)
