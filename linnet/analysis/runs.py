"""Recorded runs: found, read, and put together where they were asked the same or differ by seeds alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from linnet.models.config import find_unit
from linnet.runs.config import LATER, RunConfig, parts
from linnet.runs.records import Row, read_config, read_environment, read_metrics, read_result
from linnet.runs.untrusted import has_file, read_bytes
from linnet.tasks import TASKS

SOLVED = 0.1
"""A memory task is solved when its loss is below this share of the loss without a memory."""

# What makes a run another sample of one thing, or one that was made elsewhere, for longer, seen more often.
SAME = ("seed", "data_seed", "threads", "device", "data_dir", "evaluate_every", *LATER)


class Recorded(NamedTuple):
    """A run as it stands in its directory, finished or not."""

    name: str
    folder: Path
    config: RunConfig
    train: list[Row]
    valid: list[Row]
    result: Any
    environment: Any
    sample: str


class Group(NamedTuple):
    """Runs that differ by their seeds alone."""

    label: str
    name: str  # of the unit, or of its variant
    runs: list[Recorded]


class Panel(NamedTuple):
    """Groups that were asked the same."""

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
    )


def find_runs(paths: Iterable[Path]) -> list[Recorded]:
    """The runs among these folders, and those that stand in them: a comparison is a folder of runs."""
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


# ------------------------------------------------------------------------------ beside each other


def panels(runs: Sequence[Recorded]) -> list[Panel]:
    """The runs by what they were asked, and then by what they are."""
    asked: dict[str, list[Recorded]] = {}
    for run in runs:
        asked.setdefault(problem(run.config), []).append(run)
    return [Panel(title, groups(those)) for title, those in asked.items()]


def problem(config: RunConfig) -> str:
    """What a run was asked, in a few words."""
    return TASKS[config.task].title(config.data)


def groups(runs: Sequence[Recorded]) -> list[Group]:
    """Runs that differ by their seeds alone together; the label says what else is different."""
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
    """What a run is, without what makes it a second sample; the options of the unit among the others."""
    flat: dict[str, Any] = {"task": config.task}
    for part in parts(config.task):
        flat |= dataclasses.asdict(getattr(config, part))
    usual = {name: known.default for name, known in find_unit(config.model.unit).options().items()}
    flat |= {**usual, **flat.pop("unit_options", {})}
    return {name: flat[name] for name in sorted(flat) if name not in SAME}


def unit_name(config: RunConfig) -> str:
    """The unit, or the name that a comparison gives to this form of it."""
    return TASKS[config.task].unit_name(config.model)


def label(name: str, run: Recorded, others: Sequence[Recorded]) -> str:
    """The name, and those settings in which runs of the same name differ."""
    own, all_of_them = settings(run.config), [settings(other.config) for other in others]
    differ = [key for key in own if any(other.get(key) != own[key] for other in all_of_them)]
    return ", ".join([name, *(f"{key} {own[key]}" for key in differ)])


# --------------------------------------------------------------------------------------- figures


def by_accuracy(config: RunConfig) -> bool:
    """Images are judged by the share of right answers; whatever else by its loss."""
    return TASKS[config.task].figures(config.data)[0].name == "accuracy"


def baseline(panel: Panel) -> float | None:
    """The loss without a memory, as the evaluations of these runs came to it; a text has none."""
    known = [
        row["baseline"]
        for group in panel.groups
        for run in group.runs
        for row in run.valid[-1:]
        if "baseline" in row
    ]
    return sum(known) / len(known) if known else None


def updates_to_solve(rows: Iterable[Row], share: float = SOLVED) -> int | None:
    """The updates before the first evaluation with a loss below that share of its baseline; None: never."""
    return next((row["step"] for row in rows if row["loss"] < share * row["baseline"]), None)
