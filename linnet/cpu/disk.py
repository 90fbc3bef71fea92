"""The kernel cache on disk: files of machine code that no other user can have written.

A file is MAGIC, the digest of the key it was made for, a seal, and the code. The seal is a digest of the
key's digest and the code together, so a file that was damaged, or renamed to stand for another kernel, is
not used. A digest proves nothing about who wrote the file: any user who can write to the folder could run
code in this process. So the folder and its files must belong to this user, or to root, and nobody else may
write to them.

The folder is opened once and its files are opened relative to it. The permissions of its parents therefore do
not matter: a folder with which another user replaces it does not belong to this user.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from functools import cache
from pathlib import Path

from linnet.base.files import write_atomically

log = logging.getLogger("linnet")
# Changes with the layout of a file.
MAGIC = b"linnet kernel 2\n"
DIGEST = 32
# Windows has neither owners nor modes like these; there the folder of a user is private by default.
CHECKED = os.name == "posix"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Unsafe(Exception):  # noqa: N818, it is a reason more than an error
    """Why a folder or a file of the cache must not be used."""


def sealed(key: bytes, code: bytes) -> bytes:
    return MAGIC + key + hashlib.sha256(key + code).digest() + code


def unsealed(data: bytes, key: bytes) -> bytes | None:
    """Return the code if `data` is complete and was written for `key`, else None."""
    code = data[len(MAGIC) + 2 * DIGEST :]
    return code if data == sealed(key, code) else None


def read_sealed(folder: Path, name: str, key: bytes) -> bytes | None:
    """Return the cached code for `key`; None if there is none that may be used."""
    try:
        return unsealed(read_file(folder, name), key)
    except Unsafe as reason:
        warn_once(str(reason))
    except OSError:
        pass  # not there yet, or not readable: `write_sealed` says so if it cannot be written either
    return None


def write_sealed(folder: Path, name: str, key: bytes, code: bytes) -> None:
    """Write atomically, so that no process reads half a file. If the cache cannot be written, only log it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder)
        write_atomically(folder / name, sealed(key, code), mode=0o600)
    except Unsafe as reason:
        warn_once(str(reason))
    except OSError as error:
        log.info("kernels are not kept in %s: %s", folder, error)


@cache
def warn_once(reason: str) -> None:
    log.warning("%s", reason)


def read_file(folder: Path, name: str) -> bytes:
    if not CHECKED:
        return (folder / name).read_bytes()
    opened = open_folder(folder)
    try:
        # O_NONBLOCK: opening a pipe must not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, dir_fd=opened), "rb") as file:
            check_file(folder / name, os.fstat(file.fileno()))
            return file.read()
    finally:
        os.close(opened)


def open_folder(folder: Path) -> int:
    """Return a descriptor of the folder, which was checked through it, so nobody can replace it any more."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    danger = danger_of(os.fstat(opened))
    if danger is None:
        return opened
    os.close(opened)
    raise Unsafe(
        f"the kernel cache {folder} is not used, since it {danger}: kernels are compiled in every process. "
        f"If its files are yours, run `chmod -R go-w {folder}`; otherwise set LINNET_CACHE to another folder"
    )


def check_folder(folder: Path) -> None:
    if CHECKED:
        os.close(open_folder(folder))


def check_file(path: Path, status: os.stat_result) -> None:
    danger = "is not a regular file" if not stat.S_ISREG(status.st_mode) else danger_of(status)
    if danger is not None:
        raise Unsafe(f"the kernel {path} is not used, since it {danger}: it is compiled again and replaced")


def danger_of(status: os.stat_result) -> str | None:
    """Why users other than this one and root could have written a file with this status, or None."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to user {status.st_uid} and not to user {os.geteuid()}, who runs this process"
    if status.st_mode & OTHERS_WRITE:
        return f"can be written by other users (its mode is {stat.filemode(status.st_mode)})"
    return None
