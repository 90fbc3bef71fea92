"""NRU's Table 1 from our rows: in how many tasks a unit is the first, or among the first two.

The tasks and the paper's counts are in claims.toml. A task counts when at least three of its units were run.
The figure of a memory task is the mean number of updates until it is solved; a run that does not solve it
counts with all of its updates. That of any other task is its metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import NamedTuple

from experiments.claims import CLAIMS, Claim, values
from experiments.results import Result
from experiments.tables import make, parse, read_table
from linnet.base.tables import markdown

PLACES = (1, 2)  # the first, and the first two
FEWEST = 3  # units of a task that counts: of two, both are among the first two


@dataclass(frozen=True)
class Task:
    """A task of the paper: the rows of its units in one of our tables."""

    name: str
    table: str
    rows: Mapping[str, str]
    measure: str = "test"
    seeds: tuple[int, ...] = ()

    @property
    def about(self) -> Claim:
        """A claim about nothing, whose rows are read in the same way."""
        return Claim("", self.name, self.table, (), seeds=self.seeds, measure=self.measure)


class Ranked(NamedTuple):
    """A unit with its mean over seeds, and its place: 1 + how many units are better."""

    unit: str
    mean: float
    place: int


def read_tasks() -> tuple[list[Task], dict[str, list[int]]]:
    known = parse(CLAIMS.read_text(encoding="utf-8"))
    return [make(Task, task) for task in known["task"]], known["ranks"]


def ranked(task: Task, results: Sequence[Result]) -> list[Ranked]:
    """Return the units of a task that were run, the best first; equal units share a place."""
    found = {unit: values(task.about, row, results) for unit, row in task.rows.items()}
    means = {unit: mean(value.number for value in runs.values()) for unit, runs in found.items() if runs}
    sign = -1 if task.about.higher else 1
    places = {
        unit: 1 + sum(sign * other < sign * own for other in means.values()) for unit, own in means.items()
    }
    return sorted(
        (Ranked(unit, own, places[unit]) for unit, own in means.items()), key=lambda each: each.place
    )


def order_of(task: Task, units: Sequence[Ranked]) -> str:
    if not units:
        return "not run"
    figure = "updates" if task.measure == "solved" else read_table(task.table).metric
    means = ", ".join(f"{each.unit} {each.mean:,.5g}" for each in units)
    left_out = "" if len(units) >= FEWEST else f"; not counted, with fewer than {FEWEST} units"
    return f"{means} ({figure}){left_out}"


def ranks_part(results: Sequence[Result]) -> str:
    """Return the order of the units in each task, and the number of first and second places."""
    tasks, paper = read_tasks()
    orders = {task.name: ranked(task, results) for task in tasks}
    count = [units for units in orders.values() if len(units) >= FEWEST]
    head = ["unit", "paper: first", "first two", "ours: first", "first two", "of tasks"]
    body = [
        [unit, *map(str, [*paper[unit], *counts(unit, count)])] for unit in paper if counts(unit, count)[-1]
    ]
    tasks_table = markdown(
        ["task", "ours"], [[task.name, order_of(task, orders[task.name])] for task in tasks]
    )
    return f"{tasks_table}\n\n{markdown(head, body)}"


def counts(unit: str, orders: Sequence[Sequence[Ranked]]) -> list[int]:
    """Return in how many tasks a unit is the first, among the first two, and ranked at all."""
    places = [each.place for units in orders for each in units if each.unit == unit]
    return [*(sum(place <= last for place in places) for last in PLACES), len(places)]
