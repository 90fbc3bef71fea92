"""A loop over numbers in floating point as one over whole numbers, with its roundings written out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from linnet.deploy.integer.formats import LARGEST, Format, format_for
from linnet.deploy.integer.tables import FLAT, Tables
from linnet.deploy.step.models import CannotExport
from linnet.program.loops import Access, Line, Local, Loop, Operand, Store

# Aligned numbers have at most this many bits more than 16, so that two of them can be added.
MOST_ALIGNED = 14
# tanh of a number with this many digits more than its common table reads has a table of its own: close to 0,
# each digit of x is one of tanh(x).
MOST_LOST = 3
COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")
LOGICAL = ("logical_and", "logical_or", "logical_not")
ADDED, CHOSEN = ("add", "sub"), ("maximum", "minimum")
SAME_FORMAT = ("neg", "abs", "copy")
# Functions of one variable, or of one variable and a constant.
FUNCTIONS = ("sigmoid", "tanh", "exp", "log", "sqrt", "sin", "cos", "expm1", "log1p", "pow", "div")
INSTEAD = "export this model in int8 with float32 gates (int8=True)"


def check_loop(loop: Loop) -> None:
    """Raise for what has no form in whole numbers, before a model is calibrated."""
    if loop.folds:
        raise CannotExport(
            f"sums and maxima over channels, as in norms, have no form in whole numbers yet; {INSTEAD}"
        )
    if any(access.truth for access in (*loop.accesses, *(store.target for store in loop.stores))):
        raise CannotExport("a step that keeps truth values has no form in whole numbers")
    if any(store.adds for store in loop.stores):
        raise CannotExport("a step that adds to what it stores has no form in whole numbers")


class Value(NamedTuple):
    """An operand, and its format; None: a truth value."""

    operand: Operand
    format: Format | None

    @property
    def fraction(self) -> int:
        if self.format is None:
            raise CannotExport("a step that computes with truth values has no form in whole numbers")
        return self.format.fraction


class LoopLowering:
    """ranges      the largest values of the loop's variables
    format_of   the format of what an access reads or writes
    """

    def __init__(
        self, loop: Loop, ranges: Mapping[str, float], format_of: Callable[[Access], Format], tables: Tables
    ):
        self.loop, self.ranges, self.format_of, self.tables = loop, ranges, format_of, tables
        self.lines: list[Line] = []
        self.known: dict[str, Value] = {}
        # Names of variables that no step has: v1000, ...
        self.unnamed = 1000

    def result(self) -> Loop:
        for line in self.loop.lines:
            self.known[line.result] = self.lower(line)
        stores = tuple(self.store(store) for store in self.loop.stores)
        return Loop(self.loop.shape, tuple(self.lines), (), stores)

    # ----------------------------------------------------------------------------------- operands

    def value(self, operand: Operand) -> Value | float:
        if isinstance(operand, Local):
            return self.known[operand.name]
        if not isinstance(operand, Access):
            return float(operand)
        return Value(operand, self.format_of(operand))

    def emit(self, op: str, *operands: Operand, name: str | None = None) -> Local:
        if name is None:
            name, self.unnamed = f"v{self.unnamed}", self.unnamed + 1
        self.lines.append(Line(name, op, operands))
        return Local(name)

    def rescaled(self, operand: Operand, places: int, limit: int = LARGEST, name: str | None = None) -> Local:
        return self.emit("rescaled", operand, float(places), float(limit), name=name)

    def at(self, value: Value | float, fraction: int) -> Operand:
        """The value in units of 2^-fraction, with up to 30 bits."""
        if isinstance(value, float):
            return float(round(value * 2.0**fraction))
        more = fraction - value.fraction
        if more == 0:
            return value.operand
        return self.emit("mul", value.operand, 2.0**more) if more > 0 else self.rescaled(value.operand, -more)

    def common_fraction(self, values: Sequence[Value | float]) -> int:
        """The finest of the fractions in which all of the values have at most 30 bits."""
        fractions = [value.fraction for value in values if isinstance(value, Value)]
        most = [fraction + MOST_ALIGNED for fraction in fractions]
        sizes = [abs(value) for value in values if isinstance(value, float) and value]
        most += [MOST_ALIGNED + 15 - math.ceil(math.log2(size)) for size in sizes]
        return min(max(fractions), *most)

    # --------------------------------------------------------------------------------------- lines

    def lower(self, line: Line) -> Value:
        values = [self.value(operand) for operand in line.operands]
        varying = [value for value in values if isinstance(value, Value)]
        if line.op in LOGICAL:
            return Value(self.emit(line.op, *(each.operand for each in varying), name=line.result), None)
        if line.op in COMPARISONS:
            fraction = self.common_fraction(values)
            aligned = [self.at(value, fraction) for value in values]
            return Value(self.emit(line.op, *aligned, name=line.result), None)
        if line.op in SAME_FORMAT:
            return self.of_same_format(line, varying[0])
        if line.op == "sign":
            return Value(self.emit("sign", varying[0].operand, name=line.result), Format(0))
        target = format_for(line.result, self.ranges[line.result])
        if line.op in (*ADDED, *CHOSEN):
            return self.aligned(line, values, target)
        if line.op == "where":
            return self.chosen(line, values, target)
        if line.op == "mul" or (line.op == "div" and isinstance(values[1], float)):
            return self.multiplied(line, values, target)
        if line.op in FUNCTIONS and len(varying) == 1:
            return self.function(line, values, varying[0], target)
        raise CannotExport(
            f"the operation {line.op!r} of {len(varying)} variables has no form in whole numbers; {INSTEAD}"
        )

    def of_same_format(self, line: Line, x: Value) -> Value:
        if line.op == "copy":
            return Value(self.emit("copy", x.operand, name=line.result), x.format)
        # The lowest number has no counterpart among those of 16 bits.
        return Value(self.rescaled(self.emit(line.op, x.operand), 0, name=line.result), x.format)

    def aligned(self, line: Line, values: Sequence[Value | float], target: Format) -> Value:
        fraction = self.common_fraction(values)
        made = self.emit(line.op, *(self.at(value, fraction) for value in values))
        return self.rounded(line, made, fraction, target)

    def chosen(self, line: Line, values: Sequence[Value | float], target: Format) -> Value:
        condition, *others = values
        if not isinstance(condition, Value):
            raise CannotExport("a choice that is always the same has no form in whole numbers")
        varying = [value for value in others if isinstance(value, Value)]
        fraction = self.common_fraction(others) if varying else target.fraction
        made = self.emit("where", condition.operand, *(self.at(value, fraction) for value in others))
        return self.rounded(line, made, fraction, target)

    def multiplied(self, line: Line, values: Sequence[Value | float], target: Format) -> Value:
        if line.op == "div":
            assert isinstance(values[1], float)
            values = [values[0], 1 / values[1]]
        both = [self.as_factor(value) for value in values]
        made = self.emit("mul", *(each.operand for each in both))
        return self.rounded(line, made, sum(each.fraction for each in both), target)

    def as_factor(self, value: Value | float) -> Value:
        if isinstance(value, Value):
            return value
        form = format_for("a constant", abs(value), margin=1.0)
        return Value(self.at(value, form.fraction), form)

    def rounded(self, line: Line, made: Local, fraction: int, target: Format) -> Value:
        """A number of up to 31 bits as one of 16; no finer than it is."""
        kept = min(fraction, target.fraction)
        return Value(self.rescaled(made, fraction - kept, name=line.result), Format(kept))

    def function(self, line: Line, values: Sequence[Value | float], x: Value, target: Format) -> Value:
        assert x.format is not None
        read, written = FLAT.get(line.op, (x.format, target))
        if line.op == "tanh" and x.fraction > read.fraction + MOST_LOST:
            read, written = x.format, target
        numbers = {at: value for at, value in enumerate(values) if isinstance(value, float)}
        table = self.tables.name_of(line.op, numbers, read, written)
        given = self.converted(x, read)
        return Value(self.emit("interpolated", table, given, name=line.result), written)

    # -------------------------------------------------------------------------------------- stores

    def converted(self, value: Value, wanted: Format) -> Operand:
        more = wanted.fraction - value.fraction
        if more == 0 and wanted.limit == LARGEST:
            return value.operand
        if more > MOST_ALIGNED:
            raise CannotExport(
                "a value is too small in calibration for the buffer that it is written to; calibrate with "
                "longer or more typical sequences"
            )
        aligned = self.emit("mul", value.operand, 2.0**more) if more > 0 else value.operand
        return self.rescaled(aligned, max(0, -more), wanted.limit)

    def store(self, store: Store) -> Store:
        value, wanted = self.value(store.value), self.format_of(store.target)
        if isinstance(value, float):
            limit = wanted.limit
            number = max(-limit - 1, min(limit, round(value * 2.0**wanted.fraction)))
            return Store(store.target, float(number))
        return Store(store.target, self.converted(value, wanted))
