"""What data sets have in common: a description, and the files that the user gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Described:
    """The description of a set, known before it is read."""

    about: str
    terms: str


@dataclass(frozen=True)
class WantedFiles:
    """Where to look for the files of a set.

    data_dir                      the folder that is searched first for the files of a set by name
    path, valid_path, test_path   of the set "own": its files; what is not given is taken from `path`
    """

    data_dir: str | Path | None = None
    path: str | Path | None = None
    valid_path: str | Path | None = None
    test_path: str | Path | None = None
