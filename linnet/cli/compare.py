"""linnet compare: several units at the same number of parameters, or one model with one option varied."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from linnet.analysis.board import Board
from linnet.analysis.paired import paired_section
from linnet.analysis.report import LENS, REFRESH, write_progress, write_report
from linnet.analysis.runs import is_run, panels, read_run
from linnet.analysis.states import State, states
from linnet.analysis.table import best_run, text_table
from linnet.cli.folders import RUNS, data_name, overwrite, send_again
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
from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.config import RunConfig
from linnet.runs.load import load
from linnet.runs.records import write_atomically
from linnet.runs.stored import send_files, within
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.train.compare import check_unit, plans, shared_task, variations

FITTED = ("unit", "unit_options", "hidden_size", "hidden_sizes", "start_from")
"""The settings that a comparison chooses itself."""
DRAWING = 0.1
"""The share of the time that drawing the page may take while runs train in other processes."""
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


class Comparing:
    """A comparison under way: it trains one model after another, and keeps its page up to date."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, runs: Sequence[tuple[RunConfig, Path]], task: Task
    ):
        self.folder, self.runs, self.task, self.tokens = folder, runs, task, options.sample_tokens
        self.launcher, self.unfinished = options.launcher, len(runs)
        self.page_due: float | None = None  # None: there is no page
        self.progress_due = 0.0
        name, config = data_name(runs[0][0]), runs[0][0]
        varied = f"variations of {config.model.unit} on {name}"
        same_size = f"units on {name}, {options.budget:,} parameters each"
        self.title = f"{len(runs)} {varied if options.vary else same_size}"

    @property
    def page(self) -> Path:
        return self.folder / "report.html"

    def run(self) -> list[Outcome]:
        """Make all runs, and show the results of those that could be made; return the others."""
        figure = self.task.figures(self.task.data)[0]
        names = [path.name for _, path in self.runs]
        failed: list[Outcome] = []
        board = Board(names, figure, self.validated, self.stepped)
        with board, closing(self.outcomes(board)) as outcomes:
            for outcome in outcomes:
                self.ended(outcome, board)
                if outcome.result is None:
                    failed.append(outcome)
        self.runs = without(failed, self.runs)
        if self.runs:
            self.conclude()
        return failed

    def outcomes(self, board: Board) -> Generator[Outcome, None, None]:
        return run_jobs([Job(*each) for each in self.runs], self.launcher, board.progress, self.task)

    def ended(self, outcome: Outcome, board: Board) -> None:
        config, path, result = outcome.job.config, outcome.job.folder, outcome.result
        self.unfinished -= 1
        board.ended(outcome)
        if result is None:
            return
        if text := self.task_of(config).sample(load(path).model, self.tokens):
            write_atomically(path / "sample.txt", text.encode())
        if self.unfinished and (self.launcher == IN_THIS_PROCESS or self.is_page_due):
            self.write_page()

    def conclude(self) -> None:
        """Measure what needs a quiet machine, and show the results."""
        # Imported here, not above: `linnet compare --help` needs no Fabric.
        from linnet.train.speed import measure_speeds

        say("measuring the speed of each model alone ...")
        measure_speeds(self.runs, self.task)
        self.write_lens()
        self.write_page()
        self.say_results()

    def task_of(self, config: RunConfig) -> Task:
        """The task of a run; the data that this comparison has read is not read again for the same fold."""
        return self.task.with_settings(config.data, config.model, config.loop.seed)

    def validated(self) -> None:
        """Write the page after the first validation of all: there is something to look at early."""
        if self.page_due is None:
            self.write_page()
            say(f"the first curves are in {self.page}, which updates by itself")
        elif self.launcher != IN_THIS_PROCESS and self.is_page_due:
            self.write_page()

    def stepped(self) -> None:
        """Write what runs in other processes do, every few seconds; this process has nothing else to do."""
        now = time.monotonic()
        if self.launcher != IN_THIS_PROCESS and self.page_due is not None and now > self.progress_due:
            self.progress_due = now + REFRESH
            write_progress(self.page, len(self.runs) - self.unfinished, len(self.runs), self.states())

    def states(self) -> list[State]:
        return states([path for _, path in self.runs], self.folder) if self.unfinished else []

    @property
    def is_page_due(self) -> bool:
        """Whether drawing the page again leaves most of the time to the runs in other processes."""
        return self.page_due is None or time.monotonic() > self.page_due

    def write_page(self) -> None:
        """Write the page with the runs that have begun."""
        if is_first_process():
            began, folders = time.monotonic(), [path for _, path in self.runs]
            runs = [read_run(path) for path in folders if is_run(path)]
            write_report(self.page, runs, self.title, len(self.runs), self.states())
            self.page_due = time.monotonic() + max(REFRESH, (time.monotonic() - began) / DRAWING)

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
        say(f"\nThe page is {self.page}")
        if (self.folder / LENS).exists():
            say(f"Type a text and watch the best model read it: {self.folder / LENS}")
