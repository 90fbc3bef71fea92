"""A job: the settings of a run and its folder. An outcome: its result, or why it has none."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import NamedTuple

from linnet.runs.config import RunConfig
from linnet.runs.records import Row

LAST_LINES = 12
"""How much of its log an error of a run shows."""
EXPECTED = (RuntimeError, ValueError, OSError, ImportError)
"""Errors that tell the user what to do; of others, the traceback is shown too."""


class Job(NamedTuple):
    config: RunConfig
    folder: Path


class Outcome(NamedTuple):
    """The end of a run: `result` is that of result.json, or None; then `error` says why.

    kind   the class of the error by its name, such as "NotFinite" for a loss that is no number
    """

    job: Job
    result: Row | None
    error: str = ""
    kind: str = ""
    exit_code: int = 0


def failed(job: Job, error: BaseException, log: Path | None = None) -> Outcome:
    """Return the outcome of a run that an error has ended, with the last lines of its log."""
    said = "\n".join(filter(None, [str(error) or repr(error), last_lines(log) if log else trace_of(error)]))
    return Outcome(job, None, said, type(error).__name__, getattr(error, "exit_code", 1))


def trace_of(error: BaseException) -> str:
    """Return where an unexpected error was raised; "" for one that says itself what is wrong."""
    return "" if isinstance(error, EXPECTED) else "".join(traceback.format_exception(error)).strip()


def last_lines(path: Path) -> str:
    """Return the last lines of a text file, which may be large; "" without one."""
    if not path.is_file():
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 200 * LAST_LINES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-LAST_LINES:])
