"""linnet export: a trained model in another language."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from linnet.deploy.javascript import export_js
from linnet.runs.load import load

TARGETS = {"js": export_js}


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = "Write one step of a trained model as source code that runs without Python."
    add = command.add_argument
    add("folder", type=Path, metavar="RUN")
    add("--to", choices=list(TARGETS), required=True, help="js: one ES module")
    add("--out", type=Path, help="the folder to write (RUN/export/TARGET)")
    add("--int8", action="store_true", help="weights of eight bits: a quarter of the size")
    add("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    trained = load(options.folder, options.checkpoint)
    out = options.out or options.folder / "export" / options.to
    given: dict[str, Any] = {"int8": options.int8, "vocabulary": tokens_of(trained)}
    written = TARGETS[options.to](trained.model, out, **given)
    print(f"{written}: {', '.join(sorted(path.name for path in written.iterdir()))}")


def tokens_of(trained: Any) -> list[str] | None:
    """The texts of the tokens, if the run has a vocabulary of texts."""
    tokens = getattr(trained.vocabulary, "tokens", None)
    return None if tokens is None else list(tokens)
