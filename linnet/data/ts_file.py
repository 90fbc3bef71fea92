"""The .ts format of the UEA and UCR archives: labelled series with one or many channels.

    rows = read_ts("JapaneseVowels_TRAIN.ts")

A header of tags (@problemName, @classLabel, ...) ends with @data. Then each line is a series: its channels,
separated by colons, each a list of numbers separated by commas, and at last its class, or its number if the
header has @targetLabel. A missing value is ? or NaN. Lines that start with # or % are comments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from linnet.base.suggest import did_you_mean
from linnet.data.columnar import as_numbers, listed
from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import LARGEST_OF_YOURS, unpacked
from linnet.data.labelled_series import LabelledSeries, SeriesRows, channel_names, checked
from linnet.data.text import decode_utf8

TAGS = (
    *("problemname", "timestamps", "missing", "univariate", "dimension", "dimensions", "equallength"),
    *("serieslength", "classlabel", "targetlabel", "data"),
)


@dataclass
class Header:
    """What the tags of a file say."""

    channels: int = 0  # 0: as many as the first series has
    length: int = 0  # of each series; 0: they differ, or it is not said
    equal: bool = False
    classes: tuple[str, ...] = ()  # (): not said
    answers: str = ""  # class, value, or "" if the series have no answer
    notes: list[str] = field(default_factory=list)


def read_ts(path: str | Path) -> SeriesRows:
    """Read the series of a .ts file, which may be compressed with gzip or xz."""
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}")
    lines = decode_utf8(str(path), unpacked(path, LARGEST_OF_YOURS)).split("\n")
    header, start = read_header(str(path), lines)
    series: list[LabelledSeries] = []
    for number, line in enumerate(lines[start:], start + 1):
        text = line.strip()
        if text and text[0] not in "#%":
            series.append(read_line(f"{path}, line {number:,}", text, header, len(series)))
    if not series:
        raise DataError(f"{path} has no series after @data; expected one in each line")
    value = {"class": False, "value": True}.get(header.answers)
    return SeriesRows(tuple(series), tuple(channel_names(header.channels)), value=value)


def found_value(path: str | Path) -> bool:
    """Whether the series of a file have numbers and not classes; False if it cannot be read."""
    try:
        lines = decode_utf8(str(path), unpacked(Path(path), LARGEST_OF_YOURS)).split("\n")
        return read_header(str(path), lines)[0].answers == "value"
    except (DataError, OSError):
        return False


# -------------------------------------------------------------------------------------------- header


def read_header(path: str, lines: list[str]) -> tuple[Header, int]:
    """Return the header and the number of the line after @data."""
    header = Header()
    for number, line in enumerate(lines):
        text = line.strip()
        if not text or text[0] in "#%":
            continue
        where = f"{path}, line {number + 1:,}"
        if not text.startswith("@"):
            raise DataError(
                f"{where} has values before the line @data; expected tags such as @classLabel, then @data"
            )
        tag, *words = text[1:].split()
        if tag.lower() == "data":
            return header, number + 1
        read_tag(where, tag, words, header)
    raise DataError(f"{path} has no line @data; expected it between the tags and the series")


def read_tag(where: str, tag: str, words: list[str], header: Header) -> None:
    name = tag.lower()
    if name not in TAGS:
        near = did_you_mean(name, TAGS)
        if near:
            raise DataError(f"{where} has the tag @{tag}{near}")
        return
    read = READ_TAG.get(name)
    if read:
        read(where, tag, words, header)


def read_timestamps(where: str, tag: str, words: list[str], header: Header) -> None:
    if flag(where, tag, words):
        raise DataError(
            f"{where}: series with a time for each value (@{tag} true) are not read from .ts files; write a "
            "table with a row for each step, and name its column of times with --time"
        )


def read_univariate(where: str, tag: str, words: list[str], header: Header) -> None:
    if flag(where, tag, words):
        header.channels = 1


def read_dimensions(where: str, tag: str, words: list[str], header: Header) -> None:
    header.channels = whole_number(where, tag, words)


def read_length(where: str, tag: str, words: list[str], header: Header) -> None:
    header.length = whole_number(where, tag, words)


def read_equal(where: str, tag: str, words: list[str], header: Header) -> None:
    header.equal = flag(where, tag, words)


def read_classes(where: str, tag: str, words: list[str], header: Header) -> None:
    if not flag(where, tag, words[:1]):
        return
    header.answers, header.classes = "class", tuple(words[1:])
    if not header.classes:
        raise DataError(f"{where}: @{tag} true has no classes; expected their names after it")


def read_target(where: str, tag: str, words: list[str], header: Header) -> None:
    if flag(where, tag, words[:1]):
        header.answers = "value"


READ_TAG: dict[str, Callable[[str, str, list[str], Header], None]] = {
    "timestamps": read_timestamps,
    "univariate": read_univariate,
    "dimension": read_dimensions,
    "dimensions": read_dimensions,
    "serieslength": read_length,
    "equallength": read_equal,
    "classlabel": read_classes,
    "targetlabel": read_target,
}


def flag(where: str, tag: str, words: list[str]) -> bool:
    text = words[0].lower() if words else ""
    if text not in ("true", "false"):
        raise DataError(f"{where}: @{tag} is {' '.join(words)!r}; expected true or false")
    return text == "true"


def whole_number(where: str, tag: str, words: list[str]) -> int:
    if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
        raise DataError(f"{where}: @{tag} is {' '.join(words)!r}; expected a positive integer")
    return int(words[0])


# -------------------------------------------------------------------------------------------- series


def read_line(where: str, text: str, header: Header, number: int) -> LabelledSeries:
    if text.startswith("@"):
        raise DataError(f"{where} has the tag {text.split()[0]} after @data; tags come before it")
    channels = [each.strip() for each in text.split(":")]
    label = read_answer(where, channels.pop(), header) if header.answers else ""
    check_count(where, len(channels), header)
    values = [read_channel(where, each, index) for index, each in enumerate(channels)]
    check_lengths(where, [len(each) for each in values], header)
    return checked(LabelledSeries(str(number + 1), np.stack(values, 1), lambda step: where, label))


def read_answer(where: str, text: str, header: Header) -> str:
    what = "class" if header.answers == "class" else "number"
    if not text or (what == "class" and "," in text and text not in header.classes):
        got = "nothing" if not text else "a list of numbers"
        raise DataError(f"{where} ends with {got} after the last colon; expected the {what} of the series")
    if what == "class" and text not in header.classes:
        raise DataError(f"{where} has the class {text!r}; @classLabel has {listed(header.classes)}")
    return text


def check_count(where: str, found: int, header: Header) -> None:
    """Raise if a series has another number of channels than the header or the first series."""
    header.channels = header.channels or found
    if found != header.channels or not found:
        expected = f"expected {header.channels or 1}, as the header or the first series says"
        raise DataError(f"{where} has {found} channels, which are separated by colons; {expected}")


def read_channel(where: str, text: str, index: int) -> np.ndarray:
    if not text:
        raise DataError(f"{where}: channel {index + 1} is empty; expected numbers separated by commas")
    # Missing values are in many archives' files, and never a part of a number.
    fields = text.replace("?", "nan").split(",")
    return as_numbers(fields, lambda step: where, lambda step: f"value {step + 1:,} of channel {index + 1}")


def check_lengths(where: str, lengths: list[int], header: Header) -> None:
    if len(set(lengths)) > 1:
        short = next(number for number, length in enumerate(lengths) if length != lengths[0])
        raise DataError(
            f"{where}: channel {short + 1} has {lengths[short]:,} values and channel 1 has {lengths[0]:,}; "
            "all channels of a series have the same length. Write ? for a missing value"
        )
    if header.equal:
        header.length = header.length or lengths[0]
        if lengths[0] != header.length:
            raise DataError(
                f"{where} has {lengths[0]:,} steps, and with @equalLength true each series has "
                f"{header.length:,}; correct the line, or the header"
            )
