"""Recorded runs: found, read, and grouped by the problem they were given and by what differs but the seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.models.config import default_options
from linnet.runs.config import LATER, RunConfig, parts
from linnet.runs.records import (
    Row,
    read_config,
    read_details,
    read_environment,
    read_metrics,
    read_result,
    read_speed,
)
from linnet.runs.untrusted import has_file, read_bytes
from linnet.tasks import TASKS
from linnet.tasks.base import LOSS, Figure, Section

SOLVED = 0.1
"""A memory task is solved when its loss is below this share of the memoryless baseline."""

# Settings in which runs of one group may differ: another seed, fold or machine, how long and how often.
SAME = ("seed", "data_seed", "fold", "threads", "device", "data_dir", "evaluate_every", *LATER)


class Recorded(NamedTuple):
    """What a run directory has, finished or not."""

    name: str
    folder: Path
    config: RunConfig
    train: list[Row]
    valid: list[Row]
    result: Any
    environment: Any
    sample: str
    speed: float | None = None  # tokens per second, measured after training with nothing else running
    details: Sequence[Section] = ()  # tables of its test, such as a confusion matrix


class Group(NamedTuple):
    """Runs that differ only in their seeds."""

    label: str
    name: str  # of the unit, or of its variant
    runs: list[Recorded]


class Panel(NamedTuple):
    """Groups of runs of the same problem."""

    title: str
    groups: list[Group]

    @property
    def first(self) -> Recorded:
        return self.groups[0].runs[0]


def read_run(folder: Path, name: str | None = None) -> Recorded:
    sample = read_bytes(folder / "sample.txt") or b""
    return Recorded(
        name or folder.name,
        folder,
        read_config(folder),
        read_metrics(folder, "train"),
        read_metrics(folder, "valid"),
        read_result(folder),
        read_environment(folder),
        sample.decode("utf-8", errors="replace"),
        read_speed(folder),
        read_details(folder),
    )


def find_runs(paths: Iterable[Path]) -> list[Recorded]:
    """The runs among these folders and directly inside them: a comparison is a folder of runs."""
    found: dict[Path, Recorded] = {}
    for path in paths:
        places = [path] if is_run(path) else sorted(filter(is_run, path.glob("*/")))
        if not places:
            raise FileNotFoundError(
                f"{path} is neither a run nor a folder of runs: there is no config.json in it or one below"
            )
        found |= {place.resolve(): read_run(place) for place in places}
    return list(found.values())


def is_run(folder: Path) -> bool:
    return has_file(folder / "config.json")


# ---------------------------------------------------------------------------------------- groups


def panels(runs: Sequence[Recorded]) -> list[Panel]:
    """The runs by problem, and then by settings."""
    asked: dict[str, list[Recorded]] = {}
    for run in runs:
        asked.setdefault(problem(run.config), []).append(run)
    return [Panel(title, groups(those)) for title, those in asked.items()]


def problem(config: RunConfig) -> str:
    """What a run was asked to learn, in a few words."""
    return TASKS[config.task].title(config.data)


def groups(runs: Sequence[Recorded]) -> list[Group]:
    """Runs that differ only in their seeds; the label of a group says what else differs."""
    alike: dict[str, list[Recorded]] = {}
    for run in runs:
        alike.setdefault(repr(settings(run.config)), []).append(run)
    names = [unit_name(those[0].config) for those in alike.values()]
    made = []
    for name, those in zip(names, alike.values(), strict=True):
        same = [other[0] for other, known in zip(alike.values(), names, strict=True) if known == name]
        made.append(Group(label(name, those[0], same), name, those))
    return made


def settings(config: RunConfig) -> dict[str, Any]:
    """All settings of a run but those of SAME, with the options of the unit among them."""
    flat: dict[str, Any] = {"task": config.task}
    for part in parts(config.task):
        flat |= dataclasses.asdict(getattr(config, part))
    flat |= {**default_options(config.model.unit), **flat.pop("unit_options", {})}
    return {name: flat[name] for name in sorted(flat) if name not in SAME}


def unit_name(config: RunConfig) -> str:
    """The unit, or the name that a comparison gives to this form of it."""
    return TASKS[config.task].unit_name(config.model)


def label(name: str, run: Recorded, others: Sequence[Recorded]) -> str:
    """The name, and the settings in which runs of the same name differ."""
    own, all_of_them = settings(run.config), [settings(other.config) for other in others]
    differ = [key for key in own if any(other.get(key) != own[key] for other in all_of_them)]
    return ", ".join([name, *(f"{key} {own[key]}" for key in differ)])


def members(panel: Panel) -> Iterator[Recorded]:
    return (run for group in panel.groups for run in group.runs)


# --------------------------------------------------------------------------------------- figures


def task_figures(run: Recorded) -> tuple[Figure, ...]:
    """The figures that the task of a run reports, the most important one first."""
    return TASKS[run.config.task].figures(run.config.data)


def main_figure(run: Recorded) -> Figure:
    return task_figures(run)[0]


def figure_named(run: Recorded, name: str) -> Figure:
    return next(
        (each for each in task_figures(run) if each.name == name), LOSS._replace(name=name, label=name)
    )


def shown_figures(runs: Sequence[Recorded]) -> tuple[Figure, ...]:
    """The figures that all these runs have; runs of different tasks may share only the loss."""
    first = task_figures(runs[0])
    return tuple(each for each in first if all(each in task_figures(run) for run in runs)) or (LOSS,)


def best_value(run: Recorded, figure: Figure) -> float | None:
    """The figure of a finished run on validation data; before that, its best value so far."""
    if run.result:
        return run.result["valid"].get(figure.name)
    known = [row[figure.name] for row in run.valid if figure.name in row]
    return (max if figure.higher else min)(known, default=None)


def speed_of(run: Recorded) -> float | None:
    """Tokens per second: measured alone, or else while the run was trained; None before its end."""
    return run.speed or (run.result or {}).get("tokens_per_second")


def baseline(panel: Panel) -> float | None:
    """The mean of the memoryless baselines of the last evaluations; None for tasks without one."""
    rows = [row for run in members(panel) for row in run.valid[-1:] if "baseline" in row]
    return sum(row["baseline"] for row in rows) / len(rows) if rows else None


def updates_to_solve(rows: Iterable[Row], share: float = SOLVED) -> int | None:
    """The updates before the first evaluation with a loss below that share of its baseline; None: never."""
    return next((row["step"] for row in rows if row["loss"] < share * row["baseline"]), None)
