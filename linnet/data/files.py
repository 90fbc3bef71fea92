"""Find the files of a corpus: in the user's folder, in the cache, or at their public address.

A file may be plain or compressed with gzip or xz. The checksum is that of the unpacked contents, so a copy
from any source is accepted, and a truncated or edited one is not.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from linnet.base.files import cache_folder, write_atomically
from linnet.base.project import advice
from linnet.data.errors import DataError, MissingDataError

log = logging.getLogger("linnet")

UNPACK: dict[str, Callable[[Path], Any]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile}
# In bytes. A small archive can unpack to any size, so unpacking stops at this size, before the checksum
# can be compared. The largest corpora here, text8 and enwik8, have 100 million bytes.
LARGEST = 2**28
LARGEST_OF_YOURS = 2**32
LARGEST_ARCHIVE = 2**33
ADVICE = "Give its folder with --data-dir (data_dir=) or LINNET_DATA"


@dataclass(frozen=True)
class File:
    """A file of a corpus, with its published name."""

    name: str
    checksum: str | None = None  # of the contents: "sha256:..." or "md5:..."; None if none is published
    url: str | None = None  # the address of the file itself, or of an archive
    member: str | None = None  # its path in the archive at `url`
    also: tuple[str, ...] = ()  # other names of the file
    instead: str = ", or read it as a text of your own (corpus 'text')"  # what to do with a file that differs


@dataclass(frozen=True)
class Found:
    file: File
    path: Path
    contents: bytes


def read_any(
    choices: Sequence[File],
    folders: Sequence[str],
    data_dir: str | Path | None = None,
    *,
    examine: Callable[[str, bytes], object] | None = None,
) -> Found:
    """Return the first of `choices` that is found, checked; `examine` may raise a better error first.

    Each place is searched for the files themselves and for one of `folders` that contains them. If no place
    has any of them, the first with a public address is downloaded into the cache.
    """
    searched = places(data_dir)
    found = find(choices, folders, searched)
    if found is None:
        wanted = next((file for file in choices if file.url), None)
        if wanted is None:
            raise MissingDataError(f"{missing(choices[0], searched)} There is no public download of it.")
        found = wanted, download(wanted, folders, searched)
    file, path = found
    contents = unpacked(path, LARGEST)
    if examine is not None:
        examine(str(path), contents)
    check(str(path), contents, file.checksum, file.instead)
    return Found(file, path, contents)


# ---------------------------------------------------------------------------------------- places


def places(data_dir: str | Path | None = None) -> list[Path]:
    """The folders that are searched, in order."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise MissingDataError(f"data_dir is {str(data_dir)!r}, which is not a folder")
    named = [data_dir, os.environ.get("LINNET_DATA"), downloads()]
    return [Path(place) for place in named if place]


def downloads() -> Path:
    """Return the folder of the cache for downloaded files."""
    return cache_folder() / "data"


def find(
    choices: Sequence[File], folders: Sequence[str], searched: Sequence[Path]
) -> tuple[File, Path] | None:
    for place in searched:
        for folder in (*folders, "."):
            for file in choices:
                for name in (file.name, *file.also):
                    for ending in ("", *UNPACK):
                        path = place / folder / f"{name}{ending}"
                        if path.is_file():
                            return file, path
    return None


def missing(file: File, searched: Sequence[Path]) -> str:
    names = " or ".join((file.name, *file.also))
    looked = ", ".join(f"{place}{'' if place.is_dir() else ' (no such folder)'}" for place in searched)
    contents = f" Its contents have {file.checksum}." if file.checksum else ""
    return f"{names} (plain, .gz or .xz) was not found in {looked or 'any folder'}.{contents} {ADVICE}."


# -------------------------------------------------------------------------------------- contents


def unpacked(path: Path, most: int) -> bytes:
    """Return the unpacked contents of a file."""
    with opened(path) as stream:
        return bounded(str(path), stream, most)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading its unpacked contents."""
    unpack: Callable[[Path], Any] = UNPACK.get(path.suffix, partial(open, mode="rb"))
    try:
        with unpack(path) as stream:
            yield stream
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} cannot be unpacked as {path.suffix}: {error}. It may be incomplete; download it again"
        ) from error


def bounded(where: str, stream: IO[bytes], most: int) -> bytes:
    """Return the rest of a stream; raise an error if it has more than `most` bytes."""
    contents = bytearray()
    while piece := stream.read(2**20):
        contents += piece
        if len(contents) > most:
            raise DataError(f"{where} unpacks to more than {most:,} bytes, more than any file of this kind")
    return bytes(contents)


def check(where: str, contents: bytes, checksum: str | None, instead: str = File.instead) -> None:
    """Raise unless the contents are the published ones."""
    if checksum is None:
        return
    algorithm, _, expected = checksum.partition(":")
    found = hashlib.new(algorithm, contents, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{where} is not the published file: its contents ({len(contents):,} bytes) should have "
            f"{algorithm} {expected} and have {found}. Download it again{instead}"
        )


# -------------------------------------------------------------------------------------- download


def download(file: File, folders: Sequence[str], searched: Sequence[Path]) -> Path:
    """Download a file into the cache; it is checked before it gets its name there."""
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDataError(f"{missing(file, searched)} To download it: {advice('lm')}.") from error
    assert file.url is not None
    path = downloads() / folders[0] / file.name
    log.info("downloading %s", file.url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            fetched = Path(folder) / PurePosixPath(file.url).name
            pooch.HTTPDownloader(timeout=30, chunk_size=2**16)(file.url, str(fetched), None)
            contents = member(fetched, file.member) if file.member else unpacked(fetched, LARGEST)
        check(file.url, contents, file.checksum, file.instead)
        write_atomically(path, contents)
    except OSError as error:  # network errors are OSErrors
        # The connection of a request that was refused is left open.
        if getattr(error, "response", None) is not None:
            error.response.close()  # type: ignore[attr-defined]
        raise MissingDataError(
            f"{missing(file, searched)} The download from {file.url} failed: {error}"
        ) from error
    return path


def member(archive: Path, name: str) -> bytes:
    """Return the file of a zip or tar archive whose path ends with `name`."""
    try:
        if zipfile.is_zipfile(archive):
            return zip_member(archive, name)
        return tar_member(archive, name)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{archive.name} is not a complete archive: {error}; download it again") from error


def zip_member(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
        found = next((each for each in names if ends_like(each, name)), None)
        if found is None:
            raise lacking(names, name)
        with packed.open(found) as stream:
            return bounded(f"{archive.name}, {found},", stream, LARGEST)


def tar_member(archive: Path, name: str) -> bytes:
    """Read up to that file; nothing else is unpacked to memory or disk."""
    names, total = [], 0
    # Not with tarfile's own streams ("r|*"), which unpack a block to any size.
    with tarfile.open(archive) as packed:
        for entry in packed:
            if entry.isfile() and ends_like(entry.name, name):
                stream = packed.extractfile(entry)
                assert stream is not None  # it is a file
                return bounded(f"{archive.name}, {entry.name},", stream, LARGEST)
            names.append(entry.name)
            total += entry.size
            if total > LARGEST_ARCHIVE:
                raise DataError(
                    f"{archive.name} unpacks to more than {LARGEST_ARCHIVE:,} bytes, more than any corpus"
                )
    raise lacking(names, name)


def ends_like(path: str, name: str) -> bool:
    return f"/{path}".endswith(f"/{name}")


def lacking(names: Sequence[str], name: str) -> DataError:
    return DataError(f"the archive has no {name}; it has {', '.join(sorted(names)[:10])} ...")
