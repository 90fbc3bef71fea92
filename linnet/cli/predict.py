"""linnet predict: the answers of a trained model to inputs that a person types."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from linnet.base.settings import fingerprint, option
from linnet.cli.folders import task_of
from linnet.cli.options import add_checkpoint, add_dataclass
from linnet.cli.output import say
from linnet.cli.parser import path_name, run_name
from linnet.cli.predict_table import answer_table, is_table
from linnet.runs.answers import AnswerFile
from linnet.runs.load import TrainedRun, load
from linnet.runs.ready import is_ready
from linnet.runs.records import looks_like_a_run
from linnet.runs.remote import is_url
from linnet.runs.untrusted import harmless
from linnet.tasks import TASKS
from linnet.tasks.base import Task

BLOCK = 256
"""Inputs that are answered before their answers are written; tasks put those of similar length together."""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Print the answer of a trained model to each input: the class of a sequence, the continuation of a "
        "prompt, whatever the task of the run answers. `linnet predict RUN --help` also shows the options "
        "of its task."
    )
    add = command.add_argument
    add("folder", type=run_name, metavar="RUN")
    add(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="inputs as the task takes them; of forecast also a file, or nothing: the data of the run",
    )
    add("--file", type=path_name, help="a text file with one input per line (-: standard input)")
    add(
        "--out",
        type=path_name,
        help="write the answers to this file; if stopped, the same command continues it",
    )
    add("--plot", type=path_name, help="of forecast: draw the answers to this .html, .svg or .png")
    add("--json", action="store_true", help="one JSON object per line, with the input and the answer")
    add_checkpoint(command)
    words = getattr(command, "words", ())
    folder = next((word for word in words if names_a_run(word)), None)
    choices = prediction_options(TASKS[task_of(folder)])
    add_dataclass(command, choices)
    command.set_defaults(run=run, names=[each.name for each in dataclasses.fields(choices)])


def names_a_run(word: str) -> bool:
    return is_url(word) or is_ready(word) or looks_like_a_run(Path(word))


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
    settings = {name: getattr(options, name) for name in options.names if hasattr(options, name)}
    trained = load(options.folder, options.checkpoint)
    if is_table(trained, options):
        answer_table(trained, options, settings)
        return
    if options.plot:
        raise ValueError(
            "--plot draws the answers to a file, or to the data of a run of forecast; leave it out"
        )
    if not inputs:
        raise ValueError(
            "there is nothing to predict: give inputs, or --file with one input per line "
            "(--file - reads standard input)"
        )
    check_inputs(trained.task, inputs, len(options.inputs), options.file)
    show = partial(shown, trained.task, as_json=options.json)
    if options.out is None:
        with progress(len(inputs), 0, hidden=sys.stdout.isatty()) as advance:
            answer(trained, inputs, settings, show, say_each, advance)
        return
    made_by = [trained.config.task, trained.task.describe(), trained.step, settings, options.json]
    file = AnswerFile(options.out, fingerprint([made_by, inputs]), len(inputs))
    if file.done:
        say(f"continuing after {file.done:,} of {len(inputs):,} answers")
    with progress(len(inputs), file.done) as advance:
        answer(trained, inputs[file.done :], settings, show, file.add, advance)
    file.finish()
    say(f"{len(inputs):,} answers are in {options.out}")


def check_inputs(task: Task, inputs: Sequence[str], typed: int, file: Path | None) -> None:
    """Check all inputs before the first is answered; an error names the line of the file."""
    for number, raw in enumerate(inputs):
        try:
            task.check_input(raw)
        except ValueError as error:
            where = f"{file}, line {number - typed + 1:,}: " if number >= typed else ""
            raise ValueError(f"{where}{error}") from None


def answer(
    trained: TrainedRun,
    inputs: Sequence[str],
    settings: dict[str, Any],
    show: Callable[[str, Any], str],
    write: Callable[[list[str]], None],
    advance: Callable[[int], None],
) -> None:
    for start in range(0, len(inputs), BLOCK):
        block = inputs[start : start + BLOCK]
        write([*map(show, block, trained.predict(block, **settings))])
        advance(len(block))


def shown(task: Task, raw: str, answer: Any, as_json: bool) -> str:
    return json.dumps({"input": raw, "answer": answer}) if as_json else harmless(task.show(answer))


def say_each(answers: Sequence[str]) -> None:
    for each in answers:
        say(each)


@contextmanager
def progress(total: int, done: int, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a bar on the terminal for standard error, if there is one and more than one block is left."""
    if hidden or not sys.stderr.isatty() or total - done <= BLOCK:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda count: bar.advance(task, count)


def lines_of(path: Path) -> list[str]:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    # Not splitlines(): rare characters that it takes for the end of a line would shift all later answers.
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
