"""What the languages have in common: loops, and expressions of pointwise operations."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from linnet.deploy.step.models import CannotExport
from linnet.deploy.step.names import reserved
from linnet.deploy.step.program import WINDOW, Kernel, Lookup, Product, Program, unique
from linnet.program.loops import START, Access, Fold, Line, Local, Loop, Operand

# The names of the indices of nested loops; the innermost has the last.
INDICES = ("group", "block", "volume", "plane", "row", "at")
# Likewise over the rows of a product, and over the numbers of a row.
ROWS, WITHIN = INDICES[2:5], ("channel", "line", "tap")
# A variable that has no name in the unit's step: the recorder has numbered it.
UNNAMED = re.compile(r"v\d+")


class Language:
    """Writes loops; a subclass has the words of a language."""

    name: str
    # By operation: how it is written, with {} for each operand.
    operations: Mapping[str, str]
    # The keywords that declare a variable, one that changes, and the index of a loop.
    variable: str
    changing: str
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
        deep = [len(kernel.shape) > len(INDICES) for kernel in program.kernels if isinstance(kernel, Loop)]
        products = [kernel for kernel in program.kernels if isinstance(kernel, Product)]
        deep += [len(each.across) > len(ROWS) or len(each.within) > len(WITHIN) for each in products]
        if any(deep):
            raise CannotExport(f"a step with loops in more than six dimensions is not written in {self.name}")

    # --------------------------------------------------------------------------------------- kernels

    def step(self) -> Iterator[str]:
        """The lines of the whole step."""
        for kernel in self.program.kernels:
            yield from self.kernel(kernel)

    def kernel(self, kernel: Kernel) -> Iterator[str]:
        if isinstance(kernel, Loop):
            return self.loop(kernel)
        return self.lookup(kernel) if isinstance(kernel, Lookup) else self.product(kernel)

    def lookup(self, kernel: Lookup) -> Iterator[str]:
        raise NotImplementedError

    def product(self, kernel: Product) -> Iterator[str]:
        """A loop over the rows; the numbers of a row that are apart are copied first."""
        rows = ROWS[len(ROWS) - len(kernel.across) :]
        strides = [stride for _, stride in kernel.across]
        start = sum_of([str(kernel.x_offset)] if kernel.x_offset else [], rows, strides)
        sizes = [size for size, _ in kernel.across]
        y = sum_of([], rows, [kernel.outputs * math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
        if kernel.is_gathered:
            body = [*self.gather(kernel, start), *self.row(kernel, self.buffer(WINDOW), "", y)]
        else:
            body = list(self.row(kernel, self.buffer(kernel.x), start, y))
        yield from self.nest(rows, sizes, body)

    def gather(self, kernel: Product, start: str) -> Iterator[str]:
        """The numbers of the row that starts at `start`, side by side."""
        indices = WITHIN[len(WITHIN) - len(kernel.within) :]
        sizes, strides = zip(*kernel.within, strict=True)
        x = sum_of([start] if start else [], indices, strides)
        target = sum_of([], indices, [math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
        moved = f"{self.buffer(WINDOW)}[{target}] = {self.buffer(kernel.x)}[{x or '0'}];"
        yield from self.nest(indices, sizes, [moved])

    def nest(self, indices: Sequence[str], sizes: Sequence[int], body: Sequence[str]) -> list[str]:
        """Nested loops around some lines."""
        lines = list(body)
        for index, size in zip(reversed(indices), reversed(sizes), strict=True):
            head = f"for ({self.index} {index} = 0; {index} < {size}; {index}++)"
            # Braces, unless there is one statement: a line, or a loop with what is within it.
            is_single = all(line[0] in " }" for line in lines[1:])
            lines = [head, *indented(lines)] if is_single else [f"{head} {{", *indented(lines), "}"]
        return lines

    def row(self, kernel: Product, x: str, start: str, y: str) -> Iterator[str]:
        """The product of the row of the buffer x that starts at `start`, to `y` numbers after the output."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------- loops

    def loop(self, loop: Loop) -> Iterator[str]:
        for fold in loop.folds:
            if fold.level is None:
                yield from self.loop(loop.cleared(fold))
        names = variable_names(loop.lines)
        totals: dict[Fold, str] = {}
        for fold in loop.folds:
            totals[fold] = unique("total", {*names.values(), *totals.values()})
        lines = list(self.nested(loop, 0, names, totals))
        # What is declared outside of the loops is of this loop alone.
        if any(fold.level == 0 for fold in loop.folds) or (not loop.shape and len(lines) > 1):
            lines = ["{", *indented(lines), "}"]
        yield from lines

    def nested(
        self, loop: Loop, level: int, names: Mapping[str, str], totals: Mapping[Fold, str]
    ) -> Iterator[str]:
        """The loops from `level` on, and their body."""
        here = [fold for fold in loop.folds if fold.level == level]
        indices = indices_of(loop)
        for fold in here:
            yield f"{self.changing} {totals[fold]} = {bare(self.number(START[fold.kind]))};"
        if level == len(loop.shape):
            yield from self.body(loop, indices, names, totals)
        else:
            index, inner = indices[level], list(self.nested(loop, level + 1, names, totals))
            head = f"for ({self.index} {index} = 0; {index} < {loop.shape[level]}; {index}++)"
            yield from [head, *indented(inner)] if len(inner) == 1 else [f"{head} {{", *indented(inner), "}"]
        for fold in here:
            yield f"{self.place(fold.target, indices)} = {totals[fold]};"

    def body(
        self, loop: Loop, indices: Sequence[str], names: Mapping[str, str], totals: Mapping[Fold, str]
    ) -> Iterator[str]:
        inlined: dict[str, str] = {}
        yield from self.lines(loop, indices, names, inlined)
        for fold in loop.folds:
            total = self.place(fold.target, indices) if fold.level is None else totals[fold]
            value = self.operand(fold.value, indices, names, inlined)
            op = "add" if fold.kind == "sum" else "maximum"
            yield f"{total} = {bare(self.applied(op, total, value))};"
        for store in loop.stores:
            value = self.operand(store.value, indices, names, inlined)
            if store.target.truth:
                value = f"({value} ? {self.number(1.0)} : {self.number(0.0)})"
            yield f"{self.place(store.target, indices)} = {bare(value)};"

    def lines(
        self, loop: Loop, indices: Sequence[str], names: Mapping[str, str], inlined: dict[str, str]
    ) -> Iterator[str]:
        """The variables of a loop; one without a name that is read once is written where it is read."""
        counts = Counter(value.name for value in read_by(loop) if isinstance(value, Local))
        early = read_early(loop)
        for line in loop.lines:
            text = self.expression(line, indices, names, inlined)
            if UNNAMED.fullmatch(line.result) and counts[line.result] == 1 and line.result not in early:
                inlined[line.result] = text
            else:
                yield f"{self.declared(line)} {names[line.result]} = {bare(text)};"

    def declared(self, line: Line) -> str:
        return self.variable

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
        if isinstance(operand, Access):
            place = self.place(operand, indices)
            return f"({place} != {self.number(0.0)})" if operand.truth else place
        if isinstance(operand, Local):
            return inlined.get(operand.name) or names[operand.name]
        return self.number(float(operand))

    def place(self, access: Access, indices: Sequence[str]) -> str:
        terms = [str(access.offset)] if access.offset else []
        if not access.table:
            return f"{self.buffer(access.base)}[{sum_of(terms, indices, access.strides) or '0'}]"
        place = sum_of([], indices, access.strides) or "0"
        terms.append(f"{self.buffer(self.program.tables[access.table])}[{place}]")
        return f"{self.buffer(access.base)}[{' + '.join(terms)}]"


def sum_of(terms: Sequence[str], indices: Sequence[str], strides: Sequence[int]) -> str:
    """The text of a place: the terms, and the indices times their strides."""
    pairs = zip(indices, strides, strict=True)
    steps = [index if stride == 1 else f"{stride} * {index}" for index, stride in pairs if stride]
    return " + ".join([*terms, *steps])


def read_by(loop: Loop) -> list[Operand]:
    return [
        *(operand for line in loop.lines for operand in line.operands),
        *(fold.value for fold in loop.folds),
        *(store.value for store in loop.stores),
    ]


def indices_of(loop: Loop) -> tuple[str, ...]:
    return INDICES[len(INDICES) - len(loop.shape) :]


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def read_early(loop: Loop) -> set[str]:
    """Variables that are stored, and read what a store before theirs may have replaced."""
    written, early = {store.target.base for store in loop.stores}, set[str]()
    for line in loop.lines:
        bases = {value.base for value in line.operands if isinstance(value, Access)}
        if bases & written or early & {value.name for value in line.operands if isinstance(value, Local)}:
            early.add(line.result)
    return early & {store.value.name for store in loop.stores if isinstance(store.value, Local)}


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
