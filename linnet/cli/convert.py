"""linnet convert: a model from a file of another library."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from linnet.cli.export import TARGETS, say_written
from linnet.cli.output import say
from linnet.cli.parser import at_least_one, path_name
from linnet.deploy.onnx import export_onnx
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.files import read_model
from linnet.deploy.read.layers import layer_table
from linnet.deploy.read.limits import MEMORY
from linnet.deploy.read.module import FileModel
from linnet.deploy.read.states import StatefulStep, example_of, find_states
from linnet.deploy.source.folder import new_folder

ONNX = "onnx"
GIGABYTE = 2**30


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Read a model from an ONNX file or a torch.export program, with Linnet's layers for its recurrent "
        "operators, show its layers, and write one step of it for other places. The file is untrusted input: "
        "no code of it runs."
    )
    add = command.add_argument
    add("file", type=path_name, metavar="FILE")
    targets = "c: C99 without libraries; js: an ES module; wasm: WebAssembly in one; onnx: for onnxruntime"
    add("--to", choices=[*TARGETS, ONNX], help=f"what to write; without it, only show the layers. {targets}")
    add("--out", type=path_name, help="the folder to write (FILE without its ending, and the target)")
    add("--int8", action="store_true", help="weights of eight bits: a quarter of the size")
    add("--name", help="c and onnx: how the names of files and functions start (model)")
    for flag, kind, about in (
        ("--set", number, "an input that never changes, such as sr=16000"),
        ("--shape", shape, "the shape of an input, such as input=1x576 (1 where the file has no number)"),
        ("--state", str, "an input and the output that replaces it, such as h=hn (found by their names)"),
    ):
        add(flag, type=pair_of(kind), action="append", default=[], metavar="NAME=VALUE", help=about)
    add("--memory", type=at_least_one, default=MEMORY // GIGABYTE, help="the most gigabytes to take (4)")
    command.set_defaults(run=run)


def pair_of(kind: Callable[[str], Any]) -> Callable[[str], tuple[str, Any]]:
    """NAME=VALUE, the value of a kind."""

    def read(text: str) -> tuple[str, Any]:
        name, equals, value = text.rpartition("=")
        if not (equals and name and value):
            raise argparse.ArgumentTypeError(f"expected NAME=VALUE; got {text!r}")
        return name, kind(value)

    return read


def number(text: str) -> float:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number; got {text!r}") from None


def shape(text: str) -> list[int]:
    lengths = text.split("x")
    if not all(each.isascii() and each.isdigit() and 0 < len(each) < 10 for each in lengths):
        raise argparse.ArgumentTypeError(f"expected lengths such as 1x576; got {text!r}")
    return [int(each) for each in lengths]


def run(options: argparse.Namespace) -> None:
    model = read_model(options.file, fixed=dict(options.set), memory_limit=options.memory * GIGABYTE)
    say(layer_table(model))
    say_ports(model)
    if options.to is None:
        return
    out = options.out or options.file.with_suffix("") / options.to
    example = example_of(model, dict(options.shape))
    try:
        states = find_states(model, example, dict(options.state) or None)
    except UnreadableModel as error:
        raise UnreadableModel(f"{error} (the inputs were {shown(example)}; --shape gives others)") from None
    step = StatefulStep(model, states).eval()
    say(f"states: {', '.join(f'{a} -> {b}' for a, b in states.items()) or 'none'}")
    write(step, step.arguments(example), out, options)


def say_ports(model: FileModel) -> None:
    for port in model.inputs:
        lengths = "x".join("?" if n is None else str(n) for n in port.shape or ())
        say(f"input {port.name}: {str(port.dtype).removeprefix('torch.')} {lengths}")
    say(f"outputs: {', '.join(model.output_names)}")


def shown(example: dict[str, torch.Tensor]) -> str:
    return ", ".join(f"{name}={'x'.join(map(str, each.shape))}" for name, each in example.items())


def write(step: StatefulStep, example: tuple[Any, Any], out: Path, options: argparse.Namespace) -> None:
    if options.to == ONNX:
        if options.int8:
            raise ValueError("--int8 is not for --to onnx; quantise the file with onnxruntime.quantization")
        say_written(write_onnx(step, example, out, options.name or "model"))
        return
    if options.name and options.to != "c":
        raise ValueError(f"--name is an option of --to c and --to onnx; --to {options.to} has one name")
    given: dict[str, Any] = {"name": options.name} if options.name else {}
    export: Any = TARGETS[options.to]
    say_written(export(step, out, example=example, int8=options.int8, **given))


def write_onnx(step: StatefulStep, example: tuple[Any, Any], out: Path, name: str) -> Path:
    """Write the step with the names of the file; its shapes are those of the example."""
    with new_folder(out, {"target": ONNX}) as work:
        names = [*step.y_names, *step.states.values()]
        export_onnx(step, work / f"{name}.onnx", *example, dynamic_shapes={}, output_names=names)
    return out
