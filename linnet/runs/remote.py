"""A folder in a store, by a URL that fsspec knows: s3://bucket/runs, gs://, memory://, file:///mnt/runs.

A reader sees the whole file that was there before, or the whole new one. A store of objects writes an object
as a whole; where files are renamed (a disk, SFTP), a file is written under another name first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from linnet.base.suggest import no_such
from linnet.runs.errors import Stopped, missing
from linnet.runs.untrusted import SMALL, check

URL = re.compile(r"[a-z][a-z0-9+.-]+://")  # with one letter it is a drive of Windows
PASSWORD = re.compile(r"(://[^:@/]*):[^@/]*@")


ABSENT = (FileNotFoundError, NotADirectoryError)


class StoreFailed(Stopped):
    """A store cannot be read or written."""


def is_url(text: str | Path) -> bool:
    return bool(URL.match(str(text)))


def without_password(url: str) -> str:
    return PASSWORD.sub(r"\1:***@", url)


class Place:
    """A folder in a store; its files by their names."""

    def __init__(self, url: str):
        self.url = without_password(url.rstrip("/"))
        self.store, self.path = opened(url)
        self.renames = moves_files(self.store)

    def __str__(self) -> str:
        return self.url

    def at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    def read(self, name: str, most: int = SMALL) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with self.errors("read"), suppress(*ABSENT):
            content = self.store.cat_file(self.at(name))
            check(
                len(content) <= most, f"{self}/{name}", f"it has {len(content):,} bytes, more than {most:,}"
            )
            return content
        return None

    def get(self, name: str, file: Path) -> bool:
        """Copy a file of the store; return False if there is none."""
        with self.errors("read"), suppress(*ABSENT):
            self.store.get_file(self.at(name), str(file))
            return True
        file.unlink(missing_ok=True)
        return False

    def write(self, name: str, content: bytes) -> None:
        """Write a file such that a reader has the old content or the new."""
        with self.errors("written"), self.whole(name) as path:
            self.store.pipe_file(path, content)

    def put(self, name: str, file: Path) -> None:
        """Write a file with the content of a local one."""
        with self.errors("written"), self.whole(name) as path:
            self.store.put_file(str(file), path)

    @contextmanager
    def whole(self, name: str) -> Iterator[str]:
        """Yield the path to which a file is written before it has its name."""
        final = self.at(name)
        if not self.renames:
            yield final
            return
        self.store.makedirs(self.path, exist_ok=True)
        temporary = self.at(f".{name}.{uuid.uuid4().hex}")
        try:
            yield temporary
            self.store.mv(temporary, final)
        except BaseException:
            with suppress(FileNotFoundError):
                self.store.rm_file(temporary)
            raise

    def delete(self, name: str) -> None:
        with self.errors("written"), suppress(*ABSENT):
            self.store.rm_file(self.at(name))

    def folders(self) -> list[str]:
        """Return the names of the folders in this one."""
        with self.errors("read"), suppress(*ABSENT):
            self.store.invalidate_cache()
            found = self.store.ls(self.path, detail=True)
            return sorted(
                each["name"].rstrip("/").split("/")[-1] for each in found if each["type"] == "directory"
            )
        return []

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Raise StoreFailed for whatever a driver raises."""
        try:
            yield
        except Stopped:
            raise
        except Exception as error:
            # Each driver has errors of its own: of its client, of the network, of the credentials.
            raise StoreFailed(f"{self} cannot be {what}: {shown(error)}") from error


def shown(error: BaseException) -> str:
    """Return the class of an error and its first line."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    try:
        from fsspec import available_protocols
        from fsspec.core import url_to_fs
    except ImportError:
        raise missing(f"a store such as {without_password(url)}", extra="store") from None
    protocol = url.partition("://")[0]
    if protocol not in available_protocols():
        raise ValueError(
            f"{without_password(url)} has {no_such('protocol of fsspec', protocol, available_protocols())}"
        )
    try:
        return url_to_fs(url)
    except ImportError as error:
        raise ImportError(f"{without_password(url)} needs a driver that is not installed: {error}") from None
    except Exception as error:
        # Some drivers connect, or look for credentials, as soon as they are made.
        raise StoreFailed(f"{without_password(url)} cannot be opened: {shown(error)}") from error


def moves_files(store: Any) -> bool:
    """Whether a store renames files. The default of fsspec copies them, and is that of stores of objects."""
    from fsspec.spec import AbstractFileSystem

    return type(store).mv is not AbstractFileSystem.mv
