"""Small files of verses of the King James Bible, which the quick form of the atlas reads."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from linnet.base.files import write_atomically
from linnet.data.conll import stripped
from linnet.data.kjv import labelled_verses, read_kjv

LINES, VERSES = 1600, 1200
USUAL = 40
"""Verses with a rarer tag are left out."""
Item = TypeVar("Item")


def text_sample(folder: Path) -> Mapping[str, Any]:
    """Write verses as a text, and return the settings with which a language model reads it."""
    train, *_ = read_kjv()
    text = "".join(f"{verse}\n" for verse in spread(train.splitlines(), LINES))
    return {"corpus": "text", "path": written(folder / "verses.txt", text)}


def verse_sample(folder: Path) -> Mapping[str, Any]:
    """Write as many verses of the Old Testament as of the New."""
    train, *_ = labelled_verses("testament")
    by_label = [[row for row in train if row[1] == label] for label in ("Old", "New")]
    rows = [row for of_label in by_label for row in spread(of_label, VERSES // 2)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("text", "label"), *rows])
    return {"set": "own", "path": written(folder / "verses.csv", text.getvalue())}


def tagged_sample(folder: Path) -> Mapping[str, Any]:
    """Write verses without capitals and punctuation, with the tags that restore both, in CoNLL columns."""
    train, *_ = read_kjv()
    found = [stripped(verse) for verse in spread(train.splitlines(), VERSES)]
    counts = Counter(tag for each in found for tag in each.tags)
    # The last verses are the validation and the test set: training must have each of their tags.
    found = [each for each in found if all(counts[tag] >= USUAL for tag in each.tags)]
    lines = [
        "".join(f"{word} {tag}\n" for word, tag in zip(each.words, each.tags, strict=True)) for each in found
    ]
    return {"set": "own", "path": written(folder / "verses.conll", "\n".join(lines))}


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return this many items, evenly spaced."""
    return [items[number * len(items) // count] for number in range(count)]


def written(path: Path, text: str) -> str:
    """Write a file unless it is there, and return its path."""
    if not path.exists():
        write_atomically(path, text.encode())
    return str(path)
