"""The user's files that a run reads: a run does not continue with other contents under the same name."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linnet.runs.errors import Mismatch

KINDS = ("path", "source", "target")
"""The settings of data that name a file of the user, None by default; validation and test have them too
(valid_path, ...). Settings of these names with another default are no files, such as the column `target`."""
PIECE = 2**20


def digests(data: Any) -> dict[str, str]:
    """Return a digest of each file that the settings of the data name, by the name of the setting."""
    fields = dataclasses.fields(data)
    names = [each.name for each in fields if each.default is None and each.name.split("_")[-1] in KINDS]
    given = {name: getattr(data, name) for name in names if getattr(data, name) is not None}
    return {name: digest(Path(path)) for name, path in given.items()}


def digest(path: Path) -> str:
    """Return the digest of a file, or of the files in a folder."""
    made = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        for piece in pieces(file) if file.is_file() else ():
            made.update(piece)
    return made.hexdigest()[:16]


def pieces(path: Path) -> Iterator[bytes]:
    yield path.name.encode()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def refuse_changed_files(there: Mapping[str, str], here: Mapping[str, str], data: Any) -> None:
    """Raise if a file has other contents than when the checkpoint was written."""
    changed = [name for name in here if there.get(name) != here[name]]
    if changed:
        files = ", ".join(str(getattr(data, name)) for name in changed)
        raise Mismatch(
            f"{files} has other contents than when this run was trained. Give another --run-dir, or "
            "--overwrite to delete the run and start over"
        )
