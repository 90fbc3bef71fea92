"""An atlas under way: what is measured before the runs, the runs, and what is measured after them.

    atlas.json, atlas.html        the record and its page
    PROBLEM/UNIT-SEED             a run at equal parameters; UNIT-time-SEED at equal time
    lenses/UNIT.html
    data/                         the files that the quick form reads

The record is all that is needed to continue: what it has is neither measured nor run again, even where the
folders of its runs were deleted. Whatever is added later, what it has stays in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from linnet.analysis.lens.describe import CannotShow
from linnet.analysis.lens.runs import lens_of
from linnet.atlas.measure import in_int8, step_times, update_times
from linnet.atlas.page import PAGE, write_page
from linnet.atlas.plan import (
    PARAMETERS,
    TIME,
    VIEWS,
    Place,
    fitted,
    folder_of,
    places,
    unit_config,
    updates_in_time,
    with_steps,
)
from linnet.atlas.problems import BASELINE_UNIT, CHARACTERS, Problem
from linnet.atlas.record import Atlas, Cell, Circumstances, Known, Row
from linnet.atlas.store import Store
from linnet.data.errors import MissingDataError
from linnet.launch import Job, Outcome, run_jobs
from linnet.runs.config import RunConfig, differences, override
from linnet.runs.load import load
from linnet.runs.records import environment, read_environment, read_result, refuse_other
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.train.compare import shared_task

RECORD = "atlas.json"
OVERHEAD = 0.4
"""Seconds of a run besides its updates, for the estimate."""
PAUSE = 20.0
"""Seconds between two lines about the progress."""
UNSHOWN = ("threads", "device", "log_every", "checkpoint_seconds", "unit", "unit_options", "path")


class Ready(NamedTuple):
    """A problem whose data is there, with the settings that all units share."""

    problem: Problem
    config: RunConfig


class Making:
    """Makes an atlas in a folder, or continues it.

    say   prints a line
    """

    def __init__(
        self,
        root: Path,
        form: str,
        problems: Sequence[Problem],
        units: Sequence[str],
        seeds: Sequence[int],
        launcher: str,
        say: Callable[[str], object],
    ):
        self.root, self.form, self.problems, self.units = root, form, problems, units
        self.seeds, self.launcher, self.say = seeds, launcher, say
        self.store = Store(root / RECORD, form)
        self.ready: dict[str, Ready] = {}

    def run(self) -> Atlas:
        self.store.add_seeds(self.seeds)
        for problem in self.problems:
            self.prepare(problem)
        if not self.ready:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.store.left_out.items())
            raise ValueError(f"no task of the atlas has its data: {reasons}")
        self.say_estimate()
        # What is done is complete as early as possible: all units on all problems with one seed.
        for seed in self.seeds:
            for view in VIEWS:
                self.train(view, seed)
                atlas = self.write()
        return atlas

    # ----------------------------------------------------------------------------- before the runs

    def prepare(self, problem: Problem) -> None:
        """Find the size and the times of each new unit; a problem without its data is left out."""
        try:
            config = problem.config(self.form, self.root / "data")
            task = shared_task(config)
        except (MissingDataError, ImportError) as reason:
            self.store.left_out[problem.name] = str(reason)
            self.say(f"{problem.name} is left out: {reason}")
            return
        ready = self.ready[problem.name] = Ready(problem, config)
        self.store.add_problem(self.known(ready))
        new = [unit for unit in self.units if Cell(PARAMETERS, problem.name, unit) not in self.store.rows]
        if new:
            here = Circumstances.of(environment())
            self.store.refuse_other_machine(here)
            self.say(f"{problem.name}: measuring the time of an update and of a step, {len(new)} units")
            self.store.add_rows(self.measured(ready, task, new, self.store.number_of(here)))
            self.store.save()

    def known(self, ready: Ready) -> Known:
        problem, figure = ready.problem, ready.problem.main_figure(ready.config)
        return Known(
            name=problem.name,
            kind=problem.kind,
            about=problem.about,
            figure=figure.label,
            figure_about=figure.about,
            format=figure.format,
            higher=figure.higher,
            baseline=problem.baseline,
            budget=problem.form(self.form).budget,
            updates=ready.config.loop.steps,
            reads=reads(ready.config),
        )

    def measured(self, ready: Ready, task: Task, units: Sequence[str], here: int) -> Iterator[Row]:
        """Yield the rows of new units in both views, without results."""
        usual, budget = ready.config.loop.steps, ready.problem.form(self.form).budget
        # The unit that sets the time of the other view is measured in the same race.
        raced = dict.fromkeys([*units, BASELINE_UNIT])
        configs = {unit: fitted(unit_config(ready.config, self.form, unit), task, budget) for unit in raced}
        updates, steps = update_times(configs, task), step_times(configs, task)
        for unit in units:
            model, update_ms = configs[unit].model, updates.found.get(unit)
            row = Row(
                *(PARAMETERS, ready.problem.name, unit),
                *(model.hidden_size, task.with_model(model).parameters(), usual),
                notes=tuple(filter(None, (updates.notes.get(unit), steps.notes.get(unit)))),
            )
            step_us = rounded(steps.found.get(unit))
            yield replace(row, measured=here, update_ms=rounded(update_ms), step_us=step_us)
            in_time = updates_in_time(usual, update_ms, updates.found.get(BASELINE_UNIT))
            yield replace(row, view=TIME, updates=in_time)

    # ------------------------------------------------------------------------------------- the runs

    def job(self, place: Place) -> Job:
        config, row = self.ready[place.problem].config, self.store.rows[place.cell]
        own = override(
            unit_config(config, self.form, place.unit), {"hidden_size": row.hidden_size, "seed": place.seed}
        )
        folder = folder_of(self.root, place, row.updates, config.loop.steps)
        return Job(with_steps(own, row.updates), folder)

    def missing(self, view: str, seed: int) -> dict[Path, tuple[Place, Job]]:
        """Return the runs without a result in the record, by their folders."""
        wanted = [place for place in places(view, list(self.ready), self.units, seed) if self.trains(place)]
        jobs = [(place, self.job(place)) for place in wanted if self.store.result(place) is None]
        for _, job in jobs:
            refuse_other(job.folder, job.config)
        return {job.folder: (place, job) for place, job in jobs}

    def trains(self, place: Place) -> bool:
        return self.model_of(place).update_ms is not None

    def model_of(self, place: Place) -> Row:
        return self.store.rows[place.cell._replace(view=PARAMETERS)]

    def say_estimate(self) -> None:
        """Say how long the runs will take; a run that is the same in both views is counted once."""
        missing = {
            folder: each
            for view in VIEWS
            for seed in self.seeds
            for folder, each in self.missing(view, seed).items()
            if read_result(folder) is None
        }
        seconds = sum(
            job.config.loop.steps * (self.model_of(place).update_ms or 0) / 1000 + OVERHEAD
            for place, job in missing.values()
        )
        self.say(f"{len(missing):,} runs to make: about {seconds / 60:,.0f} minutes of one core")

    def train(self, view: str, seed: int) -> None:
        """Make the runs of a seed, and measure each while the workers make others."""
        missing = self.missing(view, seed)
        said = time.monotonic()
        # Closed after an error here, too: runs in other processes then end.
        with closing(run_jobs([job for _, job in missing.values()], self.launcher)) as outcomes:
            for done, outcome in enumerate(outcomes, 1):
                self.finish(missing[outcome.job.folder][0], outcome)
                if time.monotonic() - said > PAUSE:
                    said = time.monotonic()
                    self.say(f"equal {view}, seed {seed}: {done:,} of {len(missing):,} runs")

    # ------------------------------------------------------------------------------ after the runs

    def finish(self, place: Place, outcome: Outcome) -> None:
        """Add the result of a run to the record, or why it has none: then others go on."""
        folder, result = outcome.job.folder, outcome.result
        if result is None:
            reason = f"{outcome.kind}: {outcome.error.splitlines()[0]}"
            self.store.add_note(place, f"seed {place.seed}: {reason}")
            self.say(f"{folder} has no result: {reason}")
            return
        problem = self.ready[place.problem].problem
        made_in = Circumstances.of(read_environment(folder) or environment())
        self.store.add_result(place, result["test"][problem.figure], made_in)
        self.store.add_level(problem.name, level(result, problem))
        if place.view == PARAMETERS:
            self.measure_int8(place, folder)
            self.write_lens(place, folder)

    def measure_int8(self, place: Place, folder: Path) -> None:
        try:
            self.store.add_int8(place, *in_int8(folder, self.ready[place.problem].problem.figure))
        except (RuntimeError, ValueError) as reason:
            self.store.add_note(place, f"no int8: {reason}")

    def write_lens(self, place: Place, folder: Path) -> None:
        """Write the page in which the first character model of a unit can be watched."""
        path = self.root / lens_path(place.unit)
        if place.problem == CHARACTERS and not path.exists():
            try:
                lens_of(load(folder)).save(path)
            except CannotShow as reason:
                self.say(f"There is no lens of {place.unit}: {reason}")

    def write(self) -> Atlas:
        """Write the record and the page of what is done."""
        atlas = self.store.save()
        lenses = {unit: lens_path(unit) for unit in atlas.units if (self.root / lens_path(unit)).exists()}
        write_page(self.root / PAGE, atlas, lenses)
        return atlas


def rounded(time: float | None) -> float | None:
    """Return a time with the digits that another measurement might give again, and one more."""
    return None if time is None else float(f"{time:.4g}")


def lens_path(unit: str) -> str:
    return f"lenses/{unit}.html"


def level(result: Mapping[str, Any], problem: Problem) -> float | None:
    """Return what the baseline of a problem reaches in the test of a run."""
    levels = {each["name"]: each["figures"].get(problem.figure) for each in result["baselines"]}
    return levels.get(problem.baseline)


def reads(config: RunConfig) -> str:
    """Return the task and its settings as options of `linnet train`."""
    plain = override(RunConfig(task=config.task), TASKS[config.task].defaults)
    changed = differences(plain, config, ignore=UNSHOWN)
    return " ".join([config.task, *(f"{name}={new}" for name, (_, new) in changed.items())])
