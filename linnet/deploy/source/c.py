"""The step of a model as C99 that needs neither libc nor libm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from linnet.deploy.source.folder import filled, template
from linnet.deploy.source.language import Language
from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Product, Program
from linnet.program.graph import TRUTHS
from linnet.program.loops import Line

# The first bytes of a file of weights, "LINNETW1" in the order of the machine for which it was written.
MAGIC = int.from_bytes(b"LINNETW1", "little")
# The outputs of a block of a matrix.
LANES = 16
KINDS = {"float32": "float", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t"}
# The scratch buffer for an input that is rounded to int8.
ROUNDED = "rounded"


class C(Language):
    name = "C"
    variable = "const float"
    changing = "float"
    index = "int"
    operations = {
        **{"add": "({} + {})", "sub": "({} - {})", "mul": "{} * {}", "div": "({} / {})", "neg": "(-{})"},
        **{"maximum": "maximum({}, {})", "minimum": "minimum({}, {})", "pow": "power({}, {})"},
        **{"abs": "absolute({})", "sign": "sign({})", "exp": "exponential({})", "log": "logarithm({})"},
        **{"sqrt": "square_root({})", "sin": "sine({})", "cos": "cosine({})", "floor": "round_down({})"},
        **{"sigmoid": "sigmoid({})", "tanh": "tangent({})", "expm1": "less_one({})"},
        **{"log1p": "log_one_plus({})", "gt": "({} > {})", "ge": "({} >= {})", "lt": "({} < {})"},
        **{"le": "({} <= {})", "eq": "({} == {})", "ne": "({} != {})", "where": "({} ? {} : {})"},
        **{"logical_and": "({} && {})", "logical_or": "({} || {})", "logical_not": "(!{})"},
    }

    def __init__(self, program: Program, layout: Layout):
        self.program, self.layout = program, layout

    def number(self, value: float) -> str:
        if value != value:
            return "not_a_number()"
        if value in (float("inf"), float("-inf")):
            return "infinity()" if value > 0 else "(-infinity())"
        return f"{float_text(value)}" if value >= 0 else f"({float_text(value)})"

    def power(self, base: str, exponent: float) -> str:
        whole = exponent == int(exponent) and 2 <= exponent <= 16
        return f"whole_power({base}, {int(exponent)})" if whole else super().power(base, exponent)

    def declared(self, line: Line) -> str:
        return "const int" if line.op in TRUTHS else self.variable

    def buffer(self, name: str) -> str:
        if name in (INPUT, OUTPUT):
            return name
        if name in self.program.state:
            return f"state->{name}"
        return f"weights->{name}" if name in self.program.vectors else f"scratch->{name}"

    def lookup(self, kernel: Lookup) -> Iterator[str]:
        table, size = self.program.matrices[kernel.table], kernel.size
        if kernel.table in self.layout.packed:
            sizes = f"{size}, {len(table.values)}"
            yield f"weights_of_output(weights->{kernel.table}, token, {self.buffer(kernel.output)}, {sizes});"
            return
        place = f"{size} * token + at"
        scale = "" if table.scales is None else f" * weights->{kernel.table}_scales[token]"
        yield f"for (int at = 0; at < {size}; at++)"
        yield f"    {self.buffer(kernel.output)}[at] = weights->{kernel.table}[{place}]{scale};"

    def row(self, kernel: Product, x: str, start: str, y: str) -> Iterator[str]:
        x = f"{x} + {start}" if start else x
        y = f"{self.buffer(kernel.output)} + {y}" if y else self.buffer(kernel.output)
        if kernel.heads == 1:
            yield self.call(kernel, x, y, "")
            return
        each = f" + at * {kernel.block_size}"
        yield f"for (int at = 0; at < {kernel.blocks}; at++)"
        yield f"    {self.call(kernel, f'{x} + at % {kernel.heads} * {kernel.inputs}', y + each, each)}"

    def call(self, kernel: Product, x: str, y: str, at: str) -> str:
        """The call for one block of a matrix; `at` is added to what has a number for each output."""
        sizes, matrix = f"{kernel.inputs}, {kernel.block_size}", f"weights->{kernel.matrix}"
        bias = f"weights->{kernel.bias}{at}" if kernel.bias else "NULL"
        rows = f"{matrix}{at} * {kernel.inputs}" if at else matrix
        if self.program.matrices[kernel.matrix].scales is None:
            return f"product({rows}, {bias}, {x}, {y}, {sizes});"
        weights = f"{rows}, {matrix}_scales{at}, {matrix}_sums{at}, {bias}"
        return f"int8_product({weights}, {x}, scratch->{ROUNDED}, {y}, {sizes});"


def float_text(value: float) -> str:
    """A decimal number that is this float32."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"


