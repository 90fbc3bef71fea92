"""linnet predict: the answers of a trained model to inputs that a person types."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path

from linnet.base.settings import option
from linnet.cli.folders import task_of
from linnet.cli.options import add_dataclass
from linnet.cli.output import say
from linnet.runs.load import load
from linnet.runs.records import looks_like_a_run
from linnet.runs.untrusted import harmless
from linnet.tasks import TASKS
from linnet.tasks.base import Task


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Print the answer of a trained model to each input: the class of a sequence, the continuation of a "
        "prompt, whatever the task of the run answers. `linnet predict RUN --help` also shows the options "
        "of its task."
    )
    add = command.add_argument
    add("folder", type=Path, metavar="RUN")
    add("inputs", nargs="*", metavar="INPUT", help="inputs as the task takes them")
    add("--file", type=Path, help="a text file with one input per line (-: standard input)")
    add("--json", action="store_true", help="one JSON object per line, with the input and the answer")
    add("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    folder = next((word for word in getattr(command, "words", ()) if looks_like_a_run(Path(word))), None)
    choices = prediction_options(TASKS[task_of(folder)])
    add_dataclass(command, choices)
    command.set_defaults(run=run, names=[each.name for each in dataclasses.fields(choices)])


def prediction_options(task: type[Task]) -> type:
    """Return a dataclass with the options of the task's `predict`: its keyword arguments.

    Their help is what the docstring says of them, in lines such as "beam   the number of hypotheses".
    """
    parameters = inspect.signature(task.predict).parameters.values()
    known = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    about = dict(re.findall(r"^ +(\w+) {2,}(.+)$", task.predict.__doc__ or "", re.MULTILINE))
    return dataclasses.make_dataclass(
        "Prediction",
        [(name, type(value), option(value, about.get(name, ""))) for name, value in known.items()],
    )


def run(options: argparse.Namespace) -> None:
    inputs = [*options.inputs, *(lines_of(options.file) if options.file else ())]
    if not inputs:
        raise ValueError("there is nothing to predict: give inputs, or --file with one input per line")
    settings = {name: getattr(options, name) for name in options.names if hasattr(options, name)}
    trained = load(options.folder, options.checkpoint)
    for raw, answer in zip(inputs, trained.predict(inputs, **settings), strict=True):
        as_json = json.dumps({"input": raw, "answer": answer}) if options.json else None
        say(as_json or harmless(trained.task.show(answer)))


def lines_of(path: Path) -> list[str]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    return text.splitlines()
