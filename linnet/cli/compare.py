"""linnet compare: several units at the same number of parameters, or one model with one option varied."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from linnet.analysis.board import Board
from linnet.analysis.paired import paired_section
from linnet.analysis.report import LENS
from linnet.analysis.runs import panels, read_run
from linnet.analysis.table import best_run, text_table
from linnet.cli.folders import RUNS, data_name, overwrite, send_again
from linnet.cli.live_page import LivePage
from linnet.cli.options import (
    add_cross_validation,
    add_launcher,
    add_run_options,
    add_sources,
    add_task,
    check_task_is_first,
    parsed,
    run_config,
)
from linnet.cli.output import is_first_process, say, section_table
from linnet.cli.parser import at_least_one, path_name
from linnet.launch import Job, Outcome, run_jobs
from linnet.launch.job import RunsFailed
from linnet.runs.config import RunConfig
from linnet.runs.load import load
from linnet.runs.records import write_atomically
from linnet.runs.stored import send_files, within
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.train.compare import check_unit, plans, shared_task, variations

FITTED = ("unit", "unit_options", "hidden_size", "hidden_sizes", "start_from")
"""The settings that a comparison chooses itself."""
VARY_HELP = "instead of --units and --budget: hidden_size=50,100 num_heads=1,4 trains one model per value"


def add_options(command: argparse.ArgumentParser) -> None:
    task = add_task(command)
    how = TASKS[task].comparison
    command.description = (
        "Train a model of each unit, all with the same number of parameters, and write a table, samples and "
        "an HTML report, from the first validation on. With --vary, train one model (of a recipe or a "
        "config.json) with one option changed in each run. Finished runs are not repeated. The task "
        "comes first: `linnet compare memory.copy --help` shows its options."
    )
    add = command.add_argument
    add_sources(command)
    units, names = list(how.units), " ".join(how.units)
    add("--units", nargs="+", type=unit_of(task), default=units, metavar="UNIT", help=f"({names})")
    add("--vary", nargs="+", type=values, metavar="NAME=VALUE,...", help=VARY_HELP)
    add("--seeds", nargs="+", type=int, default=[], metavar="N", help="a run for each unit and seed (--seed)")
    add_cross_validation(command, task, "cross-validation: a run for each fold")
    add("--budget", type=at_least_one, default=how.budget, help=f"parameters of each model ({how.budget})")
    add("--run-dir", type=path_name, dest="folder", metavar="DIR", help="(runs/compare-<data>)")
    add("--overwrite", action="store_true", help="delete the files of these runs and start over")
    add_launcher(command)
    add("--sample-tokens", type=at_least_one, default=60, help="length of each model's sample (60)")
    add_run_options(command, task, without=FITTED, start=how.settings)
    command.set_defaults(run=run)


def unit_of(task: str) -> Callable[[str], str]:
    """Return what reads the name of a unit, or of a variant that the task compares."""

    def unit_or_variant(name: str) -> str:
        try:
            check_unit(name, TASKS[task].variants(TASKS[task].Data()))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return name

    return unit_or_variant


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
    task = shared_task(config)
    repeated = options.seeds, options.cross_validation
    if options.vary:
        runs = list(variations(config, dict(options.vary), folder, *repeated))
    else:
        runs = list(plans(config, task, options.units, options.budget, folder, *repeated))
    runs = [(within(each, path.name), path) for each, path in runs]
    for each, path in runs if options.overwrite else ():
        overwrite(path, each)
    comparing = Comparing(options, folder, runs, task)
    failed = comparing.run()
    store_pages(config, folder, comparing.runs)
    if failed:
        raise RunsFailed(failed, len(runs))


def store_pages(config: RunConfig, folder: Path, runs: Sequence[tuple[RunConfig, Path]]) -> None:
    """Copy to a store what was written after the runs: their samples and speeds, and the pages of all."""
    for each, path in runs:
        send_again(each, path)
    if config.loop.store and is_first_process():
        send_files(config.loop.store, [folder / "report.html", folder / LENS])


def base_config(options: argparse.Namespace) -> Any:
    """The settings that all runs share. A recipe or a config replaces the defaults of a comparison."""
    start = {} if options.recipe or options.config else TASKS[options.task].comparison.settings
    return run_config(options, options.task, start)


def without(
    failed: Sequence[Outcome], runs: Sequence[tuple[RunConfig, Path]]
) -> list[tuple[RunConfig, Path]]:
    """Return the runs that have a result."""
    gone = {each.job.folder for each in failed}
    return [each for each in runs if each[1] not in gone]


class ComparisonPage(LivePage):
    """The page of a comparison, with all runs that have not failed."""

    def __init__(self, *page: Any, given: Sequence[tuple[RunConfig, Path]]):
        super().__init__(*page)
        self.given = given

    def runs(self) -> Sequence[Path]:
        return [path for _, path in self.given]


class Comparing:
    """A comparison under way: it trains one model after another, and keeps its page up to date."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, runs: Sequence[tuple[RunConfig, Path]], task: Task
    ):
        self.folder, self.runs, self.task, self.tokens = folder, runs, task, options.sample_tokens
        self.launcher = options.launcher
        name, config = data_name(runs[0][0]), runs[0][0]
        varied = f"variations of {config.model.unit} on {name}"
        same_size = f"units on {name}, {options.budget:,} parameters each"
        self.title = f"{len(runs)} {varied if options.vary else same_size}"
        self.page = ComparisonPage(folder, self.title, len(runs), options.launcher, given=runs)

    def run(self) -> list[Outcome]:
        """Make all runs, and show the results of those that could be made; return the others."""
        figure = self.task.figures(self.task.data)[0]
        names = [path.name for _, path in self.runs]
        failed: list[Outcome] = []
        board = Board(names, figure, self.page.validated, self.page.stepped)
        with board, closing(self.outcomes(board)) as outcomes:
            for outcome in outcomes:
                self.ended(outcome, board)
                if outcome.result is None:
                    failed.append(outcome)
        self.runs = self.page.given = without(failed, self.runs)
        if self.runs:
            self.conclude()
        return failed

    def outcomes(self, board: Board) -> Generator[Outcome, None, None]:
        return run_jobs([Job(*each) for each in self.runs], self.launcher, board.progress, self.task)

    def ended(self, outcome: Outcome, board: Board) -> None:
        config, path, result = outcome.job.config, outcome.job.folder, outcome.result
        board.ended(outcome)
        if result and (text := self.task_of(config).sample(load(path).model, self.tokens)):
            write_atomically(path / "sample.txt", text.encode())
        self.page.ended()

    def conclude(self) -> None:
        """Measure what needs a quiet machine, and show the results."""
        # Imported here, not above: `linnet compare --help` needs no Fabric.
        from linnet.train.speed import measure_speeds

        say("measuring the speed of each model alone ...")
        measure_speeds(self.runs, self.task)
        self.write_lens()
        self.page.write()
        self.say_results()

    def task_of(self, config: RunConfig) -> Task:
        """The task of a run; the data that this comparison has read is not read again for the same fold."""
        return self.task.with_settings(config.data, config.model, config.loop.seed)

    def write_lens(self) -> None:
        """Write the page in which the best model can be watched, if it reads a text that can be typed."""
        # Imported here, not above: `linnet compare --help` needs no page.
        from linnet.analysis.lens.describe import CannotShow
        from linnet.analysis.lens.runs import lens_of

        best = best_run([read_run(path) for _, path in self.runs])
        if best is None or not is_first_process():
            return
        try:
            run = load(best.folder)
            lens_of(replace(run, task=self.task_of(run.config))).save(self.folder / LENS)
        except CannotShow as reason:
            say(f"There is no lens of the best model: {reason}")

    def say_results(self) -> None:
        runs = [read_run(path) for _, path in self.runs]
        say(f"\n{self.title}\n\n{text_table(runs)}")
        for section in filter(None, map(paired_section, panels(runs))):
            say(f"\n{section.title}. {section.about}\n\n{section_table(section)}")
        for each in runs if runs[0].sample else ():
            say(f"\n{each.name} writes:\n  {each.sample.strip()}")
        say(f"\nThe page is {self.page.path}")
        if (self.folder / LENS).exists():
            say(f"Type a text and watch the best model read it: {self.folder / LENS}")