# --------------------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class Layout:
    """The weights as members of a struct, those of four bytes first, so that there are no gaps.

    packed   the matrices that are stored as `product` reads them
    """

    arrays: dict[str, np.ndarray]
    packed: frozenset[str]

    @classmethod
    def of(cls, program: Program) -> Layout:
        products = [kernel for kernel in program.kernels if isinstance(kernel, Product)]
        multiplied = {kernel.matrix: kernel.block_size for kernel in products}
        wide: dict[str, np.ndarray] = {}
        narrow: dict[str, np.ndarray] = {}
        for name, matrix in program.matrices.items():
            if matrix.scales is None:
                values = matrix.values
                wide[name] = packed(values, multiplied[name]) if name in multiplied else values
                continue
            narrow[name], wide[f"{name}_scales"] = matrix.values, matrix.scales
            if name in multiplied:
                wide[f"{name}_sums"] = matrix.values.sum(1, dtype=np.int32)
        # Matrices first: those of whole blocks keep the alignment of the struct.
        return cls({**wide, **program.vectors, **narrow}, frozenset(multiplied.keys() & wide.keys()))

    def members(self) -> Iterator[str]:
        for name, array in self.arrays.items():
            yield f"{KINDS[array.dtype.name]} {name}[{array.size}];"

    def bytes(self) -> bytes:
        data = b"".join(
            array.astype(array.dtype.newbyteorder("<")).tobytes() for array in self.arrays.values()
        )
        # The struct has two members of eight bytes before these, so that its size is a multiple of that.
        return data + bytes(-len(data) % 8)

    def initialisers(self) -> Iterator[str]:
        for name, array in self.arrays.items():
            write = float_text if array.dtype == np.float32 else str
            yield f".{name} = {{"
            yield from wrapped([write(value) for value in array.ravel()])
            yield "},"


def packed(matrix: np.ndarray, size: int) -> np.ndarray:
    """A matrix [outputs, inputs] in strips of outputs, each with the weights of one input after the other.

    size   the outputs of a block, of which the last strip may be narrower; a dense matrix is one block
    """
    starts = [(at, first) for at in range(0, len(matrix), size) for first in range(at, at + size, LANES)]
    strips = (matrix[first : min(first + LANES, at + size)].T for at, first in starts)
    return np.concatenate([np.ascontiguousarray(strip).ravel() for strip in strips])


def wrapped(numbers: list[str], width: int = 105) -> Iterator[str]:
    """Numbers with commas, in lines of about `width` characters."""
    line, length = [], 0
    for number in numbers:
        line.append(number)
        length += len(number) + 2
        if length > width:
            yield f"    {', '.join(line)},"
            line, length = [], 0
    if line:
        yield f"    {', '.join(line)}"


# ----------------------------------------------------------------------------------------- files


