"""Zip archives of torch, as a table of entries that can be read without taking more than the file has."""

from __future__ import annotations

import zipfile
from pathlib import Path

from linnet.deploy.read.errors import UnreadableModel

MOST_ENTRIES = 100_000


class Archive:
    """The entries of an archive, by their names without the folder that all of them are in."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with zipfile.ZipFile(path) as file:
                listed = file.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise UnreadableModel(f"{path} is a damaged archive ({error})") from None
        if not 0 < len(listed) <= MOST_ENTRIES:
            raise UnreadableModel(f"{path} is an archive of {len(listed):,} files, which no model is")
        self.entries = {each.filename.partition("/")[2]: each for each in listed}

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def check_stored(self) -> None:
        """Raise if entries are compressed: torch.export does not compress, so it did not write them."""
        entries = self.entries.values()
        stored = all(each.compress_type == zipfile.ZIP_STORED for each in entries)
        if not stored or sum(each.file_size for each in entries) > self.path.stat().st_size:
            raise UnreadableModel(
                f"{self.path} is no archive of torch.export: it unpacks to more than it has"
            )

    def read(self, name: str) -> bytes:
        if name not in self.entries:
            raise UnreadableModel(f"{self.path} has no {name[:80]!r}")
        try:
            with zipfile.ZipFile(self.path) as file:
                return file.read(self.entries[name])
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, RuntimeError) as error:
            raise UnreadableModel(f"{name[:80]} in {self.path} is damaged ({error})") from None
