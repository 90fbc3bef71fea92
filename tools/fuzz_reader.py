"""Fuzzing of the readers of model files: nothing but the documented error may come out of a changed file.

    python -m tools.fuzz_reader FOLDER -max_total_time=900 -rss_limit_mb=3000       the reader, and a call
    python -m tools.fuzz_reader FOLDER --command -max_total_time=900                `linnet convert`

Needs the package atheris. FOLDER keeps the inputs that reach new code. Every second input is changed as a
message (attributes, shapes, operators, inputs), the others as bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris
import torch
from google.protobuf.message import DecodeError
from onnx import ModelProto

# Count the code that is reached in the readers, not in torch.
with atheris.instrument_imports(include=["linnet.deploy.read", "linnet.cli.convert"]):
    from linnet.base.errors import InputError, InputTypeError
    from linnet.cli import main as linnet_command
    from linnet.deploy.read.errors import UnreadableModel
    from linnet.deploy.read.files import model_of
    from linnet.deploy.read.operators.table import OPERATORS
    from linnet.deploy.read.states import example_of
from tools.onnx_cases import CASES

LIMIT = 2**26
"""The memory limit of the readers while they are fuzzed."""
NUMBERS = (-(2**63), -(2**31), -5, -1, 0, 1, 2, 3, 7, 16, 255, 65536, 2**31 - 1, 2**31, 2**40, 2**62)
TEXTS = (b"reflect", b"edge", b"wrap", b"SAME_UPPER", b"VALID", b"reverse", b"bidirectional")


def read_and_call(data: bytes) -> None:
    """Read a model, and call it twice: with all checks, and by its plan."""
    try:
        model = model_of(data, None, {}, LIMIT)
        example = example_of(model, {})
        for _ in range(2):
            with torch.no_grad():
                model(**example)
    except (UnreadableModel, InputError, InputTypeError):
        pass


def convert(data: bytes) -> None:
    """Run the command on a file; it returns 0 or 1 and raises nothing."""
    with tempfile.NamedTemporaryFile(suffix=".onnx", dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            code = linnet_command(["convert", file.name])
    assert code in (0, 1), code


# ---------------------------------------------------------------------------------------- mutation


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change a message in one to four places; what is not a message is changed as bytes."""
    chance = random.Random(seed)
    if chance.random() < 0.5:
        return atheris.Mutate(data, most)
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return atheris.Mutate(data, most)
    try:
        for _ in range(chance.randrange(1, 5)):
            chance.choice(CHANGES)(model.graph, chance)
    except UnicodeDecodeError:
        # Bytes that are no text can be read from a message, and not written to one.
        return atheris.Mutate(data, most)
    changed = model.SerializeToString()
    return changed if len(changed) <= most else data


def change_attribute(graph: Any, chance: random.Random) -> None:
    attributes = [each for node in graph.node for each in node.attribute]
    if not attributes:
        return
    each = chance.choice(attributes)
    if each.ints:
        each.ints[chance.randrange(len(each.ints))] = chance.choice(NUMBERS)
    elif each.HasField("g"):
        chance.choice(CHANGES)(each.g, chance)
    elif each.HasField("s"):
        each.s = chance.choice(TEXTS)
    else:
        each.i = chance.choice(NUMBERS)


def change_tensor(graph: Any, chance: random.Random) -> None:
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    if not tensors:
        return
    each = chance.choice(tensors)
    if each.int64_data:
        each.int64_data[chance.randrange(len(each.int64_data))] = chance.choice(NUMBERS)
    elif each.data_type == 7 and len(each.raw_data) >= 8:
        position = 8 * chance.randrange(len(each.raw_data) // 8)
        number = chance.choice(NUMBERS).to_bytes(8, "little", signed=True)
        each.raw_data = each.raw_data[:position] + number + each.raw_data[position + 8 :]
    elif each.dims:
        each.dims[chance.randrange(len(each.dims))] = chance.choice(NUMBERS)


def change_operator(graph: Any, chance: random.Random) -> None:
    if graph.node:
        chance.choice(graph.node).op_type = chance.choice(sorted(OPERATORS))


def change_edge(graph: Any, chance: random.Random) -> None:
    """Let a node read another value, or one more."""
    names = [name for node in graph.node for name in node.output]
    names += [each.name for each in (*graph.input, *graph.initializer)]
    if not graph.node or not names:
        return
    node = chance.choice(graph.node)
    if node.input and chance.random() < 0.7:
        node.input[chance.randrange(len(node.input))] = chance.choice([*names, ""])
    else:
        node.input.append(chance.choice(names))


def repeat_node(graph: Any, chance: random.Random) -> None:
    """Let the last node run on its own output once more: sizes grow with each repetition."""
    if not graph.node or not graph.node[-1].input or not graph.node[-1].output:
        return
    last = graph.node[-1]
    made = graph.node.add()
    made.CopyFrom(last)
    made.input[0] = last.output[0]
    made.output[0] = f"again{len(graph.node)}"
    if graph.output:
        graph.output[0].name = made.output[0]


def change_input(graph: Any, chance: random.Random) -> None:
    if graph.input:
        dims = chance.choice(graph.input).type.tensor_type.shape.dim
        if dims:
            chance.choice(dims).dim_value = chance.choice(NUMBERS)


CHANGES = (change_attribute, change_tensor, change_operator, change_edge, repeat_node, change_input)


def write_seeds(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in CASES.items():
        (folder / f"{name}.onnx").write_bytes(make().SerializeToString())


def main() -> None:
    torch.set_num_threads(1)
    folder, *options = [each for each in sys.argv[1:] if each != "--command"]
    target = convert if "--command" in sys.argv else read_and_call
    write_seeds(Path(folder))
    os.environ.setdefault("LINNET_CACHE", str(Path(folder).with_name("cache")))
    atheris.Setup([sys.argv[0], folder, *options], target, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