def source_files(program: Program, name: str, weights_file: bool) -> dict[str, str | bytes]:
    """The files of a model by name; `name` starts their names and those of functions and structs."""
    layout = Layout.of(program)
    writer = C(program, layout)
    writer.check(program)
    parts = parts_of(program, layout, name, weights_file)
    unused = [] if scratch_members(program) else ["(void)scratch;"]
    parts |= {
        "STEP": indented([*unused, *writer.step()]),
        "INIT": indented(init_lines(program)),
        "CHECKS": filled("checks.c", parts).strip(),
    }
    parts["FUNCTIONS"] = arm_functions(parts["STEP"] if program.is_int8 else "")
    parts["FUNCTIONS"] += functions_for("\n".join([parts["STEP"], parts["INIT"]]))
    files: dict[str, str | bytes] = {
        f"{name}.h": filled("model.h", parts),
        f"{name}.c": filled("model.c", parts),
    }
    if weights_file:
        return files | {f"{name}.weights": head_of(program) + layout.bytes()}
    return files | {f"{name}_weights.h": "\n".join(layout.initialisers()) + "\n"}


def head_of(program: Program) -> bytes:
    return MAGIC.to_bytes(8, "little") + int(program.fingerprint, 16).to_bytes(8, "little")


def parts_of(program: Program, layout: Layout, name: str, weights_file: bool) -> dict[str, str]:
    state = [f"float {part}[{len(start)}];" for part, start in program.state.items()]
    scratch = scratch_members(program)
    members = indented(layout.members())
    argument = f"const {name}_weights *weights, " if weights_file else ""
    head = {"NAME": name, "PREFIX": name.upper()}
    return head | {
        "ABOUT": f"One step of a recurrent model with {program.counts}, written by Linnet.",
        "EXAMPLE": example(program, name, weights_file),
        "TOKENS": str(program.tokens),
        "INPUT_SIZE": str(program.sizes[INPUT]),
        "OUTPUT_SIZE": str(program.sizes[OUTPUT]),
        "FINGERPRINT": program.fingerprint,
        "STATE": indented(state),
        "STATE_BYTES": str(program.state_bytes),
        "SCRATCH": indented(scratch or ["char unused;"]),
        "SCRATCH_BYTES": str(scratch_bytes(program)),
        "INPUT_ARGUMENT": "int32_t token" if program.tokens else "const float *input",
        "RESTRICTED_INPUT": "int32_t token" if program.tokens else "const float *restrict input",
        "INPUTS_ARGUMENT": "const int32_t *tokens" if program.tokens else "const float *inputs",
        "INPUT_AT": "tokens[at]" if program.tokens else f"inputs + at * {name.upper()}_INPUT_SIZE",
        "WEIGHTS_ARGUMENT": argument,
        "WEIGHTS_GIVEN": "weights, " if weights_file else "",
        "WEIGHTS_DECLARATION": filled("weights.h", head | {"MEMBERS": members}) if weights_file else "",
        "WEIGHTS": weights_text(head | {"MEMBERS": members}, weights_file),
        "OPEN": filled("open.h", head) if weights_file else "",
    }


def weights_text(parts: dict[str, str], weights_file: bool) -> str:
    """The definition of the weights; C has no struct without members, and a step may have no weights."""
    if not weights_file and not parts["MEMBERS"]:
        return "/* There are none. */"
    return filled("open.c" if weights_file else "arrays.c", parts).strip()


def scratch_members(program: Program) -> list[str]:
    members = [f"float {name}[{size}];" for name, size in program.scratch.items()]
    rounded = rounded_size(program)
    return [*members, f"int16_t {ROUNDED}[{rounded}];"] if rounded else members


