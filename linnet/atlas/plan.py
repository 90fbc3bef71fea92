"""The runs of the atlas: each unit on each problem with each seed, in two views.

    parameters   every model has the same number of parameters and makes the same number of updates
    time         the same models, each with as many updates as it makes in the time that LSTM takes

The updates of the second view follow from the measured time of an update, not from a clock while a run
trains: it does not matter what else the machine does, or which machine trains a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from linnet.atlas.problems import NEEDED, VALIDATIONS
from linnet.atlas.record import Cell
from linnet.runs.config import RunConfig, override
from linnet.tasks import TASKS
from linnet.tasks.base import Task

PARAMETERS, TIME = "parameters", "time"
VIEWS = (PARAMETERS, TIME)


class Place(NamedTuple):
    """Where a run belongs."""

    view: str
    problem: str
    unit: str
    seed: int

    @property
    def cell(self) -> Cell:
        return Cell(self.view, self.problem, self.unit)


def unit_config(base: RunConfig, form: str, unit: str) -> RunConfig:
    """Return the settings of a unit, but for its hidden size: the learning rate is that of all units."""
    options = dict(NEEDED[form].get(unit, {}))
    follows = TASKS[base.task].implied({"unit": unit, "unit_options": options})
    return with_steps(override(base, {**follows, "lr": base.optimiser.lr}), base.loop.steps)


def fitted(config: RunConfig, task: Task, budget: int) -> RunConfig:
    return dataclasses.replace(config, model=task.with_model(config.model).fitted(budget))


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    return override(config, {"steps": steps, "evaluate_every": -(-steps // VALIDATIONS)})


def updates_in_time(steps: int, update_ms: float | None, usual_ms: float | None) -> int:
    """Return how many updates of `update_ms` fit into the time of `steps` updates of `usual_ms`."""
    return max(1, round(steps * usual_ms / update_ms)) if update_ms and usual_ms else steps


def slug(problem: str) -> str:
    return problem.lower().replace(" ", "-")


def folder_of(root: Path, place: Place, updates: int, usual: int) -> Path:
    """Return the folder of a run; at equal time, a unit with as many updates has the same run."""
    view = "" if place.view == PARAMETERS or updates == usual else "-time"
    return root / slug(place.problem) / f"{place.unit}{view}-{place.seed}"


def places(view: str, problems: Sequence[str], units: Sequence[str], seed: int) -> Iterator[Place]:
    """Yield the runs of a seed in one view."""
    for problem in problems:
        for unit in units:
            yield Place(view, problem, unit, seed)
