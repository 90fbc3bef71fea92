"""linnet export: a trained model in another language."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from linnet.cli.options import add_checkpoint
from linnet.cli.parser import path_name
from linnet.data.vocabulary import Vocabulary
from linnet.deploy.c import export_c
from linnet.deploy.hub import export_hub
from linnet.deploy.javascript import export_js
from linnet.deploy.wasm import export_wasm
from linnet.runs.load import TrainedRun, load

TARGETS = {"c": export_c, "js": export_js, "wasm": export_wasm}
HUB = "hub"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Write a trained model for other places: one step of it as source code that runs without Python, or "
        "all of it as a folder that the Hugging Face Hub understands."
    )
    add = command.add_argument
    add("folder", type=path_name, metavar="RUN")
    about = (
        "c: C99 without libraries; js: an ES module; wasm: WebAssembly in one; hub: for the Hugging Face Hub"
    )
    add("--to", choices=[*TARGETS, HUB], required=True, help=about)
    add("--out", type=path_name, help="the folder to write (RUN/export/TARGET)")
    add("--int8", action="store_true", help="weights of eight bits: a quarter of the size")
    add("--weights", choices=("arrays", "file"), help="c: in the source, or in a file to map (arrays)")
    add_checkpoint(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.weights and options.to != "c":
        raise ValueError(f"--weights is an option of --to c; --to {options.to} has its weights in the module")
    trained = load(options.folder, options.checkpoint)
    out = options.out or options.folder / "export" / options.to
    if options.to == HUB:
        say_written(export_hub(trained, out, int8=options.int8))
        return
    given: dict[str, Any] = {"int8": options.int8, "vocabulary": tokens_of(trained)}
    if options.weights:
        given["weights"] = options.weights
    written = TARGETS[options.to](trained.model, out, **given)
    say_written(written)


def say_written(folder: Path) -> None:
    print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def tokens_of(trained: TrainedRun) -> list[str | bytes] | None:
    """The texts of the tokens of a language model; those of a model of bytes are bytes."""
    vocabulary = trained.vocabulary
    if not trained.task.is_language_model or not isinstance(vocabulary, Vocabulary):
        return None
    if vocabulary.level == "byte":
        return [token.encode("latin-1") for token in vocabulary.tokens]
    # The pieces of BPE are not texts: bytes are spelt with other characters.
    return None if vocabulary.level == "bpe" else list(vocabulary.tokens)
