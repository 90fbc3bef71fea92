"""The command line: a file for each command. `linnet train` is in train.py, `linnet list` in list.py."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from linnet.base.command import INTERRUPTED
from linnet.base.slurm import join_step
from linnet.base.version import __version__
from linnet.cli.parser import LazyParser, Parser
from linnet.runs.untrusted import harmless

COMMANDS = {
    "list": "the units, tasks, recipes, corpora and plots by name",
    "show": "the kernel that is compiled from a unit's step",
    "bench": "how fast units are on this machine, compared with nn.LSTM",
    "train": "train a model, or resume a run",
    "eval": "the metrics of a trained model",
    "predict": "the answers of a trained model to your own inputs",
    "generate": "generate text with a trained language model",
    "race": "train light units and nn.LSTM for the same seconds each, and compare them",
    "compare": "train several units with the same number of parameters and compare them",
    "atlas": "every unit on small tasks: quality against time and size, on one page",
    "search": "random search over settings, with ranges that shrink",
    "runs": "what runs do now: where, how far, and why some have failed",
    "plot": "plots of recorded runs",
    "export": "a trained model as source code of another language",
    "convert": "a model of another library's file (ONNX) as source code, or as a table of its layers",
    "lens": "a page in which you type and watch a trained model read",
}


def parser() -> Parser:
    made = Parser(
        prog="linnet", description="Light recurrent networks: inspect them, measure them, train them."
    )
    made.add_argument("--version", action="version", version=f"linnet {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=LazyParser)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text).fill = partial(add_options, name)
    return made


def add_options(name: str, command: argparse.ArgumentParser) -> None:
    """Import the file of a command only when it is used: `linnet list` needs no training package."""
    import_module(f"linnet.cli.{name}").add_options(command)


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        # The first process prints; in a step of SLURM it is known only after this.
        join_step()
        # Parsing imports the modules of the command, which takes time.
        options = parser().parse_args(arguments)
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has closed the pipe. Discard what is left in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("linnet: stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        return INTERRUPTED
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        print(f"linnet: {harmless(error)}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0
