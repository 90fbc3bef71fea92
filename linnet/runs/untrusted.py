"""Reading files of a run directory that may be damaged or come from an untrusted source.

A run directory may be copied, mounted, or unpacked from an archive. So no link in it is followed, no pipe is
waited for, and nothing is used before it is checked: each name must be a regular file (or a folder) of a
bounded size, and its content must have the types that Linnet writes. The directory itself may be reached
through a symbolic link; nothing inside it may be one.

Every error is a `Damaged` that names the file. A seal detects damage, not forgery: anyone who can write a run
can also seal it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from linnet.runs.errors import Damaged, missing

SMALL = 2**24
"""The most bytes of a file of settings or figures."""
LARGE = 2**30
"""The most bytes of metrics and vocabularies."""
DEEPEST = 32
"""The most levels of a JSON value; what Linnet writes has about five."""
SEAL = "seal"
LARGEST_INTEGER = 2**63

KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Follow no link, wait for no pipe; where a system has no such flag, the look before opening must do.
CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
FLAGS = {
    "rb": os.O_RDONLY,
    "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
}
# All control characters but newline and tab; characters that reverse the direction of text, which can make a
# line look like another; and surrogates, which no file can contain.
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# ------------------------------------------------------------------------------------ on the disk


def has_file(path: Path) -> bool:
    """Whether a regular file is there; anything else of that name is refused."""
    return has(path, stat.S_IFREG)


def has_folder(path: Path) -> bool:
    """Whether a folder is there; anything else of that name is refused."""
    return has(path, stat.S_IFDIR)


def has(path: Path, wanted: int) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    refuse_kind(path, mode, wanted)
    return True


def refuse_kind(path: Path, mode: int, wanted: int) -> None:
    found = stat.S_IFMT(mode)
    if found != wanted:
        raise Damaged(
            f"{path} is {KINDS.get(found, 'something else')}, and a run has {KINDS[wanted]} of that name; "
            "remove it, or take another run directory"
        )


def open_file(path: Path, mode: str) -> IO[bytes]:
    """Open a file if it is a regular file."""
    has_file(path)
    handle = os.open(path, FLAGS[mode] | CAREFULLY, 0o666)
    try:
        # It may have been replaced after the check.
        refuse_kind(path, os.fstat(handle).st_mode, stat.S_IFREG)
        return os.fdopen(handle, mode)
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: Path, most: int = SMALL) -> bytes | None:
    """Return the content; None if there is no such file."""
    if not has_file(path):
        return None
    with open_file(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check(size <= most, path, f"it has {size:,} bytes, and such a file has at most {most:,}")
        return file.read()


def digest(path: Path, length: int = -1) -> str:
    """The SHA-256 of a file, or of its first `length` bytes."""
    made = hashlib.sha256()
    with open_file(path, "rb") as file:
        while piece := file.read(2**20 if length < 0 else min(2**20, length)):
            made.update(piece)
            length -= len(piece) if length > 0 else 0
    return made.hexdigest()


# ------------------------------------------------------------------------------------------ JSON


def parse_json(where: object, content: bytes) -> Any:
    try:
        value = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: it is not JSON in UTF-8 ({error})") from None
    check(not deeper_than(DEEPEST, value), where, f"it is nested more than {DEEPEST} deep")
    return value


def deeper_than(most: int, value: Any) -> bool:
    """Return whether a value is nested deeper than `most`; recursion would fail on such a value."""
    level = [value]
    while level and most:
        level, most = [inner for each in level for inner in children(each)], most - 1
    return bool(level)


def children(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def read_json(path: Path) -> Any:
    """Return the value in a small file; None if there is no such file."""
    content = read_bytes(path)
    return None if content is None else parse_json(path, content)


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value with a digest of itself, which `unsealed` checks."""
    return {**value, SEAL: seal_of(value)}


def unsealed(path: Path, value: Any) -> dict[str, Any]:
    """Return a sealed value if it is unchanged."""
    check(isinstance(value, dict), path, "it is not an object")
    check(SEAL in value, path, "it has no seal")
    content = {name: each for name, each in value.items() if name != SEAL}
    check(value[SEAL] == seal_of(content), path, "its seal is that of another content")
    return content


def seal_of(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------------------------ types


def check(right: bool, path: object, reason: str) -> None:
    if not right:
        raise Damaged(f"{path} is damaged: {reason}")


def check_count(path: object, name: str, value: Any, least: int = 0) -> None:
    right = isinstance(value, int) and not isinstance(value, bool) and least <= value < LARGEST_INTEGER
    check(right, path, f"{name} is {shortened(value)}, and not a whole number of at least {least}")


def check_number(path: object, name: str, value: Any) -> None:
    """A number that fits a float. A gradient of 16 bits may be infinite, a loss may not."""
    right = isinstance(value, float) or (isinstance(value, int) and abs(value) < LARGEST_INTEGER)
    right = right and not isinstance(value, bool)
    check(right, path, f"{name} is {shortened(value)}, and not a number")


def check_finite(path: object, name: str, value: Any) -> None:
    check_number(path, name, value)
    check(math.isfinite(value), path, f"{name} is {value}, and not finite")


def check_object(path: object, name: str, value: Any, needed: Collection[str] = ()) -> None:
    check(isinstance(value, dict), path, f"{name} is {shortened(value)}, and not an object")
    for each in needed:
        check(each in value, path, f"{name} has no {each!r}")


def check_figures(path: object, name: str, value: Any) -> None:
    """What an evaluation has found."""
    check_object(path, name, value, ("loss",))
    for each, number in value.items():
        check_number(path, repr(each), number)


def check_text(path: object, name: str, value: Any) -> None:
    check(isinstance(value, str), path, f"{name} is {shortened(value)}, and not a string")


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ------------------------------------------------------------------------------------------- text


def harmless(text: object) -> str:
    """Return the text with control characters as escapes: \\x1b, \\u202e."""
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], str(text))


# ---------------------------------------------------------------------------------------- tensors


def read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise missing("a checkpoint", "safetensors") from None
    check(has_file(path), path, "it is missing")
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{path} is damaged: it is not a safetensors file ({error})") from None


def read_torch(path: Path) -> Any:
    """Return what torch.save wrote: tensors and plain values, no code."""
    import torch

    check(has_file(path), path, "it is missing")
    refuse_packed(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # For a file that torch did not write, its reader can raise any kind of error.
        text = str(error).splitlines() or [type(error).__name__]
        raise Damaged(f"{path} is damaged: torch cannot read it ({text[0]})") from None


def refuse_packed(path: Path) -> None:
    """Raise if the file is compressed: torch.save does not compress, so torch did not write it."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Damaged(f"{path} is damaged: it is not a torch archive ({error})") from None
    stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
    fits = sum(entry.file_size for entry in entries) <= path.stat().st_size
    check(stored and fits, path, "it unpacks to more than it has")
