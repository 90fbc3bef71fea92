"""The step of a model in whole numbers as C99, without a number in floating point."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from linnet.deploy.integer.formats import Format
from linnet.deploy.integer.program import IntegerProgram
from linnet.deploy.source.c import C, Layout, arm_functions, functions_for, indented, wrapped
from linnet.deploy.source.folder import filled, template
from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Product, Program
from linnet.program.loops import Operand

# Arrays in the order of their alignment, so that the struct has no gaps.
BYTES = {"int32": 4, "int16": 2, "int8": 1}


class IntegerC(C):
    variable = "const int32_t"
    changing = "int32_t"
    operations = {
        **{"add": "({} + {})", "sub": "({} - {})", "mul": "{} * {}", "neg": "(-{})"},
        **{"rescaled": "rescaled({}, {}, {})", "interpolated": "interpolated({}, {})"},
        **{"abs": "absolute({})", "sign": "sign({})"},
        **{"maximum": "maximum({}, {})", "minimum": "minimum({}, {})", "where": "({} ? {} : {})"},
        **{name: C.operations[name] for name in ("gt", "ge", "lt", "le", "eq", "ne")},
        **{name: C.operations[name] for name in ("logical_and", "logical_or", "logical_not")},
    }

    def __init__(self, integers: IntegerProgram, layout: Layout):
        super().__init__(integers.program, layout)
        self.integers = integers

    def number(self, value: float) -> str:
        return str(int(value)) if value >= 0 else f"({int(value)})"

    def operand(self, operand: Operand, *places: object) -> str:
        # A table.
        return self.buffer(operand) if isinstance(operand, str) else super().operand(operand, *places)  # type: ignore[arg-type]

    def lookup(self, kernel: Lookup) -> Iterator[str]:
        scaling, size = self.integers.scalings[kernel.output], kernel.size
        row = f"weights->{kernel.table} + {size} * token"
        factors = f"weights->{scaling.multipliers}[token], weights->{scaling.shifts}[token]"
        limit = self.integers.formats[kernel.output].limit
        yield f"row_of_table({row}, {factors}, {self.buffer(kernel.output)}, {size}, {limit});"

    def call(self, kernel: Product, x: str, y: str, at: str) -> str:
        scaling = self.integers.scalings[kernel.output]
        rows = f"weights->{kernel.matrix}" + (f"{at} * {kernel.inputs}" if at else "")
        factors = f"weights->{scaling.multipliers}{at}, weights->{scaling.shifts}{at}"
        bias = f"weights->{scaling.bias}{at}" if scaling.bias else "NULL"
        sizes = f"{kernel.inputs}, {kernel.block_size}, {self.integers.formats[kernel.output].limit}"
        return f"product({rows}, {factors}, {bias}, {x}, {y}, {sizes});"


def layout_of(program: Program) -> Layout:
    arrays = program.vectors | {name: matrix.values for name, matrix in program.matrices.items()}
    ordered = sorted(arrays.items(), key=lambda item: -BYTES[item[1].dtype.name])
    return Layout(dict(ordered), frozenset())


def integer_files(integers: IntegerProgram, name: str) -> dict[str, str | bytes]:
    """The files of a model by name; `name` starts their names and those of functions and structs."""
    program, layout = integers.program, layout_of(integers.program)
    writer = IntegerC(integers, layout)
    writer.check(program)
    parts = parts_of(integers, layout, name)
    unused = [] if program.scratch else ["(void)scratch;"]
    parts |= {
        "STEP": indented([*unused, *writer.step()]),
        "INIT": indented(init_lines(program)),
        "CHECKS": filled("checks.c", parts).strip(),
        "WEIGHTS": filled("arrays.c", parts).strip(),
    }
    parts["FUNCTIONS"] = functions_of(parts["STEP"])
    return {
        f"{name}.h": filled("integer.h", parts),
        f"{name}.c": filled("integer.c", parts),
        f"{name}_weights.h": "\n".join(layout.initialisers()) + "\n",
        "README.md": filled("README.integer.md", parts),
    }


def functions_of(step: str) -> str:
    product = f"{arm_functions(step)}{template('integer_product.c').strip()}" if "product(" in step else ""
    return f"{functions_for(step + product, 'integer_functions.c')}\n\n{product}".strip()


def parts_of(integers: IntegerProgram, layout: Layout, name: str) -> dict[str, str]:
    program = integers.program
    return {
        **{"NAME": name, "PREFIX": name.upper()},
        "COUNTS": program.counts,
        "UNITS": ", ".join(program.units),
        "TOKENS": str(program.tokens),
        "INPUT_SIZE": str(program.sizes[INPUT]),
        "OUTPUT_SIZE": str(program.sizes[OUTPUT]),
        "INPUT_FRACTION": "0" if program.tokens else str(integers.formats[INPUT].at(0).fraction),
        "OUTPUT_FRACTION": str(integers.formats[OUTPUT].at(0).fraction),
        "FINGERPRINT": program.fingerprint,
        "STATE": indented(f"int16_t {part}[{len(start)}];" for part, start in program.state.items()),
        "STATE_BYTES": str(2 * sum(len(start) for start in program.state.values())),
        "SCRATCH": indented(scratch_members(program)),
        "SCRATCH_BYTES": str(2 * sum(program.scratch.values()) or 1),
        "WEIGHTS_BYTES": f"{sum(array.nbytes for array in layout.arrays.values()):,}",
        "MEMBERS": indented(layout.members()),
        "INPUT": "token" if program.tokens else "input",
        "INPUT_ARGUMENT": "int32_t token" if program.tokens else "const int16_t *input",
        "RESTRICTED_INPUT": "int32_t token" if program.tokens else "const int16_t *restrict input",
        "INPUTS_ARGUMENT": "const int32_t *tokens" if program.tokens else "const int16_t *inputs",
        "INPUT_AT": "tokens[at]" if program.tokens else f"inputs + at * {name.upper()}_INPUT_SIZE",
        "INPUT_NOTE": input_note(program, integers.formats[INPUT].at(0)),
    }


def scratch_members(program: Program) -> list[str]:
    return [f"int16_t {name}[{size}];" for name, size in program.scratch.items()] or ["char unused;"]


def input_note(program: Program, form: Format) -> str:
    if program.tokens:
        return f"`token` is a whole number from 0 to {program.tokens - 1}, and is not checked."
    return (
        f"`input` is an array of {program.sizes[INPUT]} numbers of 16 bits: round(x * 2^{form.fraction}), "
        f"from -{(form.limit + 1) / 2**form.fraction:g} to {form.limit / 2**form.fraction:.6g}."
    )


def init_lines(program: Program) -> Iterator[str]:
    for name, start in program.state.items():
        value = str(start[0])
        if not (start == start[0]).all():
            yield f"static const int16_t first_{name}[] = {{"
            yield from wrapped([str(number) for number in start])
            yield "};"
            value = f"first_{name}[at]"
        yield f"for (at = 0; at < {len(start)}; at++) state->{name}[at] = {value};"


def integer_test(integers: IntegerProgram, inputs: Tensor, outputs: Tensor, name: str) -> str:
    """The test program: outputs [T, output_size] must be equal, number for number."""
    tokens, size = integers.program.tokens, integers.program.sizes[INPUT]
    listed = "\n    ".join(line for row in inputs.reshape(len(inputs), -1).tolist() for line in rows_of(row))
    kind = f"int32_t inputs[{len(inputs)}]" if tokens else f"int16_t inputs[{len(inputs)}][{size}]"
    if tokens:
        listed = ", ".join(map(str, inputs.flatten().tolist()))
    return filled(
        "integer_test.c",
        {
            **{"NAME": name, "PREFIX": name.upper(), "STEPS": str(len(inputs))},
            "INPUTS": f"static const {kind} = {{\n    {listed}\n}};",
            "EXPECTED": "\n    ".join(line for row in outputs.tolist() for line in rows_of(row)),
        },
    )


def rows_of(row: list[int]) -> Iterator[str]:
    yield "{"
    yield from wrapped([str(value) for value in row])
    yield "},"
