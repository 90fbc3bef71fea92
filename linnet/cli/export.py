"""linnet export: a trained model in another language."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from linnet.cli.folders import local_folder
from linnet.cli.options import add_checkpoint
from linnet.cli.parser import path_name, run_name
from linnet.data.vocabulary import Vocabulary
from linnet.deploy.c import export_c
from linnet.deploy.hub import export_hub
from linnet.deploy.javascript import export_js
from linnet.deploy.onnx import export_onnx
from linnet.deploy.onnx_stream import write_stream_onnx
from linnet.deploy.source.folder import new_folder
from linnet.deploy.wasm import export_wasm
from linnet.models.classifier import Classifier
from linnet.models.language import LanguageModel
from linnet.runs.load import TrainedRun, load

TARGETS = {"c": export_c, "js": export_js, "wasm": export_wasm}
HUB, ONNX = "hub", "onnx"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a trained model for other places: one step of it as source code that runs without Python, "
        "files for onnxruntime, or all of it as a folder that the Hugging Face Hub understands."
    )
    add = command.add_argument
    add("folder", type=run_name, metavar="RUN")
    about = (
        "c: C99 without libraries; js: an ES module; wasm: WebAssembly in one; onnx: for onnxruntime; "
        "hub: for the Hugging Face Hub"
    )
    add("--to", choices=[*TARGETS, ONNX, HUB], required=True, help=about)
    add("--out", type=path_name, help="the folder to write (RUN/export/TARGET)")
    add("--int8", action="store_true", help="weights of eight bits: a quarter of the size")
    add("--weights", choices=("arrays", "file"), help="c: in the source, or in a file to map (arrays)")
    add_checkpoint(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.weights and options.to != "c":
        raise ValueError(f"--weights is an option of --to c; --to {options.to} has its weights in the module")
    trained = load(options.folder, options.checkpoint)
    out = options.out or local_folder(options.folder) / "export" / options.to
    if options.to == HUB:
        say_written(export_hub(trained, out, int8=options.int8))
        return
    if options.to == ONNX:
        if options.int8:
            raise ValueError("--int8 is not for --to onnx; quantise the file with onnxruntime.quantization")
        say_written(write_onnx(trained, out))
        return
    given: dict[str, Any] = {"int8": options.int8, "vocabulary": tokens_of(trained)}
    if options.weights:
        given["weights"] = options.weights
    model = trained.task.stream_step(trained.model) or trained.model
    written = TARGETS[options.to](model, out, **given)
    say_written(written)


def say_written(folder: Path) -> None:
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def write_onnx(trained: TrainedRun, out: Path) -> Path:
    """Write model.onnx, which reads whole sequences; of a language model also step.onnx and its tokens.

    Of a run that reads numbers one step at a time, write step.onnx and the names of its numbers.
    """
    model = trained.model
    with new_folder(out, {"target": ONNX}) as work:
        if step := trained.task.stream_step(model):
            write_stream_onnx(step, work)
        elif isinstance(model, LanguageModel):
            write_sequences(model, work / "model.onnx")
            export_onnx(model, work / "step.onnx", streaming=True)
        elif isinstance(model, Classifier):
            export_onnx(model, work / "model.onnx", **classifier_example(model))
        else:
            raise ValueError(
                f"{trained.folder} is a run of {trained.config.task!r}, and --to onnx takes language models "
                "and classifiers; for others, linnet.export_onnx(linnet.load(RUN).model, FILE, *example) "
                "takes example arguments"
            )
        tokens = tokens_of(trained)
        if tokens and all(isinstance(token, str) for token in tokens):
            text = json.dumps(tokens, ensure_ascii=False)
            (work / "vocabulary.json").write_text(text, encoding="utf-8")
    return out


def write_sequences(model: LanguageModel, path: Path) -> None:
    """Write the model over whole sequences; some units have only single steps in ONNX."""
    try:
        export_onnx(model, path)
    except NotImplementedError as reason:
        print(f"there is no {path.name}, only a file of one step: {reason}")


def classifier_example(model: Classifier) -> dict[str, Any]:
    """Return example arguments: two texts of three and two tokens."""
    example = {"tokens": torch.zeros(3, 2, dtype=torch.int64), "lengths": torch.tensor([3, 2])}
    if model.config.reads_characters:
        example["characters"] = torch.zeros(3, 2, 4, dtype=torch.int64)
    return example


def tokens_of(trained: TrainedRun) -> list[str | bytes] | None:
    """The texts of the tokens of a language model; those of a model of bytes are bytes."""
    vocabulary = trained.vocabulary
    if not trained.task.is_language_model or not isinstance(vocabulary, Vocabulary):
        return None
    if vocabulary.level == "byte":
        return [token.encode("latin-1") for token in vocabulary.tokens]
    # The pieces of BPE are not texts: bytes are spelt with other characters.
    return None if vocabulary.level == "bpe" else list(vocabulary.tokens)
