"""A traced step with its numbers replaced by names, so that steps that differ only in numbers share kernels.

A schedule that changes zoneout at each update, or a search over an option, would otherwise compile a kernel
for each value: this takes a second, and memory that LLVM's optimiser never frees (docs/log.md).

Multiples of one half stay in the code: 0, 1, 2 and 0.5 are usually part of the equations and not values of
options. Exponents stay, too, because the compiler turns some powers into products.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from linnet.program.graph import Graph
from linnet.program.trace import Traced


class Pattern(NamedTuple):
    """`traced` with names instead of `numbers`."""

    traced: Traced
    numbers: tuple[float, ...]


def number_name(i: int) -> str:
    # With a space, so that no part of a unit has the same name.
    return f"number {i}"


def pattern_of(traced: Traced) -> Pattern:
    extractor = NumberExtractor()
    forward, backward = extractor.graph(traced.forward), extractor.graph(traced.backward)
    return Pattern(replace(traced, forward=forward, backward=backward), tuple(extractor.names))


class NumberExtractor:
    """Replaces numbers in graphs by names; equal numbers get one name."""

    def __init__(self) -> None:
        self.names: dict[float, str] = {}

    def graph(self, graph: Any) -> Any:
        kind = "nodes" if isinstance(graph, Graph) else "lines"
        lines = tuple(map(self.line, getattr(graph, kind)))
        outputs = tuple((name, self.operand(value)) for name, value in graph.outputs)
        return replace(graph, **{kind: lines}, outputs=outputs)

    def line(self, line: Any) -> Any:
        if line.op == "pow":
            return line
        return replace(line, operands=tuple(map(self.operand, line.operands)))

    def operand(self, operand: Any) -> Any:
        if not isinstance(operand, float) or stays_in_code(operand):
            return operand
        return self.names.setdefault(operand, number_name(len(self.names)))


def stays_in_code(number: float) -> bool:
    """A multiple of one half, infinity or NaN."""
    doubled = 2 * number
    return not (abs(doubled) < 2**52) or doubled == int(doubled)
