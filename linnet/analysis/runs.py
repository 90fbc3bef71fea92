"""Recorded runs: find them, read them, and group them by problem and by settings other than the seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.base.suggest import no_such
from linnet.models.config import default_options
from linnet.runs.charts import read_charts
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
from linnet.tasks.results import LOSS, Chart, Figure, Section

SOLVED = 0.1
"""A memory task is solved when its loss is below this share of the memoryless baseline."""

# Settings in which runs of one group may differ: seed, fold, machine, how long to train, when to evaluate.
SAME = ("seed", "data_seed", "fold", "threads", "device", "data_dir", "evaluate_every", *LATER)


class Recorded(NamedTuple):
    """The contents of a run directory, finished or not."""

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
    charts: Sequence[Chart] = ()  # of its test, such as forecasts of some series
    split: str = ""  # runs of the same problem with another value here are drawn in another panel


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
        read_charts(folder),
    )


def find_runs(paths: Iterable[Path]) -> list[Recorded]:
    """Return the runs in these folders: each is a run, or a folder of runs such as a comparison."""
    runs: dict[Path, Recorded] = {}
    for path in paths:
        folders = [path] if is_run(path) else sorted(filter(is_run, path.glob("*/")))
        if not folders:
            raise FileNotFoundError(
                f"{path} is neither a run nor a folder of runs: there is no config.json in it or its folders"
            )
        runs |= {folder.resolve(): read_run(folder) for folder in folders}
    return list(runs.values())


def is_run(folder: Path) -> bool:
    return has_file(folder / "config.json")


# ---------------------------------------------------------------------------------------- groups


def panels(runs: Sequence[Recorded]) -> list[Panel]:
    """Group runs by problem, and then by settings."""
    by_problem: dict[str, list[Recorded]] = {}
    for run in runs:
        title = ", ".join(filter(None, [problem(run.config), run.split]))
        by_problem.setdefault(title, []).append(run)
    return [Panel(title, groups(of_problem)) for title, of_problem in by_problem.items()]


def split_by(runs: Sequence[Recorded], setting: str) -> list[Recorded]:
    """Return the runs, marked for a panel for each value of a setting and in the order of its values."""
    known = [settings(run.config) for run in runs]
    common = set.intersection(*map(set, known))
    if setting not in common:
        raise ValueError(f"these runs have {no_such('setting', setting, sorted(common))}")
    order = sorted(zip(known, runs, strict=True), key=lambda pair: sort_key(pair[0][setting]))
    return [run._replace(split=f"{setting} {own[setting]}") for own, run in order]


def sort_key(value: Any) -> tuple[bool, Any]:
    """Sort numbers by value, and everything else after them by its text."""
    return (False, value) if isinstance(value, (int, float)) else (True, str(value))


def problem(config: RunConfig) -> str:
    """Return the title of the problem that a run learns."""
    return TASKS[config.task].title(config.data)


def groups(runs: Sequence[Recorded]) -> list[Group]:
    """Group runs that differ only in their seeds; labels name the settings in which groups differ."""
    by_settings: dict[str, list[Recorded]] = {}
    for run in runs:
        by_settings.setdefault(repr(settings(run.config)), []).append(run)
    firsts = [equal[0] for equal in by_settings.values()]
    names = [unit_name(run.config) for run in firsts]
    result = []
    for name, equal in zip(names, by_settings.values(), strict=True):
        of_same_name = [run for run, other in zip(firsts, names, strict=True) if other == name]
        result.append(Group(label(name, equal[0], of_same_name), name, equal))
    return result


def settings(config: RunConfig) -> dict[str, Any]:
    """Return all settings of a run except those in SAME, with the options of the unit among them."""
    flat: dict[str, Any] = {"task": config.task}
    for part in parts(config.task):
        flat |= dataclasses.asdict(getattr(config, part))
    flat |= {**default_options(config.model.unit), **flat.pop("unit_options", {})}
    return {name: flat[name] for name in sorted(flat) if name not in SAME}


def unit_name(config: RunConfig) -> str:
    """Return the unit, or the name of its variant."""
    return TASKS[config.task].unit_name(config.model)


def label(name: str, run: Recorded, others: Sequence[Recorded]) -> str:
    """Return the name, and the settings in which runs of the same name differ."""
    own, all_of_them = settings(run.config), [settings(other.config) for other in others]
    differ = [key for key in own if any(other.get(key) != own[key] for other in all_of_them)]
    return ", ".join([name, *(f"{key} {own[key]}" for key in differ)])


def members(panel: Panel) -> Iterator[Recorded]:
    return (run for group in panel.groups for run in group.runs)


# --------------------------------------------------------------------------------------- figures


def task_figures(run: Recorded) -> tuple[Figure, ...]:
    """Return the figures that the task of a run reports, the most important one first."""
    return TASKS[run.config.task].figures(run.config.data)


def main_figure(run: Recorded) -> Figure:
    return task_figures(run)[0]


def figure_named(run: Recorded, name: str) -> Figure:
    return next(
        (each for each in task_figures(run) if each.name == name), LOSS._replace(name=name, label=name)
    )


def shown_figures(runs: Sequence[Recorded]) -> tuple[Figure, ...]:
    """Return the figures that all these runs have; runs of different tasks may share only the loss."""
    first = task_figures(runs[0])
    return tuple(each for each in first if all(each in task_figures(run) for run in runs)) or (LOSS,)


def best_value(run: Recorded, figure: Figure) -> float | None:
    """Return the figure of a finished run on validation data; of an unfinished run, its best so far."""
    if run.result:
        return run.result["valid"].get(figure.name)
    known = [row[figure.name] for row in run.valid if figure.name in row]
    return (max if figure.higher else min)(known, default=None)


def speed_of(run: Recorded) -> float | None:
    """Return tokens per second, measured after training if possible, else during it; None if unfinished."""
    return run.speed or (run.result or {}).get("tokens_per_second")


def baseline(panel: Panel) -> float | None:
    """Return the mean of the memoryless baselines of the last evaluations; None for tasks without one."""
    rows = [row for run in members(panel) for row in run.valid[-1:] if "baseline" in row]
    return sum(row["baseline"] for row in rows) / len(rows) if rows else None


def updates_to_solve(rows: Iterable[Row], share: float = SOLVED) -> int | None:
    """Return the updates until the loss is below `share` of the baseline in an evaluation; None: never."""
    return next((row["step"] for row in rows if row["loss"] < share * row["baseline"]), None)
