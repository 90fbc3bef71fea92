"""A traced step with its numbers taken out, so that steps which differ in those alone share their kernels.

A schedule that changes zoneout at each update, or a search over an option, would otherwise compile a kernel
for each value: a second of work, and memory that LLVM's optimiser never gives back (docs/log.md).

Numbers that are a multiple of one half stay in the code: 0, 1, 2 and 0.5 are the step's own more often than
an option's. So do exponents, since the compiler makes products of some of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from linnet.fuse.trace import Line, Operand, Pointwise, Traced


class Pattern(NamedTuple):
    """`traced` with names in the place of `numbers`."""

    traced: Traced
    numbers: tuple[float, ...]


def number_name(i: int) -> str:
    # With a space, so that no part of a unit is called the same.
    return f"number {i}"


def pattern_of(traced: Traced) -> Pattern:
    taker = Taker()
    forward, backward = taker.graph(traced.forward), taker.graph(traced.backward)
    return Pattern(replace(traced, forward=forward, backward=backward), tuple(taker.names))


class Taker:
    """Takes numbers out of graphs; equal numbers get one name."""

    def __init__(self) -> None:
        self.names: dict[float, str] = {}

    def graph(self, graph: Pointwise) -> Pointwise:
        lines = tuple(self.line(line) for line in graph.lines)
        outputs = tuple((name, self.operand(value)) for name, value in graph.outputs)
        return replace(graph, lines=lines, outputs=outputs)

    def line(self, line: Line) -> Line:
        if line.op == "pow":
            return line
        return replace(line, operands=tuple(map(self.operand, line.operands)))

    def operand(self, operand: Operand) -> Operand:
        if isinstance(operand, str) or is_plain(operand):
            return operand
        return self.names.setdefault(operand, number_name(len(self.names)))


def is_plain(number: float) -> bool:
    """A multiple of one half, infinity or NaN."""
    doubled = 2 * number
    return not (abs(doubled) < 2**52) or doubled == int(doubled)
