"""What a run does now: status.json, which it writes when it begins, every few seconds, and when it ends.

A process that is killed cannot write that it was. So a run that says it is running, on this machine, by a
process that does not exist, was killed; the same command resumes it.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from linnet.runs.records import Row, write_json
from linnet.runs.untrusted import (
    check,
    check_count,
    check_finite,
    check_object,
    check_text,
    has_file,
    open_file,
    read_json,
)

STATUS = "status.json"
LOG = "log.txt"
"""What a run has printed that a launcher has started in another process."""
RUNNING, FINISHED, STOPPED, FAILED, KILLED = "running", "finished", "stopped", "failed", "killed"
LAST_LINES = 12
"""How much of its log the error of a run shows."""
WRITTEN = (RUNNING, FINISHED, STOPPED, FAILED)


@dataclass(frozen=True)
class Status:
    """The state of a run, where it is, and how far.

    launcher     what has started it, such as local:2; "" for a command of its own
    changed      when this was written, in seconds since 1970
    resumed_at   the update at which its process began
    """

    state: str = RUNNING
    host: str = dataclasses.field(default_factory=socket.gethostname)
    pid: int = dataclasses.field(default_factory=os.getpid)
    launcher: str = ""
    changed: float = dataclasses.field(default_factory=time.time)
    parameters: int = 0
    resumed_at: int = 0
    step: int = 0
    total: int | None = None
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    error: str = ""

    @property
    def speed(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None

    @property
    def was_killed(self) -> bool:
        """Whether its process is known to be gone without having said so."""
        return self.state == RUNNING and self.host == socket.gethostname() and not is_alive(self.pid)


def is_alive(pid: int) -> bool:
    """Return whether a process of this machine exists, as far as the system tells without asking it."""
    if os.name == "nt":
        return True  # there, signal 0 would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # of another user
    return True


def write_status(folder: Path, status: Status) -> None:
    write_json(folder / STATUS, dataclasses.asdict(status))


def read_status(folder: Path) -> Status | None:
    """Return what a run has written last; None for one that has not begun, or of an older version."""
    path = Path(folder) / STATUS
    value = read_json(path)
    if value is None:
        return None
    names = [each.name for each in dataclasses.fields(Status)]
    check_object(path, "it", value, names)
    check_status(path, value)
    return Status(**{name: value[name] for name in names})


def check_status(path: Path, value: Row) -> None:
    for name in ("state", "host", "launcher", "error"):
        check_text(path, name, value[name])
    check(value["state"] in WRITTEN, path, f"its state is none of {', '.join(WRITTEN)}")
    for name in ("pid", "parameters", "resumed_at", "step", "tokens"):
        check_count(path, name, value[name])
    for name in ("changed", "seconds"):
        check_finite(path, name, value[name])
    if value["total"] is not None:
        check_count(path, "total", value["total"])
    if value["loss"] is not None:
        check_finite(path, "loss", value["loss"])


def last_lines(path: Path) -> list[str]:
    """Return the last lines of a log, which may be large; none if there is no log."""
    if not has_file(path):
        return []
    with open_file(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 200 * LAST_LINES))
        return file.read(200 * LAST_LINES).decode(errors="replace").splitlines()[-LAST_LINES:]
