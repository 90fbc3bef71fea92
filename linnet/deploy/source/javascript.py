"""The step of a model as one ES module, with typed arrays and nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from linnet.deploy.source.folder import filled
from linnet.deploy.source.language import Language
from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Matrix, Product, Program
from linnet.program.views import View


class JavaScript(Language):
    name = "JavaScript"
    variable = "const"
    changing = "let"
    index = "let"
    operations = {
        **{"add": "({} + {})", "sub": "({} - {})", "mul": "{} * {}", "div": "({} / {})", "neg": "(-{})"},
        **{"maximum": "Math.max({}, {})", "minimum": "Math.min({}, {})", "pow": "Math.pow({}, {})"},
        **{"abs": "Math.abs({})", "sign": "Math.sign({})", "exp": "Math.exp({})", "log": "Math.log({})"},
        **{"sqrt": "Math.sqrt({})", "sin": "Math.sin({})", "cos": "Math.cos({})", "floor": "Math.floor({})"},
        **{"sigmoid": "sigmoid({})", "tanh": "Math.tanh({})", "expm1": "Math.expm1({})"},
        **{"log1p": "Math.log1p({})", "gt": "({} > {})", "ge": "({} >= {})", "lt": "({} < {})"},
        **{"le": "({} <= {})", "eq": "({} === {})", "ne": "({} !== {})", "where": "({} ? {} : {})"},
        **{"logical_and": "({} && {})", "logical_or": "({} || {})", "logical_not": "(!{})"},
    }

    def __init__(self, program: Program):
        self.program = program

    def number(self, value: float) -> str:
        if value != value or value in (float("inf"), float("-inf")):
            return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
        return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)

    def buffer(self, name: str) -> str:
        return f"state.{name}" if name in self.program.state else name

    def lookup(self, kernel: Lookup) -> Iterator[str]:
        found = f"weights.{kernel.table}, input, {kernel.size}, {kernel.output}"
        yield f'if (typeof input === "number") lookup({found});'
        yield f"else {kernel.output}.set(input);"

    def product(self, kernel: Product) -> Iterator[str]:
        if not kernel.lies_in_rows:
            yield from super().product(kernel)
            return
        cut = f", {kernel.heads}, {kernel.block_size}" if kernel.heads > 1 else ""
        yield self.call(kernel, f"{self.buffer(kernel.x)}, {kernel.x_offset}", kernel.rows, cut)

    def row(self, kernel: Product, x: str, start: str, y: str) -> Iterator[str]:
        yield self.call(kernel, f"{x}, {start or 0}", 1, f", {kernel.heads}, {kernel.block_size}, {y or 0}")

    def call(self, kernel: Product, x: str, rows: int, more: str) -> str:
        bias = f"weights.{kernel.bias}" if kernel.bias else "null"
        sizes = f"{rows}, {kernel.inputs}, {kernel.outputs}"
        return f"product(weights.{kernel.matrix}, {bias}, {x}, {sizes}, {kernel.output}{more});"


def module_of(
    program: Program, vocabulary: Sequence[str] | None, rounds_inputs: bool = True, names: str = "null"
) -> str:
    """The text of the module. With int8 weights, `rounds_inputs` computes their products in int8 too.

    names   those of the numbers of input and output, as JavaScript
    """
    writer = JavaScript(program)
    writer.check(program)
    buffers = {name: size for name, size in program.sizes.items() if name not in (INPUT, *program.state)}
    lookup = next((kernel for kernel in program.kernels if isinstance(kernel, Lookup)), None)
    parts = {
        "ABOUT": program.counts,
        "LAYERS": json.dumps(layers_of(program)),
        "FINGERPRINT": program.fingerprint,
        "TOKENS": str(program.tokens),
        "INPUT_SIZE": str(program.sizes[INPUT]),
        "OUTPUT_SIZE": str(program.sizes[OUTPUT]),
        "VOCABULARY": json.dumps(vocabulary, ensure_ascii=False),
        "STREAM": names,
        "START": indented(f"{name}: {start_text(value)}," for name, value in program.state.items()),
        "WEIGHTS": indented([*matrix_texts(program, rounds_inputs), *vector_texts(program)]),
        "VECTOR_SIZE": str(lookup.size if lookup else program.sizes[INPUT]),
        "TABLE": f"weights.{lookup.table}" if lookup else "null",
        "BUFFERS": indented((f"{name}: new Numbers({size})," for name, size in buffers.items()), 3),
        "NAMES": ", ".join(buffers),
        "VECTORS": ", ".join(program.vectors),
        "STEP": indented(writer.step(), 2),
        "VALUES": indented((values_text(layer) for layer in program.values), 3),
    }
    return filled("model.js", parts)


def layers_of(program: Program) -> list[dict[str, Any]]:
    """Return the unit of each layer, and the sizes of its values by name, as `values` returns them."""
    pairs = zip(program.units, program.values, strict=True)
    return [
        {"unit": unit, "values": {name: view.size for name, view in values.items()}} for unit, values in pairs
    ]


def indented(lines: Iterator[str] | Sequence[str], depth: int = 1) -> str:
    return ("\n" + "  " * depth).join(line.replace("    ", "  ") for line in lines)


def start_text(value: np.ndarray) -> str:
    """A constant vector of the initial state, as a function that makes it."""
    if (value == value[0]).all():
        first = JavaScript.number(None, float(value[0]))  # type: ignore[arg-type]
        return f"() => new Float32Array({len(value)})" + (f".fill({first})" if value[0] else "")
    return f"() => numbers({encoded(value)})"


def matrix_texts(program: Program, rounds_inputs: bool) -> Iterator[str]:
    for name, matrix in program.matrices.items():
        outputs, inputs = matrix.values.shape
        yield f"// {outputs} x {inputs}"
        yield f"{name}: {matrix_text(matrix, rounds_inputs)},"


def matrix_text(matrix: Matrix, rounds_inputs: bool) -> str:
    if matrix.scales is None:
        return f"{{ values: numbers({encoded(matrix.values)}), scales: null }}"
    values, scales = f"bytes({encoded(matrix.values)})", f"numbers({encoded(matrix.scales)})"
    if rounds_inputs:
        return f"{{ values: {values}, scales: {scales} }}"
    return f"{{ values: scaled({values}, {scales}), scales: null }}"


def vector_texts(program: Program) -> Iterator[str]:
    for name, vector in program.vectors.items():
        yield f"{name}: {'numbers' if vector.dtype == np.float32 else 'integers'}({encoded(vector)}),"


def encoded(values: np.ndarray) -> str:
    """Little-endian float32 or whole numbers, in base64."""
    kind = values.dtype.newbyteorder("<") if values.dtype.kind == "i" else np.dtype("<f4")
    return f'"{base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()}"'


def values_text(layer: Mapping[str, View]) -> str:
    parts = [
        f"{name}: {view.base}.slice({view.offset}, {view.offset + view.size})" for name, view in layer.items()
    ]
    return f"{{ {', '.join(parts)} }},"
