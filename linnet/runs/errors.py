"""Errors that end a run early, each with its own exit code."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linnet.base.project import advice

log = logging.getLogger("linnet")
"""Warnings of a run, independent of how its progress is shown."""


class Stopped(RuntimeError):  # noqa: N818, the name of an event
    """A run cannot continue; its files are kept."""

    exit_code = 1


class NotFinite(Stopped):
    """The loss or the gradient is no longer a number."""

    exit_code = 3


class Pruned(Stopped):
    """A search has stopped a run that is worse than its others."""


class DiskFull(Stopped):
    """There is no space for a file; the checkpoint before it is complete."""

    exit_code = 4


class Mismatch(Stopped):
    """A checkpoint or a run directory of something else."""

    exit_code = 5


class Damaged(Mismatch):
    """A file of a run was changed after it was written, or does not belong in a run directory."""

    exit_code = 6


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Turn the error of a full disk into a `DiskFull` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DiskFull(
            f"no room to write {path} ({error.strerror}); the last whole checkpoint is kept: "
            "free some space and repeat the command to resume from it"
        ) from error


def missing(user: str, packages: str = "", extra: str = "") -> ImportError:
    """Return an error that says what to install for `user`, a command or an option: packages, or an extra."""
    command = advice(extra) if extra else f"pip install {packages}"
    return ImportError(f"{user} needs packages that are not installed: {command}")
