"""What ends a run before its end, each with an exit code of its own."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("linnet")
"""Where a run says what its user must know, whatever shows its progress."""


class Stopped(RuntimeError):  # noqa: N818, it is what happened
    """A run that cannot go on; what it has written stays."""

    exit_code = 1


class NotFinite(Stopped):
    """The loss or the gradient is no longer a number."""

    exit_code = 3


class DiskFull(Stopped):
    """There is no room for a file; the checkpoint before it is whole."""

    exit_code = 4


class Mismatch(Stopped):
    """A checkpoint or a run directory of something else."""

    exit_code = 5


class Damaged(Mismatch):
    """A file of a run that is not as it was written, or is something that no run has."""

    exit_code = 6


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Say what a full disk means for the run."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DiskFull(
            f"no room to write {path} ({error.strerror}); the last whole checkpoint is kept: "
            "free some space and give the same command again to go on from it"
        ) from error


def missing(user: str, packages: str) -> ImportError:
    """Return an error that says what to install for `user`, a command or an option."""
    return ImportError(f"{user} needs what is not installed: pip install {packages}")
