"""What a step computes from its weights alone: computed once for a call, instead of at each step.

A step may say `torch.exp(-torch.exp(self.nu))`, which is the same at all steps. A scan reads such values as
further weights with one number per channel, and torch computes them before, with their gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from linnet.program.lines import Line, Operand

# Operations that take much longer than to read a number from memory. A step without any of them is not cut:
# kernels read parameters where they are, and computed weights would have to be computed at each call.
EXPENSIVE = ("exp", "log", "sqrt", "sin", "cos", "sigmoid", "tanh", "expm1", "log1p", "pow", "div")


def hoistable(lines: Sequence[Line], outputs: Collection[Operand], weights: Iterable[str]) -> list[str]:
    """The values that can be computed before the scan and are read in it; none if that does not pay.

    None of them is computed from another, or from a weight that the rest of the step reads, too: autograd
    would count the gradient of that twice.
    """
    lines, weights = needed_lines(lines, outputs), set(weights)
    static = static_values(lines, weights, set())
    while True:
        read = read_outside(lines, outputs, static | weights)
        dependent = static - static_values(lines, weights, read)
        if not dependent:
            break
        static -= dependent
    read -= weights
    made = needed_lines(lines, read)
    is_expensive = any(line.op in EXPENSIVE for line in made if line.result in static)
    return [line.result for line in lines if line.result in read] if is_expensive else []


def needed_lines(lines: Sequence[Line], outputs: Collection[Operand]) -> list[Line]:
    needed, kept = set(outputs), []
    for line in reversed(lines):
        if line.result in needed:
            kept.append(line)
            needed.update(line.operands)
    return kept[::-1]


def static_values(lines: Sequence[Line], weights: set[str], ends: set[str]) -> set[str]:
    """The results that depend on weights and on nothing else, computed from none of `ends`."""
    static: set[str] = set()
    for line in lines:
        names = {operand for operand in line.operands if isinstance(operand, str)}
        if names and names <= (weights | static) - ends:
            static.add(line.result)
    return static


def read_outside(lines: Sequence[Line], outputs: Collection[Operand], static: set[str]) -> set[str]:
    """The static values and weights that something else reads."""
    operands = [operand for line in lines if line.result not in static for operand in line.operands]
    return static & {name for name in (*operands, *outputs) if isinstance(name, str)}