def scratch_bytes(program: Program) -> int:
    """Return the size in memory: compilers align it to four bytes."""
    floats, rounded = sum(program.scratch.values()), rounded_size(program)
    return 4 * floats + 4 * ((rounded + 1) // 2) if floats or rounded else 1


def rounded_size(program: Program) -> int:
    """The longest input of a product in int8."""
    products = (kernel for kernel in program.kernels if isinstance(kernel, Product))
    return max(
        (each.inputs for each in products if program.matrices[each.matrix].scales is not None), default=0
    )


def example(program: Program, name: str, weights_file: bool) -> str:
    call = f"{name}_step({'weights, ' if weights_file else ''}&state, &scratch, "
    given = "token" if program.tokens else "input"
    lines = [f"{name}_init(&state);", f"{call}{given}, output);"]
    if weights_file:
        lines.insert(
            0, f"const {name}_weights *weights = {name}_open(bytes, size);   the file {name}.weights"
        )
    return "\n".join(f"   {line}" for line in lines)


def init_lines(program: Program) -> Iterator[str]:
    for name, start in program.state.items():
        value = C.number(None, float(start[0]))  # type: ignore[arg-type]
        if not (start == start[0]).all():
            yield f"static const float first_{name}[] = {{"
            yield from wrapped([float_text(number) for number in start])
            yield "};"
            value = f"first_{name}[at]"
        yield f"for (at = 0; at < {len(start)}; at++) state->{name}[at] = {value};"


def indented(lines: Iterable[str]) -> str:
    return "\n    ".join(lines)


def functions_for(code: str, library: str = "functions.c") -> str:
    """Return the functions of a template that the code calls, directly or not, in order."""
    blocks = re.split(r"\n\n(?=/\*|static)", template(library).strip())
    names = [name_of(block) for block in blocks]
    wanted, known = code, set[str]()
    for name, block in reversed(list(zip(names, blocks, strict=True))):
        if re.search(rf"\b{name}\b", wanted):
            known.add(name)
            wanted += block
    return "\n\n".join(block for name, block in zip(names, blocks, strict=True) if name in known)


def arm_functions(step: str) -> str:
    """Return what products of int8 use on Arm processors."""
    return f"{template('arm.c').strip()}\n\n" if "product(" in step else ""


def name_of(block: str) -> str:
    """Return the name of a function or a type."""
    code = re.sub(r"/\*.*?\*/", "", block, flags=re.DOTALL)
    found = re.search(r"typedef \w+ (\w+);", code) or re.search(r"(\w+)\(", code)
    assert found is not None
    return found[1]


def readme(
    program: Program, name: str, weights_file: bool, speaks: bool, steps: int, about_numbers: str
) -> str:
    """`about_numbers`: a section about the input and the output, or nothing."""
    layout = Layout.of(program)
    main = f'cc -O3 {name}.c main.c -lm && ./a.out "In the beginning"\n'
    opened = f"const {name}_weights *weights = {name}_open(bytes, size);   /* NULL: not of this model */\n"
    parts = parts_of(program, layout, name, weights_file)
    return filled(
        "README.c.md",
        parts
        | {
            "COUNTS": program.counts,
            "KIND": "int8" if program.is_int8 else "float32",
            "UNITS": f", layers of {', '.join(program.units)}" if program.units else "",
            "STEPS": str(steps),
            "MAIN": main if speaks else "",
            "CONSTANT_BYTES": f"{program.constant_bytes + sums_bytes(layout):,}",
            "RAM_BYTES": f"{program.state_bytes + scratch_bytes(program):,}",
            "OPEN_EXAMPLE": opened if weights_file else "",
            "INPUTS": "tokens" if program.tokens else "inputs",
            "INPUT": "token" if program.tokens else "input",
            "NOTE": note(program, name, weights_file),
            "STREAM": about_numbers,
        },
    )


def sums_bytes(layout: Layout) -> int:
    """The bytes of the sums of the rows of int8 matrices, which C has besides the weights."""
    return sum(array.nbytes for name, array in layout.arrays.items() if name.endswith("_sums"))


def note(program: Program, name: str, weights_file: bool) -> str:
    what = f"`token` is a whole number from 0 to {program.tokens - 1}, and is not checked."
    if not program.tokens:
        what = f"`input` is an array of {program.sizes[INPUT]} floats."
    if not weights_file:
        return what
    return (
        f"{what} The weights are in `{name}.weights`, for machines with the lowest byte of a number first: "
        "read the file into memory, or map it, as it is."
    )
