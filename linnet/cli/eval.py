"""linnet eval: the metrics of a trained model."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from linnet.cli.folders import task_of
from linnet.cli.options import add_checkpoint, add_dataclass, add_run_options, given_options
from linnet.cli.output import result_line, say, section_table
from linnet.cli.parser import run_name
from linnet.deploy.quantize import quantize
from linnet.runs.config import options as options_of
from linnet.runs.load import TrainedRun, load
from linnet.tasks import TASKS
from linnet.train import dynamic

FILES = ("path", "source")
FILES_OF_SPLITS = ("valid_path", "test_path", "valid_source", "test_source")
SPLITS_HELP = "all: the whole file --path, or every split of a set (valid test; all of a file that you give)"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Evaluate a trained model on its own data, or on all of another file of the same kind (--path): "
        "unknown words become <unk>. The run comes first: `linnet eval RUN --help` shows the options of its "
        "data."
    )
    task = task_of(getattr(command, "first_word", None))
    add = command.add_argument
    add("folder", type=run_name, metavar="RUN")
    add_checkpoint(command)
    add("--splits", nargs="+", choices=TASKS[task].splits, help=SPLITS_HELP)
    add("--dynamic", action="store_true", help="keep learning while evaluating")
    add(
        "--int8",
        nargs="?",
        const="all",
        choices=("all", "weights"),
        help="evaluate the model in int8 (linnet.quantize); weights: round only the weights",
    )
    others = tuple(field.name for part, field, _ in options_of(task) if part != "data")
    add_run_options(command, task, without=others)
    add_dataclass(command, dynamic.DynamicConfig)
    command.set_defaults(run=run, filled_for=task)


def run(options: argparse.Namespace) -> None:
    trained, given = load(options.folder, options.checkpoint), given_options(options, options.filled_for)
    if trained.config.task != options.filled_for:
        raise ValueError("the run comes first: linnet eval RUN ...")
    trained, splits = trained.on(**given), options.splits or default_splits(given, trained.task.splits)
    if options.int8 is not None:
        trained = in_int8(trained, options)
    if options.dynamic:
        evaluate = dynamic_evaluation(options, trained.task, trained.model)
        for split in splits:
            say(result_line(split, evaluate(split)))
        return
    for split in splits:
        figures, sections = trained.examine(split)
        say(result_line(split, figures))
        for section in sections:
            say(f"\n{section.title} ({split}). {section.about}\n\n{section_table(section)}\n")


def default_splits(given: Collection[str], known: Collection[str]) -> list[str]:
    """All of a file that was given, unless further files are its splits."""
    is_whole = any(name in given for name in FILES) and not any(name in given for name in FILES_OF_SPLITS)
    return ["all"] if is_whole and "all" in known else ["valid", "test"]


def in_int8(trained: TrainedRun, options: argparse.Namespace) -> TrainedRun:
    if options.dynamic:
        raise ValueError("--dynamic trains the model, and a model in int8 cannot be trained; leave out one")
    model = quantize(trained.model, activations=options.int8 == "all")
    return dataclasses.replace(trained, model=model)


def dynamic_evaluation(
    options: argparse.Namespace, task: Any, model: Any
) -> Callable[[str], dict[str, float]]:
    """Return a function that evaluates a language model on a split while it keeps learning."""
    if not task.is_language_model:
        raise ValueError(
            f"{options.folder} is a run of {task.name!r}, and --dynamic is for language models; evaluate "
            "without --dynamic"
        )
    if not task.data.carry:
        raise ValueError(
            "--dynamic learns from short windows, each starting from the state at the end of the last, and "
            "this run was trained on windows that start from zeros (--no-carry); evaluate without --dynamic"
        )
    names = [field.name for field in dataclasses.fields(dynamic.DynamicConfig)]
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    settings = dynamic.DynamicConfig(**given)
    known = dynamic.statistics(model, task.corpus.train, settings)
    batch = task.data.test_batch or 1
    return lambda split: dynamic.evaluate(model, task.tokens(split), known, settings, task.metrics(), batch)
