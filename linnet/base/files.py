"""Atomic file writes, and the folder of the cache."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace the content of a file: a reader, or a crash, sees the old content or the new, never a part.

    `mode` is the file's mode before the umask is applied.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        # Never write into a file that a killed process left, or through a link that someone else placed.
        temporary.unlink(missing_ok=True)
        write_new(temporary, content, mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Create a file and wait until its content is on the disk."""
    # O_BINARY: Windows would write "\r\n" for "\n".
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk: a renamed file survives a crash only after that."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Return LINNET_CACHE if it is set, otherwise `linnet` in the system's folder for caches."""
    if "LINNET_CACHE" in os.environ:
        return Path(os.environ["LINNET_CACHE"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "linnet"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "linnet"
