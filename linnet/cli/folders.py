"""Where commands put their runs, and the task of a run that they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linnet.cli.output import is_first_process
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged
from linnet.runs.overwrite import delete_run
from linnet.runs.records import read_config
from linnet.tasks import TASKS

RUNS = Path("runs")


def data_name(config: Any) -> str:
    return TASKS[config.task].data_name(config.data)


def task_of(folder: str | None) -> str:
    """Return the task of a run, whose options a command takes."""
    try:
        return read_config(Path(folder or "")).task
    except (OSError, ValueError, Damaged):
        # `load` reports what is wrong with the folder.
        return RunConfig().task


def overwrite(folder: Path, config: RunConfig) -> None:
    """Delete the run in `folder`, in one process only, and never while another process trains in it.

    config   the settings of the run that replaces it
    """
    if folder.exists() and is_first_process():
        delete_run(folder, config)
