"""Text out of files: what is not text is refused by name, and a whole is cut into its parts."""

from __future__ import annotations

from pathlib import Path
from typing import AnyStr

from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import LARGEST_OF_YOURS, unpacked

UTF16 = (b"\xff\xfe", b"\xfe\xff")


def decode_utf8(where: str, contents: bytes) -> str:
    """The text of a file, with one kind of line end; the error names the first byte that is wrong."""
    if contents.startswith(UTF16):
        raise DataError(f"{where} is UTF-16 (its first bytes are its mark) and must be UTF-8; convert it")
    zero = contents.find(b"\0")
    if zero >= 0:
        raise DataError(
            f"{where} is a binary file: byte {zero:,} is 0, which no text has. Choose a text, "
            "or read it by bytes (level 'byte')"
        )
    try:
        text = contents.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A mark at the beginning is taken off before the rest is counted.
        offset = error.start + (3 if contents.startswith(b"\xef\xbb\xbf") else 0)
        raise DataError(
            f"{where} is not UTF-8: byte {offset:,} is 0x{contents[offset]:02x}. If it is in an "
            f"older encoding, convert it: iconv -f latin1 -t utf-8 {where}"
        ) from None
    return text.replace("\r\n", "\n")


def read_text(path: str | Path) -> str:
    """A user's own file, or all *.txt of a folder in the order of their paths."""
    return "".join(ended(decode_utf8(str(file), data)) for file, data in read_all(path))


def read_bytes(path: str | Path) -> bytes:
    """The same without a look at what the bytes mean."""
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
        raise MissingDataError(f"the folder {path} holds no *.txt; give a file, or a folder of *.txt")
    return files


def ended(text: str) -> str:
    """With the end of its last line, so that the next file begins a new one."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def cut_lines(where: str, text: AnyStr, first: float, second: float) -> tuple[AnyStr, AnyStr, AnyStr]:
    """Train, valid and test: three stretches of whole lines, cut at these shares of their number."""
    newline, nothing = (b"\n", b"") if isinstance(text, bytes) else ("\n", "")
    lines = text.split(newline)
    last = lines.pop()
    lines = [line + newline for line in lines] + [last] * bool(last)
    count = len(lines)
    if count < 3:
        raise DataError(
            f"{where} has {count} lines; to be cut into train, valid and test by whole lines "
            "it needs at least 3, and some hundreds to be of use"
        )
    # None of the three is empty.
    one = max(1, min(int(first * count), count - 2))
    two = max(one + 1, min(int(second * count), count - 1))
    return nothing.join(lines[:one]), nothing.join(lines[one:two]), nothing.join(lines[two:])


def cut_off(text: AnyStr, valid: int, test: int) -> tuple[AnyStr, AnyStr, AnyStr]:
    """Train, valid and test, where the last two have the lengths given."""
    one, two = len(text) - valid - test, len(text) - test
    return text[:one], text[one:two], text[two:]
