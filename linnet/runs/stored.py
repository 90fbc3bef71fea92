"""Runs in a store: the results of a run are copied there while it trains, and read from there.

    config.json, metrics.jsonl, result.json, ...   as in the run directory
    best.zip                                       the folder best/ as one file, so that it is always whole
    last.zip                                       likewise, if checkpoints are stored
    stored.json                                    digests of these files: what did not change is not sent

A run trains in its local folder. If the store fails, it goes on, says so once, and copies what is missing
later.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from linnet.runs import checkpoints
from linnet.runs.config import LoopConfig, RunConfig, differences, override
from linnet.runs.errors import log, room_for
from linnet.runs.overwrite import NAMES, assets
from linnet.runs.records import (
    as_json,
    claim,
    config_from,
    make_folder,
    read_result,
    refuse_changed,
    write_atomically,
)
from linnet.runs.remote import Place, StoreFailed
from linnet.runs.untrusted import LARGE, check, check_object, digest, has_file, has_folder, parse_json

INDEX = "stored.json"
RESULT = "result.json"
OWN = ("store", "store_checkpoints")
"""The settings that say where a run is stored."""
REST = 10
"""After a copy that has failed, none is tried for this many times as long: training goes on."""
LEVELS = 3
"""A folder of runs may have folders of runs: runs/experiments/table/row."""
ATTEMPTS, PAUSE = 3, 2.0
"""At the end of a run, a copy that fails is tried so often, with so many seconds between."""


def names() -> list[str]:
    """Return the files of a run that are stored, the settings first and the result last."""
    return ["config.json", *sorted({*NAMES, *assets()} - {RESULT}), RESULT]


class StoredRun:
    """The copy of a run in a store."""

    def __init__(self, url: str, checkpoints: bool = False):
        self.url = url
        self.folders = ("best", "last") if checkpoints else ("best",)
        self.failed, self.not_before = False, 0.0

    @cached_property
    def place(self) -> Place:
        return Place(self.url)

    @cached_property
    def known(self) -> dict[str, str]:
        """The digests of what the store has."""
        where, content = f"{self.place}/{INDEX}", self.place.read(INDEX)
        found = {} if content is None else parse_json(where, content)
        check_object(where, "it", found)
        return {name: code for name, code in found.items() if isinstance(code, str)}

    # ---------------------------------------------------------------------------------- sending

    def send(self, folder: Path) -> None:
        """Copy what has changed; raise StoreFailed if that is not possible."""
        before = dict(self.known)
        present = {name: digest(folder / name) for name in names() if has_file(folder / name)}
        for name in [each for each in self.known if each in names() and each not in present]:
            self.place.delete(name)
            del self.known[name]
        for name in (each for each in names() if each in present and each != RESULT):
            self.send_file(folder, name, present[name])
        for name in self.folders:
            self.send_checkpoint(folder, name)
        if RESULT in present:
            self.send_file(folder, RESULT, present[RESULT])
        if self.known != before:
            self.place.write(INDEX, as_json(self.known))

    def send_file(self, folder: Path, name: str, code: str) -> None:
        if self.known.get(name) != code:
            self.place.put(name, folder / name)
            self.known[name] = code

    def send_checkpoint(self, folder: Path, name: str) -> None:
        manifest, packed = folder / name / checkpoints.MANIFEST, f"{name}.zip"
        if not has_folder(folder / name) or self.known.get(packed) == (code := digest(manifest)):
            return
        file = beside(folder, packed)
        try:
            pack(folder / name, file)
            self.place.put(packed, file)
        finally:
            file.unlink(missing_ok=True)
        self.known[packed] = code

    def try_to_send(self, folder: Path) -> bool:
        """Copy what has changed and return whether all is there. A store that fails is left for a while."""
        started = time.monotonic()
        if started < self.not_before:
            return False
        try:
            self.send(folder)
        except StoreFailed as error:
            self.not_before = time.monotonic() + REST * (time.monotonic() - started)
            if not self.failed:
                log.warning("%s. The run goes on, and is copied there later", error)
            self.failed = True
            return False
        if self.failed:
            log.warning("%s has a copy of the run again", self.place)
        self.failed = False
        return True

    def send_at_the_end(self, folder: Path) -> None:
        for attempt in range(ATTEMPTS):
            self.not_before = 0.0
            if attempt:
                time.sleep(PAUSE)
            if self.try_to_send(folder):
                return
        log.warning(
            "%s does not have all of the run in %s, which is whole: the same command copies the rest",
            self.place,
            folder,
        )

    @contextmanager
    def sending(self, folder: Path) -> Iterator[None]:
        """At the end of this, copy what is not there yet."""
        try:
            yield
        except StoreFailed:
            raise
        except BaseException:
            self.try_to_send(folder)
            raise
        self.send_at_the_end(folder)

    # -------------------------------------------------------------------------------- receiving

    def bring_back(self, folder: Path, config: RunConfig) -> bool:
        """Fetch a run that this folder does not have; return whether it is finished and stays as it is.

        Without a checkpoint in the store, a run that is not finished starts from its beginning: it gives the
        same result.
        """
        there = self.config()
        if there is None:
            return False
        refuse_changed(f"{self.place} holds another run: in config.json", there, config)
        if any(checkpoints.survey(folder, "last")):
            return False
        is_done = RESULT in self.known and not differences(there, config, ignore=OWN)
        if "last.zip" in self.known or is_done:
            make_folder(folder)
            with claim(folder):
                fetch_run(self.place, self.known, folder, ("best", "last"))
        else:
            log.warning("%s has no checkpoint of the run, which starts from its beginning", self.place)
        return "last.zip" not in self.known and is_done and read_result(folder) is not None

    def config(self) -> RunConfig | None:
        where, content = f"{self.place}/config.json", self.place.read("config.json")
        return None if content is None else config_from(where, parse_json(where, content))

    def delete(self) -> None:
        for name in [*names(), "best.zip", "last.zip", INDEX]:
            self.place.delete(name)
        self.known = {}


def stored_run(settings: LoopConfig) -> StoredRun | None:
    """Return the copy of a run, if its settings have a store."""
    return StoredRun(settings.store, settings.store_checkpoints) if settings.store else None


def within(config: RunConfig, name: str) -> RunConfig:
    """Return the settings of one of several runs, which is stored under its name."""
    return (
        override(config, {"store": f"{config.loop.store.rstrip('/')}/{name}"})
        if config.loop.store
        else config
    )


# ---------------------------------------------------------------------------------- checkpoints


def pack(folder: Path, file: Path) -> None:
    """Write a checkpoint as one file, its manifest last."""
    found = sorted(folder.iterdir(), key=lambda path: (path.name == checkpoints.MANIFEST, path.name))
    with room_for(file), zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in found:
            archive.write(path, path.name)


def unpack(file: Path, folder: Path, name: str, where: str) -> None:
    """Make a checkpoint of a run from such a file; only files that Linnet writes are taken from it."""
    new = checkpoints.stage(folder, name)
    try:
        with zipfile.ZipFile(file) as archive:
            check_entries(archive, file, where)
            for entry in archive.infolist():
                with archive.open(entry) as source, room_for(new), open(new / entry.filename, "xb") as made:
                    shutil.copyfileobj(source, made)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        check(False, where, f"it is not an archive of a checkpoint ({error})")
    checkpoints.settle(folder, name)


def check_entries(archive: zipfile.ZipFile, file: Path, where: str) -> None:
    entries = archive.infolist()
    for entry in entries:
        known = entry.filename == checkpoints.MANIFEST or checkpoints.FILES.fullmatch(entry.filename)
        check(bool(known), where, f"it has {entry.filename!r}, which is not a file of a checkpoint")
        check(entry.compress_type == zipfile.ZIP_STORED, where, f"{entry.filename!r} is compressed in it")
    check(len({entry.filename for entry in entries}) == len(entries), where, "it has two files of one name")
    fits = sum(entry.file_size for entry in entries) <= file.stat().st_size
    check(fits, where, "it unpacks to more than it has")


# ------------------------------------------------------------------------------------- reading


def fetch_run(place: Place, known: Mapping[str, str], folder: Path, zips: Sequence[str]) -> None:
    """Copy a run from a store into a folder.

    A run that is being copied there has its records first and then its checkpoints. So they are read in the
    other order: a checkpoint never has rows that were not read. It becomes one of the folder last of all.
    """
    files = {name: beside(folder, f"{name}.zip") for name in reversed(zips) if f"{name}.zip" in known}
    try:
        with room_for(folder):
            found = [name for name, file in files.items() if place.get(f"{name}.zip", file)]
        for name in reversed(names()):
            if name in known and (content := place.read(name, LARGE)) is not None:
                write_atomically(folder / name, content)
        for name in reversed(found):
            unpack(files[name], folder, name, f"{place}/{name}.zip")
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def beside(folder: Path, name: str) -> Path:
    """Return the name of a file that is not whole yet; one that a killed process left is known by it."""
    return folder / f".{name}.{os.getpid()}.{threading.get_ident()}"


def fetch(url: str, *zips: str) -> Path:
    """Return a folder with a run from a store, which exists as long as this process.

    zips   the checkpoints that are needed: best, last
    """
    stored = StoredRun(url)
    if not stored.known:
        raise FileNotFoundError(f"{stored.place} is not a run: it has no {INDEX}")
    folder = own_folder() / last_part(url)
    folder.mkdir()
    fetch_run(stored.place, stored.known, folder, zips)
    return folder


def last_part(url: str) -> str:
    """Return the name of a run in a store."""
    return re.split("/+", url.rstrip("/"))[-1]


def own_folder() -> Path:
    """Return a new folder that is removed at the end of this process."""
    folder = Path(tempfile.mkdtemp(prefix="linnet-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def fetch_records(url: str) -> Path:
    """Return a folder with the records of a run in a store, or of all runs in a folder there; no weights."""
    folder = own_folder() / last_part(url)
    fetch_below(url, folder, LEVELS)
    return folder


def fetch_below(url: str, folder: Path, levels: int) -> None:
    stored = StoredRun(url)
    folder.mkdir()
    if stored.known:
        fetch_run(stored.place, stored.known, folder, ())
        return
    for name in stored.place.folders() if levels else ():
        fetch_below(f"{url.rstrip('/')}/{name}", folder / name, levels - 1)


def send_files(url: str, files: Iterable[Path]) -> None:
    """Copy files that belong to several runs, such as the page of a comparison."""
    place = Place(url)
    for file in files:
        if file.is_file():
            place.put(file.name, file)
