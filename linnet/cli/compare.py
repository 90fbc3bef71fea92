"""linnet compare: several units at the same number of parameters, or one model with one option varied."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from linnet.analysis.board import Board
from linnet.analysis.report import write_report
from linnet.analysis.runs import read_run
from linnet.analysis.table import text_table
from linnet.cli.folders import RUNS, data_name, overwrite
from linnet.cli.options import add_run_options, add_sources, add_task, check_task_is_first, parsed, run_config
from linnet.cli.output import say
from linnet.cli.parser import at_least_one, unit_name
from linnet.runs.load import load
from linnet.runs.records import write_atomically
from linnet.tasks import TASKS
from linnet.train.compare import plans, variations

TASK = "lm"
FITTED = ("unit", "unit_options", "hidden_size", "hidden_sizes", "start_from")
"""The settings that a comparison chooses itself."""
WARM = 200  # tokens of validation text that a model reads before it writes its sample
VARY_HELP = "instead of --units and --budget: hidden_size=50,100 num_heads=1,4 trains one model per value"


def add_options(command: argparse.ArgumentParser) -> None:
    task = add_task(command)
    how = TASKS[task].comparison
    command.description = (
        "Train a model of each unit, all with the same number of parameters, and write a table, samples and "
        "an HTML report. With --vary, train one model (of a recipe or a config.json) with one option changed "
        "in each run. Finished runs are not repeated. The task comes first: `linnet compare memory.copy "
        "--help` shows its options."
    )
    add = command.add_argument
    add_sources(command)
    # Other tasks also have variants of units with names of their own.
    kind = unit_name if task == TASK else str
    units, names = list(how.units), " ".join(how.units)
    add("--units", nargs="+", type=kind, default=units, metavar="UNIT", help=f"({names})")
    add("--vary", nargs="+", type=values, metavar="NAME=VALUE,...", help=VARY_HELP)
    add("--seeds", nargs="+", type=int, default=[], metavar="N", help="a run for each unit and seed (--seed)")
    add("--budget", type=at_least_one, default=how.budget, help=f"parameters of each model ({how.budget})")
    add("--run-dir", type=Path, dest="folder", metavar="DIR", help="(runs/compare-<data>)")
    add("--overwrite", action="store_true", help="delete these runs and start over")
    add("--sample-tokens", type=at_least_one, default=60, help="length of each model's sample (60)")
    add_run_options(command, task, without=FITTED, start=how.settings)
    command.set_defaults(run=run)


def values(text: str) -> tuple[str, list[Any]]:
    """num_heads=1,4,9"""
    name, equals, listed = text.partition("=")
    if not (name and equals and all(listed.split(","))):
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,VALUE,..., like num_heads=1,4,9; got {text!r}")
    return name.replace("-", "_"), [parsed(value) for value in listed.split(",")]


def run(options: argparse.Namespace) -> None:
    check_task_is_first(options)
    config = base_config(options)
    folder = options.folder or RUNS / f"compare-{data_name(config)}"
    if options.vary:
        runs = list(variations(config, dict(options.vary), folder, options.seeds))
    else:
        runs = list(plans(config, options.units, options.budget, folder, options.seeds))
    for _, place in runs if options.overwrite else ():
        overwrite(place)
    with Board([run.name for _, run in runs], TASKS[config.task].figures(config.data)[0]) as board:
        for one, place in runs:
            compare_one(one, place, board, options.sample_tokens)
    name = data_name(config)
    title = f"variations of {config.model.unit} on {name}"
    title = title if options.vary else f"units on {name}, {options.budget:,} parameters each"
    conclude(folder, [place for _, place in runs], f"{len(runs)} {title}")


def base_config(options: argparse.Namespace) -> Any:
    """The settings that all runs share. A recipe or a config replaces the defaults of a comparison."""
    start = {} if options.recipe or options.config else TASKS[options.task].comparison.settings
    return run_config(options, options.task, start)


def compare_one(config: Any, folder: Path, board: Board, tokens: int) -> None:
    # Imported here, not above: `linnet compare --help` needs no Fabric.
    from linnet.train.loop import train

    result = train(config, folder, board.progress(folder.name))
    board.finished(folder.name, result)
    if config.task == TASK:
        write_atomically(folder / "sample.txt", sample(folder, tokens).encode())


def sample(folder: Path, tokens: int) -> str:
    # From a state of zeros some units write near-uniform words, so each model first reads a piece of text.
    return load(folder).predict("", tokens=tokens, temperature=0.8, top_p=0.95, warm=WARM)[0]


def conclude(folder: Path, places: list[Path], title: str) -> None:
    runs = [read_run(place) for place in places]
    write_report(folder / "report.html", runs, title)
    say(f"\n{title}\n\n{text_table(runs)}")
    for each in runs if runs[0].sample else ():
        say(f"\n{each.name} writes:\n  {each.sample.strip()}")
    say(f"\nThe page is {folder / 'report.html'}")
