"""Texts as an encoder of `transformers` reads them: pieces of words, in windows that fit the encoder.

    pieces = Pieces(tokenizer, limit=512)
    first, pair = pieces.read([(["A", "bird"],), (["A", "bird"], ["It", "sings"])])
    first.windows[0].pieces, first.words[1]      # the ids of a window; where the second word is read

A text, or a pair of texts, with more pieces than the limit is cut into windows that overlap by a quarter.
Each word is read in the window that has all of it and where the nearer end is farthest. A word without
pieces, such as an empty one, is in no window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from linnet.data.errors import DataError

Key = tuple[tuple[str, ...], ...]
"""The words of a text, or of both texts of a pair."""


class Window(NamedTuple):
    """What an encoder reads at once."""

    pieces: list[int]
    kinds: list[int]  # of each piece: 0 in the first text of a pair, 1 in the second


class Span(NamedTuple):
    """Where a word is read: some pieces of a window."""

    window: int
    first: int
    end: int


class Reading(NamedTuple):
    """The windows of a text, and the span of each word; None: it has no pieces."""

    windows: list[Window]
    words: list[Span | None]


@dataclass(frozen=True)
class Pieces:
    """tokenizer   a `tokenizers.Tokenizer`
    limit       the most pieces of a window, with the special ones at its ends
    """

    tokenizer: Any
    limit: int

    def read(self, keys: Sequence[Key]) -> list[Reading]:
        """Return the windows of each text."""
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.limit, stride=self.limit // 4, strategy="longest_first")
        texts = [tuple(map(list, key)) if len(key) > 1 else list(key[0]) for key in keys]
        found = self.tokenizer.encode_batch(texts, is_pretokenized=True)
        return [reading(key, [each, *each.overflowing]) for key, each in zip(keys, found, strict=True)]


def reading(key: Key, encodings: Sequence[Any]) -> Reading:
    best: dict[tuple[int, int], tuple[tuple[int, int], Span]] = {}
    for number, encoding in enumerate(encodings):
        for word, first, end in spans(encoding):
            # A window may end within a word.
            rank = end - first, min(first, len(encoding.ids) - end)
            if word not in best or rank > best[word][0]:
                best[word] = rank, Span(number, first, end)
    words = [(text, place) for text, each in enumerate(key) for place in range(len(each))]
    windows = [Window(each.ids, each.type_ids) for each in encodings]
    return Reading(windows, [best[word][1] if word in best else None for word in words])


def spans(encoding: Any) -> list[tuple[tuple[int, int], int, int]]:
    """Return the words of a window, as (text, number), with their first piece and the one after the last."""
    found: list[tuple[tuple[int, int], int, int]] = []
    for place, word in enumerate(zip(encoding.sequence_ids, encoding.word_ids, strict=True)):
        if word[0] is None or word[1] is None:
            continue
        if found and found[-1][0] == word and found[-1][2] == place:
            found[-1] = word, found[-1][1], place + 1
        else:
            found.append((word, place, place + 1))
    return found


def parse_tokenizer(where: str, text: str) -> Any:
    """Return the tokenizer of a tokenizer.json."""
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises nothing more special
        raise DataError(f"{where} has no tokenizer of the package tokenizers: {error}") from None
