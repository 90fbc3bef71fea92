"""linnet predict: the answers of a trained model to inputs that a person types."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from linnet.base.settings import refuse_unknown
from linnet.cli.options import parsed
from linnet.cli.output import say
from linnet.runs.load import load
from linnet.runs.untrusted import harmless
from linnet.tasks.base import Task


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Print the answer of a trained model to each input: the class of a sequence, the continuation of a "
        "prompt, whatever the task of the run answers."
    )
    add = command.add_argument
    add("folder", type=Path, metavar="RUN")
    add("inputs", nargs="*", metavar="INPUT", help="inputs as the task takes them")
    add("--file", type=Path, help="a text file with one input per line (-: standard input)")
    add("--json", action="store_true", help="one JSON object per line, with the input and the answer")
    add("--set", nargs="+", default=[], type=pair, metavar="NAME=VALUE", help="options of the task's predict")
    add("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    command.set_defaults(run=run)


def pair(text: str) -> tuple[str, Any]:
    """temperature=0.8"""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, like tokens=20; got {text!r}")
    return name.replace("-", "_"), parsed(value)


def run(options: argparse.Namespace) -> None:
    inputs = [*options.inputs, *(lines_of(options.file) if options.file else ())]
    if not inputs:
        raise ValueError("there is nothing to predict: give inputs, or --file with one input per line")
    trained, settings = load(options.folder, options.checkpoint), dict(options.set)
    check_settings(trained.task, settings)
    for raw, answer in zip(inputs, trained.predict(inputs, **settings), strict=True):
        as_json = json.dumps({"input": raw, "answer": answer}) if options.json else None
        say(as_json or harmless(trained.task.show(answer)))


def check_settings(task: Task, settings: dict[str, Any]) -> None:
    """Raise for names of --set that are not keyword arguments of the task's `predict`."""
    parameters = inspect.signature(task.predict).parameters.values()
    known = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    if settings and not known:
        raise ValueError(f"the predictions of {task.name} have no options to --set")
    refuse_unknown(f"predict of {task.name}", settings, known)


def lines_of(path: Path) -> list[str]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    return text.splitlines()
