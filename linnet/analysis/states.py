"""What runs do now: how far, how fast, where, and what was wrong with those that failed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from linnet.runs.errors import Damaged
from linnet.runs.records import read_config, read_metrics, read_result
from linnet.runs.status import FINISHED, KILLED, LOG, RUNNING, STATUS, Status, last_lines, read_status
from linnet.tasks import TASKS

WAITING, SILENT, UNFINISHED, DAMAGED = "waiting", "silent", "unfinished", "damaged"
QUIET = 120.0
"""Seconds without a note after which a run on another machine is called silent: it may be validating."""
HEAD = ("run", "state", "updates", "valid", "tokens/s", "noted", "where", "launcher")
LEFT = (0, 1, 6, 7)
"""The columns of words."""
DEEPEST = 3
"""A folder of runs may have folders of runs: runs/compare/lstm, runs/experiments/table/row."""


class State(NamedTuple):
    """A run as `linnet runs` shows it; `problem` is its error and the last lines of its log."""

    cells: tuple[str, ...]
    problem: str = ""


def states(folders: Sequence[Path], root: Path) -> list[State]:
    """Return the states of runs, which are named by their path from `root`."""
    return [state_of(folder, str(folder.relative_to(root))) for folder in folders]


def find_states(root: Path) -> list[State]:
    """Return the states of all runs in a folder, or of the folder itself if it is a run."""
    if is_begun(root):
        return [state_of(root, root.name)]
    return states(list(begun_in(root, DEEPEST)), root)


def begun_in(folder: Path, levels: int) -> Iterator[Path]:
    """Yield the runs in a folder; a run has no runs in it."""
    for each in sorted(folder.glob("*/")):
        if is_begun(each):
            yield each
        elif levels > 1:
            yield from begun_in(each, levels - 1)


def is_begun(folder: Path) -> bool:
    """Return whether a run is here; one that failed before its first step has no config.json."""
    return (folder / "config.json").is_file() or (folder / STATUS).is_file()


def state_of(folder: Path, name: str) -> State:
    try:
        return read_state(folder, name)
    except (Damaged, OSError, ValueError) as error:
        return State((name, DAMAGED, *[""] * (len(HEAD) - 2)), str(error))


def read_state(folder: Path, name: str) -> State:
    status = read_status(folder)
    if status is None:
        return State((name, without_status(folder), *[""] * (len(HEAD) - 2)))
    now = state_now(status)
    cells = (
        *(name, now),
        f"{status.step}/{status.total or '?'}",
        last_figure(folder),
        f"{status.speed:,.0f}" if status.speed else "",
        ago(time.time() - status.changed),
        f"{status.host}, process {status.pid}",
        status.launcher,
    )
    return State(cells, problem(folder, status) if now not in (RUNNING, FINISHED) else "")


def without_status(folder: Path) -> str:
    """Return the state of a run that has not noted it: it waits, or an older version of Linnet made it."""
    if not (folder / "config.json").is_file():
        return WAITING
    return FINISHED if read_result(folder) else UNFINISHED


def state_now(status: Status) -> str:
    if status.was_killed:
        return KILLED
    if status.state == RUNNING and time.time() - status.changed > QUIET:
        return SILENT
    return status.state


def last_figure(folder: Path) -> str:
    """Return the main figure of the last validation."""
    rows = read_metrics(folder, "valid") if (folder / "config.json").is_file() else []
    if not rows:
        return ""
    config = read_config(folder)
    figure = TASKS[config.task].figures(config.data)[0]
    return f"{figure.label} {figure.show(rows[-1][figure.name])}"


def problem(folder: Path, status: Status) -> str:
    lines = [line for line in last_lines(folder / LOG) if line != status.error]
    return "\n".join(filter(None, [status.error, *(f"    {line}" for line in lines)]))


def ago(seconds: float) -> str:
    """Return a duration in one unit: "5 s ago", "12 min ago"."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
