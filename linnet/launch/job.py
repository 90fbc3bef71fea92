"""A job: the settings of a run and its folder. An outcome: its result, or why it has none."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from linnet.runs.config import RunConfig
from linnet.runs.errors import Stopped
from linnet.runs.records import Row
from linnet.runs.status import LAST_LINES, last_lines

EXPECTED = (RuntimeError, ValueError, OSError, ImportError)
"""Errors that tell the user what to do; of others, the traceback is shown too."""


AT_CTRL_C = "each run writes a checkpoint after its update; again: stop at once"


class Job(NamedTuple):
    """A run to be made; `validated` is called in its process after each validation, see `train`."""

    config: RunConfig
    folder: Path
    validated: Callable[[Sequence[float]], None] | None = None


class Answer(NamedTuple):
    """What a worker says of a run: its result, or why it has none."""

    result: Row | None
    error: str = ""
    kind: str = ""
    exit_code: int = 0
    host: str = ""


@dataclass(frozen=True)
class Outcome:
    """The end of a run: `result` is that of result.json, or None; then `error` says why.

    error       what was wrong, and the last lines of the log
    kind        the class of the error by its name, such as "NotFinite" for a loss that is no number
    exit_code   with which a command ends that makes this run alone
    host        the machine; "" if a run was lost that had not begun
    """

    job: Job
    result: Row | None
    error: str = ""
    kind: str = ""
    exit_code: int = 0
    host: str = ""


class RunsFailed(Stopped):
    """Some runs of a command have failed; the message is a summary."""

    def __init__(self, failed: Sequence[Outcome], count: int):
        parts = [
            f"{each.job.folder}{f' on {each.host}' if each.host else ''}: {each.error}" for each in failed
        ]
        begin = f"{len(failed)} of {count} runs failed, and the same command resumes them"
        super().__init__("\n\n".join([f"{begin}:", *parts]))
        codes = {each.exit_code for each in failed}
        self.exit_code = codes.pop() if len(codes) == 1 else 1


def failure(error: BaseException, log: Path | None = None) -> Answer:
    """Return the answer for a run that an error has ended, with the last lines of its log."""
    message = str(error) or repr(error)
    lines = [line for line in (last_lines(log) if log else trace_of(error)) if line != message]
    text = "\n".join([message, *(f"    {line}" for line in lines)])
    return Answer(None, text, type(error).__name__, getattr(error, "exit_code", 1), socket.gethostname())


def trace_of(error: BaseException) -> list[str]:
    """Return where an unexpected error was raised; nothing for one that says itself what is wrong."""
    if isinstance(error, EXPECTED):
        return []
    return "".join(traceback.format_exception(error)).splitlines()[-LAST_LINES:]
