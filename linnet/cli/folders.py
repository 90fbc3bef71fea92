"""Where commands put their runs, and the task of a run that they are given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from linnet.cli.output import is_first_process
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged
from linnet.runs.records import claim, looks_like_a_run, read_config
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


def overwrite(folder: Path) -> None:
    """Delete the run in `folder`, in one process only, and never while another process trains in it."""
    if not folder.exists() or not is_first_process():
        return
    if not looks_like_a_run(folder):
        raise ValueError(f"{folder} is not a run, so it is not overwritten; give another --run-dir")
    with claim(folder):
        # Delete the contents, not the folder itself, which may be a symbolic link.
        for path in folder.iterdir():
            path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)
