"""The equations of a step as a function in Triton's language, generated from the traced lines."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from linnet.program.trace import Line, Operand, Pointwise

# How each operation of a trace is written; functions that Triton does not have are in triton/math.py.
ARITHMETIC = {
    **{"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}"},
    **{
        "gt": "{} > {}",
        "ge": "{} >= {}",
        "lt": "{} < {}",
        "le": "{} <= {}",
        "eq": "{} == {}",
        "ne": "{} != {}",
    },
    **{"logical_and": "{} & {}", "logical_or": "{} | {}", "logical_not": "~{}", "neg": "-{}"},
}
FUNCTIONS = {
    **{op: f"tl.{op}({{}})" for op in ("abs", "exp", "log", "sqrt", "sin", "cos", "floor", "sigmoid")},
    **{op: f"{op}({{}})" for op in ("sign", "tanh", "expm1", "log1p")},
    # As torch.maximum: NaN if either is NaN.
    "maximum": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "pow": "power({}, {})",
    "where": "tl.where({}, {}, {})",
}
OWN_FUNCTIONS = {"expm1": "expm1", "log1p": "log1p", "pow": "power", "sign": "sign", "tanh": "tanh"}
SCALARS = ("first", "steps", "size")
# Names that kernels use themselves; a value of a unit that has such a name gets another one.
RESERVED = frozenset(
    [
        *(*keyword.kwlist, *OWN_FUNCTIONS.values(), *SCALARS, "tl", "triton"),
        *("row", "channels", "inside", "blocks", "number", "t", "before", "after", "real", "is_reset"),
        *("mask", "resets", "forward", "forward_step", "forward_both"),
        *("backward", "backward_step", "backward_both"),
    ]
)


class Names:
    """Creates unique names for a piece of source: the requested one, or with _ appended if it is taken."""

    def __init__(self) -> None:
        self.taken = set(RESERVED)

    def __call__(self, wish: str) -> str:
        name = re.sub(r"\W", "_", wish, flags=re.ASCII)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


class Writer:
    """Lines of source, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    @contextmanager
    def block(self, head: str, foot: str = "") -> Iterator[None]:
        """Write `head`, then what is written within this context, indented, and `foot`."""
        self(head)
        with self.indented():
            yield
        if foot:
            self(foot)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1


def pruned(graph: Pointwise, outputs: Sequence[str]) -> Pointwise:
    """The inputs and lines of a graph that some of its outputs need."""
    values = dict(graph.outputs)
    needed: set[Operand] = {values[name] for name in outputs}
    lines: list[Line] = []
    for line in reversed(graph.lines):
        if line.result in needed:
            lines.append(line)
            needed.update(line.operands)
    inputs = tuple(name for name in graph.inputs if name in needed)
    return Pointwise(inputs, tuple(reversed(lines)), tuple((name, values[name]) for name in outputs))


def head(graph: Pointwise) -> list[str]:
    """The imports of the source."""
    ops = {line.op for line in graph.lines}
    own = ", ".join(name for op, name in OWN_FUNCTIONS.items() if op in ops)
    lines = ["import triton", "import triton.language as tl"]
    return [*lines, "", f"from linnet.triton.math import {own}"] if own else lines


def step_function(name: str, graph: Pointwise) -> list[str]:
    """The equations as a function, whose arguments are the `inputs` of the graph."""
    called = Names()
    names = {operand: called(operand) for operand in graph.inputs}
    write = Writer()
    write("@triton.jit")
    with write.block(f"def {name}({', '.join(names.values())}):"):
        for line in graph.lines:
            text = formula(line, names)
            names[line.result] = called(line.result)
            write(f"{names[line.result]} = {text}")
        write(f"return {', '.join(written(value, names) for _, value in graph.outputs)}")
    return write.lines


def formula(line: Line, names: dict[str, str]) -> str:
    if line.op == "pow" and line.operands[1] in POWERS:
        base = written(line.operands[0], names)
        return POWERS[line.operands[1]].format(base=base)
    if line.op not in ARITHMETIC:
        return FUNCTIONS[line.op].format(*(written(operand, names) for operand in line.operands))
    # A literal gets its dtype from the other operand, if that is computed.
    has_computed = any(isinstance(operand, str) for operand in line.operands)
    return ARITHMETIC[line.op].format(
        *(literal(o) if has_computed and not isinstance(o, str) else written(o, names) for o in line.operands)
    )


# Powers with small integer exponents are products, which are right for negative bases, too.
POWERS: dict[Operand, str] = {
    2.0: "{base} * {base}",
    3.0: "{base} * {base} * {base}",
    -1.0: "1.0 / {base}",
    0.5: "tl.sqrt({base})",
}


def written(operand: Operand, names: dict[str, str]) -> str:
    """A name; or a number as a block of the shape and dtype of the first argument."""
    if isinstance(operand, str):
        return names[operand]
    like = next(iter(names.values()))
    return f"tl.full({like}.shape, {literal(operand)}, {like}.dtype)"


def literal(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'
