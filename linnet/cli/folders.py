"""Where commands put their runs, and the task of a run that they are given."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from linnet.cli.output import is_first_process
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged
from linnet.runs.overwrite import delete_run
from linnet.runs.ready import PREFIX, local_run
from linnet.runs.records import read_config
from linnet.runs.remote import is_url
from linnet.runs.stored import fetch_records, last_part, stored_run
from linnet.tasks import TASKS

RUNS = Path("runs")


def data_name(config: Any) -> str:
    return TASKS[config.task].data_name(config.data)


def task_of(folder: str | None) -> str:
    """Return the task of a run, whose options a command takes."""
    try:
        return read_config(records_of(folder or "")).task
    except (OSError, ValueError, Damaged):
        # `load` reports what is wrong with the folder.
        return RunConfig().task


@cache
def records_of(run: str | Path) -> Path:
    """Return the folder of a run or of several, or one with the records of those at a URL in a store."""
    return fetch_records(str(run)) if is_url(run) else local_run(run)


def local_folder(run: str | Path) -> Path:
    """Return the folder of what is made from a run: its own, or a folder of its name here.

    Here, for a run in a store, and for one of the package: that is not to be written to.
    """
    return Path(last_part(str(run))) if is_url(run) else Path(str(run).removeprefix(PREFIX))


def send_again(config: RunConfig, folder: Path) -> None:
    """Copy to the store of a run what was written after its training, such as its report."""
    if is_first_process() and (stored := stored_run(config.loop)):
        stored.send(folder)


def overwrite(folder: Path, config: RunConfig) -> None:
    """Delete the run in `folder`, in one process only, and never while another process trains in it.

    config   the settings of the run that replaces it
    """
    if folder.exists() and is_first_process():
        delete_run(folder, config)
    if is_first_process() and (stored := stored_run(config.loop)):
        stored.delete()
