"""The equations of a step as a function in Triton's language, written from the traced lines."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from linnet.fuse.trace import Line, Operand, Pointwise

# Of the operations that a trace knows, how each is written; what is not Triton's own is in triton/math.py.
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
# What a kernel calls its own; numbers of a unit that have such a name get another.
RESERVED = frozenset(
    [
        *(*keyword.kwlist, *OWN_FUNCTIONS.values(), *SCALARS, "tl", "triton"),
        *("row", "channels", "inside", "blocks", "number", "t", "before", "after", "real", "anew"),
        *("mask", "resets", "forward", "forward_step", "forward_both"),
        *("backward", "backward_step", "backward_both"),
    ]
)


class Names:
    """Names for a piece of source: each as wished for, or with a _ after it where that is taken."""

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
        """`head`, what is written within this context one level deeper, and `foot`."""
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
    """Of a graph, what some of its outputs need: those inputs, those lines."""
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
    """What the source imports."""
    ops = {line.op for line in graph.lines}
    own = ", ".join(name for op, name in OWN_FUNCTIONS.items() if op in ops)
    lines = ["import triton", "import triton.language as tl"]
    return [*lines, "", f"from linnet.fuse.triton.math import {own}"] if own else lines


def step_function(name: str, graph: Pointwise) -> list[str]:
    """The equations as a function of numbers; `inputs` of the graph are its arguments."""
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
    # Between a number that is written out and one that is computed, the latter says of which kind both are.
    plain = any(isinstance(operand, str) for operand in line.operands)
    return ARITHMETIC[line.op].format(
        *(literal(o) if plain and not isinstance(o, str) else written(o, names) for o in line.operands)
    )


# Powers of small whole numbers are products, which are right for bases below 0 as well.
POWERS: dict[Operand, str] = {
    2.0: "{base} * {base}",
    3.0: "{base} * {base} * {base}",
    -1.0: "1.0 / {base}",
    0.5: "tl.sqrt({base})",
}


def written(operand: Operand, names: dict[str, str]) -> str:
    """A name; or a number as a block of numbers like the first argument, whose kind it takes exactly."""
    if isinstance(operand, str):
        return names[operand]
    like = next(iter(names.values()))
    return f"tl.full({like}.shape, {literal(operand)}, {like}.dtype)"


def literal(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'
