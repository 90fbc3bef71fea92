"""linnet eval: the metrics of a trained model."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from linnet.cli.options import add_option, add_run_options, changed, given_options
from linnet.cli.output import result_line, say
from linnet.train import dynamic, memory
from linnet.train.config import options as options_of
from linnet.train.kinds import kind
from linnet.train.language import load_run, refuse_other_vocabulary
from linnet.train.records import read_config

TASK = "lm"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = "Evaluate a trained model on its own text or on another with the same vocabulary."
    add = command.add_argument
    add("folder", type=Path, metavar="RUN")
    add("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    add("--splits", nargs="+", choices=("train", "valid", "test"), default=["valid", "test"])
    add("--dynamic", action="store_true", help="keep learning while evaluating")
    others = tuple(field.name for part, field, _ in options_of(TASK) if part != "data")
    add_run_options(command, TASK, without=others)
    add_dataclass(command, dynamic.DynamicConfig)
    command.set_defaults(run=run)


def add_dataclass(command: argparse.ArgumentParser, cls: Any) -> None:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        add_option(command, field, hints[field.name])


def run(options: argparse.Namespace) -> None:
    if read_config(options.folder).task != TASK:
        return evaluate_memory(options)
    config, model, vocabulary = load_run(options.folder, options.checkpoint)
    given = given_options(options, TASK)
    if given.get("corpus", config.data.corpus) != config.data.corpus:
        # The path in the settings belongs to the run's own text.
        given = {"path": None, **given}
    config = changed(config, given)
    task = kind(TASK).build(config.data, config.model, config.loop.seed)
    refuse_other_vocabulary(options.folder / "vocabulary.json", vocabulary, task.corpus.vocabulary)
    judge = dynamically(options, task, model) if options.dynamic else task.evaluate
    for split in options.splits:
        say(result_line(split, judge(model, split)))
    return None


def evaluate_memory(options: argparse.Namespace) -> None:
    if given_options(options, TASK) or options.dynamic:
        raise ValueError(f"{options.folder} is no language model: the options of a text do not go with it")
    _, task, model = memory.load_run(options.folder, options.checkpoint)
    for split in options.splits:
        say(result_line(split, task.evaluate(model, split)))


def dynamically(options: argparse.Namespace, task: Any, model: Any) -> Callable[[Any, str], dict[str, float]]:
    if not task.carry:
        raise ValueError(
            "--dynamic learns from short windows, each starting from the state at the end of the last, and "
            "this run was trained on windows that start from zeros (--no-carry); evaluate without --dynamic"
        )
    names = [field.name for field in dataclasses.fields(dynamic.DynamicConfig)]
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    settings = dynamic.DynamicConfig(**given)
    known = dynamic.statistics(model, task.corpus.train, settings)
    batch = task.data.test_batch or 1
    return lambda model, split: dynamic.evaluate(model, getattr(task.corpus, split), known, settings, batch)
