"""An elementwise step as a list of operations on scalars."""

from __future__ import annotations

from dataclasses import dataclass

Operand = str | float


@dataclass(frozen=True)
class Line:
    """result = op(*operands); operands are names of earlier results or of inputs, or numbers."""

    result: str
    op: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.result} = {self.op}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Pointwise:
    """A straight line of scalar operations from named inputs to named outputs."""

    inputs: tuple[str, ...]
    lines: tuple[Line, ...]
    outputs: tuple[tuple[str, Operand], ...]

    def __str__(self) -> str:
        returned = [f"{name} = {value}" for name, value in self.outputs]
        return "\n".join([f"inputs: {', '.join(self.inputs)}", *map(str, self.lines), *returned])
