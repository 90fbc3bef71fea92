"""A folder of source code: complete, or not there."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

# In every folder that was exported: an export may replace it.
RECORD = "linnet.json"


@contextmanager
def new_folder(folder: Path, record: Mapping[str, Any]) -> Iterator[Path]:
    """Give a temporary folder to write to; it becomes `folder` when everything is written."""
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield work
        (work / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        # mkdtemp makes a folder that others may not read.
        work.chmod(0o755)
        put_in_place(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_replaceable(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; an export is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECORD).exists():
        raise FileExistsError(
            f"{folder} has other files in it; an export replaces a folder only if it was exported itself. "
            "Choose another folder"
        )


def put_in_place(work: Path, folder: Path) -> None:
    if not folder.exists():
        work.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    folder.rename(old / "old")
    work.rename(folder)
    shutil.rmtree(old)


def filled(name: str, parts: Mapping[str, str]) -> str:
    """A template of this package, with a text in the place of each @NAME@."""
    return re.sub(r"@([A-Z_0-9]+)@", lambda found: parts[found[1]], template(name))


def template(name: str) -> str:
    return (files("linnet.deploy.source") / "templates" / name).read_text(encoding="utf-8")
