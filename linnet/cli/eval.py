"""linnet eval: the metrics of a trained model."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from linnet.cli.options import add_option, add_run_options, given_options
from linnet.cli.output import result_line, say, section_table
from linnet.runs.config import options as options_of
from linnet.runs.load import load
from linnet.train import dynamic

TASK = "lm"


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Evaluate a trained model on its own data, or on another text (--path): unknown words become <unk>."
    )
    add = command.add_argument
    add("folder", type=Path, metavar="RUN")
    add("--checkpoint", choices=("best", "last"), default="best", help="(best)")
    add("--splits", nargs="+", choices=("train", "valid", "test", "all"), default=["valid", "test"])
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
    found, given = load(options.folder, options.checkpoint), given_options(options, TASK)
    if found.config.task != TASK and (given or options.dynamic):
        raise ValueError(f"{options.folder} is no language model: the options of a text do not go with it")
    found = found.on(**given)
    if options.dynamic:
        judge = dynamically(options, found.task, found.model)
        for split in options.splits:
            say(result_line(split, judge(split)))
        return
    for split in options.splits:
        figures, sections = found.examine(split)
        say(result_line(split, figures))
        for section in sections:
            say(f"\n{section.title} ({split}). {section.about}\n\n{section_table(section)}\n")


def dynamically(options: argparse.Namespace, task: Any, model: Any) -> Callable[[str], dict[str, float]]:
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
    return lambda split: dynamic.evaluate(model, task.tokens(split), known, settings, batch)
