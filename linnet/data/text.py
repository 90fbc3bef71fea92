"""Read text files, with errors that name what is not text, and split a text into its parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, AnyStr

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import LARGEST_OF_YOURS, unpacked

UTF16 = (b"\xff\xfe", b"\xfe\xff")


def decode_utf8(where: str, contents: bytes) -> str:
    """Return the text of a file with unified line ends; an error names the first wrong byte."""
    if contents.startswith(UTF16):
        raise DataError(f"{where} is UTF-16 (it starts with a byte order mark) and must be UTF-8; convert it")
    zero = contents.find(b"\0")
    if zero >= 0:
        raise DataError(
            f"{where} is a binary file: byte {zero:,} is 0; expected text. Only language models read "
            "such files, as bytes (level 'byte')"
        )
    try:
        text = contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte order mark is removed before bytes are counted.
        offset = error.start + (3 if contents.startswith(b"\xef\xbb\xbf") else 0)
        line = contents.count(b"\n", 0, offset) + 1
        raise DataError(
            f"{where} is not UTF-8: byte {offset:,} is 0x{contents[offset]:02x}, in line {line:,}. "
            f"If it is in an older encoding, convert it: iconv -f latin1 -t utf-8 {where}"
        ) from None
    return text.replace("\r\n", "\n")


def parse_json(where: str, contents: str | bytes) -> Any:
    """Return the value of a JSON text that is not trusted."""
    try:
        return json.loads(contents, object_pairs_hook=without_twins)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON: {error}") from None


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; Python's own reader takes the last of two values with one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {twin!r} twice")
    return found


def read_text(path: str | Path) -> str:
    """Read the user's file, or all *.txt of a folder in the order of their paths."""
    return "".join(ended(decode_utf8(str(file), data)) for file, data in read_all(path))


def read_bytes(path: str | Path) -> bytes:
    """Read the same as bytes."""
    return b"".join(data for _, data in read_all(path))


def read_all(path: str | Path) -> list[tuple[Path, bytes]]:
    contents = [(file, unpacked(file, LARGEST_OF_YOURS)) for file in text_files(Path(path))]
    if not any(data.strip() for _, data in contents):
        raise DataError(f"{path} is empty; a language model needs some text")
    return contents


def text_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise MissingDataError(f"there is no file or folder {path}")
    files = sorted(file for file in path.rglob("*.txt") if file.is_file())
    if not files:
        raise MissingDataError(f"the folder {path} has no *.txt; give a file, or a folder of *.txt")
    return files


def ended(text: str) -> str:
    """End the last line, so that the next file starts a new line."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def cut_lines(where: str, text: AnyStr, first: float, second: float) -> tuple[AnyStr, AnyStr, AnyStr]:
    """Split into train, valid and test by lines, at these fractions of the number of lines."""
    newline, nothing = (b"\n", b"") if isinstance(text, bytes) else ("\n", "")
    lines = text.split(newline)
    last = lines.pop()
    lines = [line + newline for line in lines] + [last] * bool(last)
    count = len(lines)
    if count < 3:
        raise DataError(
            f"{where} has {count} lines; it needs at least 3 to be split into train, valid and test "
            "by lines, and some hundreds to be useful"
        )
    # Each of the three has at least one line.
    one = max(1, min(int(first * count), count - 2))
    two = max(one + 1, min(int(second * count), count - 1))
    return nothing.join(lines[:one]), nothing.join(lines[one:two]), nothing.join(lines[two:])


def cut_off(text: AnyStr, valid: int, test: int) -> tuple[AnyStr, AnyStr, AnyStr]:
    """Split into train, valid and test; the last two have the given lengths."""
    one, two = len(text) - valid - test, len(text) - test
    return text[:one], text[one:two], text[two:]
