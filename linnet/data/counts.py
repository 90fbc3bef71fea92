"""Pairs of adjacent words that occur in several texts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linnet.data.errors import DataError
from linnet.data.text import parse_json

LEAST_TEXTS = 2
"""Pairs that occur in fewer texts are not counted."""
MOST_PAIRS = 500_000
PAIRS = "pairs"


def frequent_pairs(texts: Iterable[np.ndarray], words: int, special: int) -> np.ndarray:
    """Return the pairs (a, b) that occur in several texts as sorted numbers a * words + b.

    texts     the ids of the words of each text
    words     the size of the vocabulary
    special   the number of words at its beginning that do not count, such as padding and unknown words
    """
    found = [np.zeros(0, np.int64), *(np.unique(pairs_of(text, words, special)) for text in texts)]
    pairs, counts = np.unique(np.concatenate(found), return_counts=True)
    pairs, counts = pairs[counts >= LEAST_TEXTS], counts[counts >= LEAST_TEXTS]
    # A stable order: of equally frequent pairs, those of the more frequent words.
    return np.sort(pairs[np.argsort(-counts, kind="stable")[:MOST_PAIRS]])


def pairs_of(text: np.ndarray, words: int, special: int) -> np.ndarray:
    first, second = text[:-1], text[1:]
    return (first * words + second)[(first >= special) & (second >= special)]


def parse_pair_count(where: str, content: bytes) -> int:
    """Return the number of pairs that a run has written."""
    found = parse_json(where, content)
    count = found.get(PAIRS) if isinstance(found, dict) else None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_PAIRS:
        raise DataError(f"{where} must have the number of counted pairs, 0 to {MOST_PAIRS:,}; got {found!r}")
    return count
