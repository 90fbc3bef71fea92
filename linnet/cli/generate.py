"""linnet generate: text from a trained language model."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from linnet.cli.options import add_checkpoint
from linnet.cli.parser import run_name
from linnet.models.generate import generate
from linnet.runs.load import load
from linnet.runs.untrusted import harmless


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = "Continue a prompt, one token at a time."
    add = command.add_argument
    add("folder", type=run_name, metavar="RUN")
    add("--prompt", default="", help="the text to continue (the beginning of a line)")
    add("--tokens", type=int, default=100, help="number of tokens to generate (100)")
    add("--temperature", type=float, default=1.0, help="0: always take the most likely token (1)")
    add("--top-k", type=int, default=0, help="sample from this many most likely tokens (0: all)")
    add("--top-p", type=float, default=1.0, help="sample from the most likely tokens with this mass (1)")
    add("--seed", type=int, default=1, help="of the sampling (1)")
    add_checkpoint(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    trained = load(options.folder, options.checkpoint)
    if not trained.task.is_language_model:
        raise ValueError(
            f"{options.folder} is a run of {trained.config.task!r} and no language model; see linnet predict"
        )
    sampling = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")}
    sampling["window"] = trained.config.data.window
    model: Any = trained.model
    for piece in generate(model, trained.vocabulary, options.prompt, tokens=options.tokens, **sampling):
        sys.stdout.write(harmless(piece))
        sys.stdout.flush()
    print()
