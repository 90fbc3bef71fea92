"""An atlas under way: what is measured before the runs, the runs, and what is measured after them.

Everything is kept in the folder of the atlas, so the same command continues where another one ended:

    circumstances.json            the form, the machine and the versions
    PROBLEM/measured.json         sizes and times of each unit, measured before its runs
    PROBLEM/UNIT-SEED             a run at equal parameters; UNIT-time-SEED at equal time
    PROBLEM/int8.json             what int8 gives
    atlas.json, atlas.html        the record and its page
    lenses/UNIT.html
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
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
    Entry,
    Place,
    fitted,
    folder_of,
    places,
    slug,
    unit_config,
    updates_in_time,
    with_steps,
)
from linnet.atlas.problems import BASELINE_UNIT, CHARACTERS, NEEDED, Problem
from linnet.atlas.record import Atlas, Known, Row, write_atlas
from linnet.base.files import write_atomically
from linnet.data.errors import MissingDataError
from linnet.launch import Job, Outcome, run_jobs
from linnet.runs.config import RunConfig, differences, override
from linnet.runs.load import load
from linnet.runs.records import environment, read_result, refuse_other
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
    """A problem whose data is there, with its units."""

    problem: Problem
    config: RunConfig
    entries: Mapping[str, Entry]

    @property
    def usual(self) -> int:
        return self.config.loop.steps


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
        self.ready: dict[str, Ready] = {}
        self.left_out: dict[str, str] = {}
        self.errors: dict[Path, str] = {}

    def run(self) -> Atlas:
        self.circumstances = self.open()
        for problem in self.problems:
            self.prepare(problem)
        if not self.ready:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise ValueError(f"no task of the atlas has its data: {reasons}")
        self.say_estimate()
        # What is done is complete as early as possible: all units on all problems with one seed.
        for view in VIEWS:
            for seed in self.seeds:
                self.train(view, seed)
                if view == PARAMETERS:
                    self.measure_int8(seed)
                    self.write_lenses()
                atlas = self.write()
        return atlas

    def open(self) -> dict[str, Any]:
        """Return the form and the circumstances with which this atlas was begun."""
        here = environment()
        known = {name: here[name] for name in ("started", "processor", "packages")}
        found = read(self.root / "circumstances.json") or {"form": self.form, **known}
        if found["form"] != self.form:
            raise ValueError(
                f"{self.root} has an atlas of the {found['form']} form, and this is the {self.form} one; "
                "give another --run-dir"
            )
        write(self.root / "circumstances.json", found)
        return found

    # ----------------------------------------------------------------------------- before the runs

    def prepare(self, problem: Problem) -> None:
        """Find the size and the times of each unit; a problem without its data is left out."""
        try:
            config = problem.config(self.form, self.root / "data")
            task = shared_task(config)
        except (MissingDataError, ImportError) as reason:
            self.left_out[problem.name] = str(reason)
            self.say(f"{problem.name} is left out: {reason}")
            return
        path = self.root / slug(problem.name) / "measured.json"
        known = {name: made_entry(values) for name, values in (read(path) or {}).items()}
        new = [unit for unit in dict.fromkeys([*self.units, BASELINE_UNIT]) if unit not in known]
        if new:
            self.say(f"{problem.name}: measuring the time of an update and of a step, {len(new)} units")
            known |= self.measured(problem, config, task, new)
            write(path, {name: entry._asdict() for name, entry in known.items()})
        self.ready[problem.name] = Ready(problem, config, known)

    def measured(
        self, problem: Problem, base: RunConfig, task: Task, units: Sequence[str]
    ) -> dict[str, Entry]:
        budget = problem.form(self.form).budget
        configs = {unit: fitted(unit_config(base, self.form, unit), task, budget) for unit in units}
        updates, steps = update_times(configs, task), step_times(configs, task)
        found = {}
        for unit, config in configs.items():
            notes = (updates.notes.get(unit), steps.notes.get(unit))
            found[unit] = Entry(
                problem.name,
                unit,
                config.model.hidden_size,
                task.with_model(config.model).parameters(),
                updates.found.get(unit),
                steps.found.get(unit),
                tuple(filter(None, notes)),
            )
        return found

    # ------------------------------------------------------------------------------------- the runs

    def updates(self, place: Place) -> int:
        ready = self.ready[place.problem]
        own, usual = ready.entries[place.unit].update_ms, ready.entries[BASELINE_UNIT].update_ms
        if place.view == PARAMETERS or not own or not usual:
            return ready.usual
        return updates_in_time(ready.usual, own, usual)

    def job(self, place: Place) -> Job:
        ready, updates = self.ready[place.problem], self.updates(place)
        size = ready.entries[place.unit].hidden_size
        own = override(
            unit_config(ready.config, self.form, place.unit), {"hidden_size": size, "seed": place.seed}
        )
        return Job(with_steps(own, updates), folder_of(self.root, place, updates, ready.usual))

    def trains(self, place: Place) -> bool:
        return self.ready[place.problem].entries[place.unit].update_ms is not None

    def missing(self, view: str, seed: int) -> list[tuple[Place, Job]]:
        """Return the runs that have no result yet."""
        found = []
        for place in filter(self.trains, places(view, list(self.ready), self.units, seed)):
            job = self.job(place)
            refuse_other(job.folder, job.config)
            if not is_done(job):
                found.append((place, job))
        return found

    def say_estimate(self) -> None:
        """Say how long the runs will take; runs of both views are counted once."""
        jobs = {
            job.folder: (place, job)
            for view in VIEWS
            for seed in self.seeds
            for place, job in self.missing(view, seed)
        }
        entries = [(self.ready[place.problem].entries[place.unit], job) for place, job in jobs.values()]
        seconds = sum(
            job.config.loop.steps * (entry.update_ms or 0) / 1000 + OVERHEAD for entry, job in entries
        )
        self.say(f"{len(jobs):,} runs to make: about {seconds / 60:,.0f} minutes of one core")

    def train(self, view: str, seed: int) -> None:
        """Make the runs of a seed. One that fails has no result, and others go on."""
        missing = self.missing(view, seed)
        said = time.monotonic()
        for done, outcome in enumerate(run_jobs([job for _, job in missing], self.launcher), 1):
            if outcome.result is None:
                self.note_failure(outcome)
            if time.monotonic() - said > PAUSE:
                said = time.monotonic()
                self.say(f"equal {view}, seed {seed}: {done:,} of {len(missing):,} runs")

    def note_failure(self, outcome: Outcome) -> None:
        reason = outcome.error.splitlines()[0]
        self.errors[outcome.job.folder] = f"{outcome.kind}: {reason}"
        self.say(f"{outcome.job.folder} has no result: {outcome.kind}: {reason}")

    # ------------------------------------------------------------------------------ after the runs

    def measure_int8(self, seed: int) -> None:
        """Evaluate the models of a seed in int8, those at equal parameters."""
        for name, ready in self.ready.items():
            path = self.root / slug(name) / "int8.json"
            known = read(path) or {}
            for unit in self.units:
                job = self.job(Place(PARAMETERS, name, unit, seed))
                if is_done(job) and job.folder.name not in known:
                    known[job.folder.name] = int8_of(job.folder, ready.problem.figure)
                    write(path, known)

    def write_lenses(self) -> None:
        """Write the pages in which the character models can be watched."""
        if CHARACTERS not in self.ready:
            return
        for unit in self.units:
            path = self.root / lens_path(unit)
            job = self.job(Place(PARAMETERS, CHARACTERS, unit, self.seeds[0]))
            if is_done(job) and not path.exists():
                try:
                    lens_of(load(job.folder)).save(path)
                except CannotShow as reason:
                    self.say(f"There is no lens of {unit}: {reason}")

    # ----------------------------------------------------------------------------------- the record

    def write(self) -> Atlas:
        """Write the record and the page of what is done."""
        atlas = Atlas(
            form=self.form,
            seeds=tuple(self.seeds),
            started=self.circumstances["started"],
            processor=self.circumstances["processor"],
            packages=self.circumstances["packages"],
            problems=tuple(self.known(ready) for ready in self.ready.values()),
            rows=tuple(self.rows()),
            left_out=self.left_out,
            options={name: dict(each) for name, each in NEEDED[self.form].items() if name in self.units},
        )
        write_atlas(self.root / RECORD, atlas)
        lenses = {unit: lens_path(unit) for unit in self.units if (self.root / lens_path(unit)).exists()}
        write_page(self.root / PAGE, atlas, lenses)
        return atlas

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
            level=self.level(problem),
            budget=problem.form(self.form).budget,
            updates=ready.usual,
            reads=reads(ready),
        )

    def level(self, problem: Problem) -> float | None:
        """Return what the baseline reaches in the test of the first run that has a result."""
        for unit in self.units:
            result = read_result(self.job(Place(PARAMETERS, problem.name, unit, self.seeds[0])).folder)
            for each in result["baselines"] if result else ():
                if each["name"] == problem.baseline:
                    return each["figures"].get(problem.figure)
        return None

    def rows(self) -> list[Row]:
        return [
            self.row(Place(view, name, unit, 0))
            for view in VIEWS
            for name in self.ready
            for unit in self.units
        ]

    def row(self, place: Place) -> Row:
        ready = self.ready[place.problem]
        entry, jobs = ready.entries[place.unit], [self.job(place._replace(seed=seed)) for seed in self.seeds]
        found = [read_result(job.folder) if is_done(job) else None for job in jobs]
        results = tuple(each["test"][ready.problem.figure] if each else None for each in found)
        errors = [f"seed {seed}: {self.errors[job.folder]}" for seed, job in self.failed(jobs)]
        row = Row(
            *(place.view, place.problem, place.unit, entry.hidden_size, entry.parameters),
            updates=self.updates(place),
            results=results,
            notes=(*entry.notes, *errors),
        )
        return row if place.view == TIME else self.with_measures(row, entry, jobs)

    def failed(self, jobs: Sequence[Job]) -> list[tuple[int, Job]]:
        return [(seed, job) for seed, job in zip(self.seeds, jobs, strict=True) if job.folder in self.errors]

    def with_measures(self, row: Row, entry: Entry, jobs: Sequence[Job]) -> Row:
        known = read(self.root / slug(row.problem) / "int8.json") or {}
        small = [known.get(job.folder.name, {}) for job in jobs]
        reasons = dict.fromkeys(f"no int8: {each['failed']}" for each in small if "failed" in each)
        values = tuple(each.get("value") for each in small)
        return replace(
            row,
            update_ms=rounded(entry.update_ms),
            step_us=rounded(entry.step_us),
            int8_bytes=next((each["size"] for each in small if "size" in each), None),
            int8=values if any(value is not None for value in values) else (),
            notes=(*row.notes, *reasons),
        )


def rounded(time: float | None) -> float | None:
    """Return a time with the digits that another measurement might give again, and one more."""
    return None if time is None else float(f"{time:.4g}")


def lens_path(unit: str) -> str:
    return f"lenses/{unit}.html"


def is_done(job: Job) -> bool:
    result = read_result(job.folder)
    return result is not None and result["step"] == job.config.loop.steps


def int8_of(folder: Path, figure: str) -> dict[str, Any]:
    try:
        return in_int8(folder, figure)._asdict()
    except (RuntimeError, ValueError) as reason:
        return {"failed": str(reason)}


def reads(ready: Ready) -> str:
    """Return the task and its settings as options of `linnet train`."""
    plain = RunConfig(task=ready.config.task)
    changed = differences(override(plain, TASKS[ready.config.task].defaults), ready.config, ignore=UNSHOWN)
    return " ".join([ready.config.task, *(f"{name}={new}" for name, (_, new) in changed.items())])


def made_entry(values: Mapping[str, Any]) -> Entry:
    return Entry(**{**values, "notes": tuple(values["notes"])})


def read(path: Path) -> Any:
    """Return the content of a file of this folder; None if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=1).encode())
