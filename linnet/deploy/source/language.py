"""What the languages have in common: loops, and expressions of pointwise operations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from linnet.deploy.source.folder import template
from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.program import (
    Gather,
    Kernel,
    Line,
    Load,
    Local,
    Lookup,
    Loop,
    Operand,
    Product,
    Program,
    Reduce,
)

INDICES = {0: (), 1: ("at",), 2: ("row", "at"), 3: ("plane", "row", "at")}
# A variable that has no name in the unit's step: the recorder has numbered it.
UNNAMED = re.compile(r"v\d+")


class Language:
    """Writes loops; a subclass has the words of a language."""

    name: str
    # By operation: how it is written, with {} for each operand.
    operations: Mapping[str, str]
    # The keywords that declare a variable and the index of a loop.
    variable: str
    index: str
    program: Program

    def number(self, value: float) -> str:
        raise NotImplementedError

    def buffer(self, name: str) -> str:
        """A buffer or constant by its name in the program."""
        raise NotImplementedError

    def check(self, program: Program) -> None:
        """Raise if the program needs what this language does not have."""
        missing = sorted(program.operations() - {*self.operations, "copy"})
        if missing:
            raise CannotExport(f"there is no translation of the operation {missing[0]!r} to {self.name} yet")
        shapes = [kernel.shape for kernel in program.kernels if isinstance(kernel, Loop)]
        if any(len(shape) not in INDICES for shape in shapes):
            raise CannotExport(
                f"a step with tensors of more than three dimensions is not written in {self.name}"
            )

    # --------------------------------------------------------------------------------------- kernels

    def step(self) -> Iterator[str]:
        """The lines of the whole step."""
        for kernel in self.program.kernels:
            yield from self.kernel(kernel)

    def kernel(self, kernel: Kernel) -> Iterator[str]:
        if isinstance(kernel, Loop):
            return self.loop(kernel)
        if isinstance(kernel, Lookup):
            return self.lookup(kernel)
        if isinstance(kernel, Gather):
            return self.gather(kernel)
        return self.reduce(kernel) if isinstance(kernel, Reduce) else self.product(kernel)

    def lookup(self, kernel: Lookup) -> Iterator[str]:
        raise NotImplementedError

    def reduce(self, kernel: Reduce) -> Iterator[str]:
        raise NotImplementedError

    def product(self, kernel: Product) -> Iterator[str]:
        raise NotImplementedError

    def gather(self, kernel: Gather) -> Iterator[str]:
        place = f"{f'{kernel.x_offset} + ' if kernel.x_offset else ''}{self.buffer(kernel.places)}[at]"
        yield f"for ({self.index} at = 0; at < {kernel.outputs}; at++)"
        yield f"    {self.buffer(kernel.output)}[at] = {self.buffer(kernel.x)}[{place}];"

    # --------------------------------------------------------------------------------------- loops

    def loop(self, loop: Loop) -> Iterator[str]:
        indices = INDICES[len(loop.shape)]
        heads = [
            f"for ({self.index} {index} = 0; {index} < {size}; {index}++)"
            for index, size in zip(indices, loop.shape, strict=True)
        ]
        names = variable_names(loop.lines)
        body = [*self.lines(loop, indices, names), *self.stores(loop, indices, names)]
        if len(heads) <= 1 and len(body) == 1:
            yield from [*heads, *(f"    {line}" if heads else line for line in body)]
            return
        for depth, head in enumerate(heads or [""]):
            yield "    " * depth + f"{head} {{".lstrip()
        yield from ("    " * max(len(heads), 1) + line for line in body)
        for depth in reversed(range(max(len(heads), 1))):
            yield "    " * depth + "}"

    def lines(self, loop: Loop, indices: Sequence[str], names: dict[str, str]) -> Iterator[str]:
        """The variables of a loop; one without a name that is read once is written where it is read."""
        counts = Counter(each.name for each in read_by(loop) if isinstance(each, Local))
        inlined: dict[str, str] = {}
        for line in loop.lines:
            text = self.expression(line, indices, names, inlined)
            if UNNAMED.fullmatch(line.result) and counts[line.result] == 1:
                inlined[line.result] = text
            else:
                yield f"{self.declared(line)} {names[line.result]} = {bare(text)};"
        self.inlined = inlined

    def declared(self, line: Line) -> str:
        return self.variable

    def stores(self, loop: Loop, indices: Sequence[str], names: dict[str, str]) -> Iterator[str]:
        for store in loop.stores:
            value = self.operand(store.value, indices, names, self.inlined)
            if store.to.truth:
                value = f"({value} ? {self.number(1.0)} : {self.number(0.0)})"
            yield f"{self.place(store.to, indices)} = {bare(value)};"

    def expression(
        self, line: Line, indices: Sequence[str], names: Mapping[str, str], inlined: Mapping[str, str]
    ) -> str:
        operands = [self.operand(operand, indices, names, inlined) for operand in line.operands]
        if line.op == "copy":
            return operands[0]
        if line.op == "pow" and isinstance(line.operands[1], float):
            return self.power(operands[0], line.operands[1])
        if line.op == "div" and " * " in operands[1]:
            # Products have no parentheses of their own.
            operands[1] = f"({operands[1]})"
        return self.applied(line.op, *operands)

    def applied(self, op: str, *operands: str) -> str:
        template = self.operations[op]
        is_call = not template.startswith("(") and template.endswith(")")
        return template.format(*(map(bare, operands) if is_call else operands))

    def power(self, base: str, exponent: float) -> str:
        if exponent in (1.0, 2.0, 3.0) and re.fullmatch(r"[\w.>\[\]-]+", base):
            return "({})".format(" * ".join([base] * int(exponent)))
        if exponent == 0.5:
            return self.applied("sqrt", base)
        return self.applied("pow", base, self.number(exponent))

    def operand(
        self, operand: Operand, indices: Sequence[str], names: Mapping[str, str], inlined: Mapping[str, str]
    ) -> str:
        if isinstance(operand, Load):
            place = self.place(operand, indices)
            return f"({place} != {self.number(0.0)})" if operand.truth else place
        if isinstance(operand, Local):
            return inlined.get(operand.name) or names[operand.name]
        return self.number(operand)

    def place(self, load: Load, indices: Sequence[str]) -> str:
        terms = [str(load.offset)] if load.offset else []
        for index, stride in zip(indices, load.strides, strict=True):
            if stride:
                terms.append(index if stride == 1 else f"{stride} * {index}")
        return f"{self.buffer(load.base)}[{' + '.join(terms) or '0'}]"


def read_by(loop: Loop) -> list[Operand]:
    return [
        *(operand for line in loop.lines for operand in line.operands),
        *(store.value for store in loop.stores),
    ]


@cache
def reserved() -> frozenset[str]:
    """Names that a variable of a loop must not have: words of the languages, and names of the templates."""
    return frozenset(template("reserved.txt").split())


def variable_names(lines: Sequence[Line]) -> dict[str, str]:
    """Names that are not words of a language."""
    taken = reserved()
    return {line.result: f"{line.result}_" if line.result in taken else line.result for line in lines}


def bare(text: str) -> str:
    """Return the expression without its outer parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0 and at < len(text) - 1:
            return text
    return text[1:-1]
