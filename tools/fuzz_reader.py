"""Fuzzing of the readers of model files: nothing but the documented error may come out of a changed file.

    python -m tools.fuzz_reader FOLDER -max_total_time=900 -rss_limit_mb=3000       the reader, and a call
    python -m tools.fuzz_reader FOLDER --command -max_total_time=900                `linnet convert`
    python -m tools.fuzz_reader FOLDER --program -max_total_time=900                programs of torch.export

Needs the package atheris. FOLDER keeps the inputs that reach new code. Every second input is changed as a
message (attributes, shapes, operators, inputs) or, of a program, as JSON; the others as bytes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris
import torch
from google.protobuf.message import DecodeError
from onnx import ModelProto
from torch import nn

# Count the code that is reached in the readers, not in torch.
with atheris.instrument_imports(include=["linnet.deploy.read", "linnet.cli.convert"]):
    from linnet.base.errors import InputError, InputTypeError
    from linnet.cli import main as linnet_command
    from linnet.deploy.read.errors import UnreadableModel
    from linnet.deploy.read.files import model_of, read_model
    from linnet.deploy.read.operators.table import OPERATORS
    from linnet.deploy.read.program_file import MODEL
    from linnet.deploy.read.states import example_of
from tools.onnx_cases import CASES

WEIGHTS: dict[str, bytes] = {}
"""The entries of the archive of a program."""
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


def read_program_and_call(data: bytes) -> None:
    """Read a program whose JSON is `data` and whose weights are those of the first seed."""
    with tempfile.NamedTemporaryFile(suffix=".pt2", dir="/dev/shm") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in WEIGHTS.items():
                archive.writestr(name, data if name.endswith(MODEL) else content)
        file.flush()
        try:
            model = read_model(file.name, memory_limit=LIMIT)
            example = example_of(model, {})
            for _ in range(2):
                with torch.no_grad():
                    model(*example.values())
        except (UnreadableModel, InputError, InputTypeError):
            pass


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


def mutate_json(data: bytes, most: int, seed: int) -> bytes:
    """Replace one to four values anywhere in the JSON by numbers, or by other values of it."""
    chance = random.Random(seed)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return atheris.Mutate(data, most)
    if chance.random() < 0.2:
        return atheris.Mutate(data, most)
    for _ in range(chance.randrange(1, 5)):
        places = list(places_in(value))
        if not places:
            return data
        (where, key), (other, name) = chance.choice(places), chance.choice(places)
        # A copy: the other value may contain this place.
        moved = copy.deepcopy(other[name])
        where[key] = moved if chance.random() < 0.5 else chance.choice([*NUMBERS, None, "", [], True, 0.5])
    changed = json.dumps(value).encode()
    return changed if len(changed) <= most else data


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container within a value, with each of its keys."""
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield value, key
        yield from places_in(value[key])


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rnn, self.head = nn.Conv1d(2, 3, 3), nn.GRU(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x)).permute(2, 0, 1)
        y, h = self.rnn(y, h)
        y = torch.cat([y, y.clamp(-1, 1)], 1).reshape(y.shape[0], -1, 4).mean(0)
        return torch.softmax(self.head(y), -1), h


def write_program(folder: Path) -> None:
    """Keep the weights of a small program, and write its JSON without what the reader never looks at."""
    batch = torch.export.Dim("batch", min=2, max=8)
    inputs = (torch.randn(2, 2, 6), torch.randn(1, 2, 4))
    exported = torch.export.export(Program().eval(), inputs, dynamic_shapes=({0: batch}, {1: batch}))
    torch.export.save(exported, folder.with_name("program.pt2"))
    with zipfile.ZipFile(folder.with_name("program.pt2")) as archive:
        WEIGHTS.update({name: archive.read(name) for name in archive.namelist()})
    value = json.loads(next(content for name, content in WEIGHTS.items() if name.endswith(MODEL)))
    for node in value["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"graph_module": {name: value["graph_module"][name] for name in ("graph", "signature")}}
    (folder / "program.json").write_text(json.dumps(kept), encoding="utf-8")


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
    folder, *options = [each for each in sys.argv[1:] if not each.startswith("--")]
    is_program = "--program" in sys.argv
    target = convert if "--command" in sys.argv else read_program_and_call if is_program else read_and_call
    (write_program if is_program else write_seeds)(Path(folder))
    options += ["-max_len=40000"] if is_program else []
    atheris.Setup(
        [sys.argv[0], folder, *options], target, custom_mutator=mutate_json if is_program else mutate
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
