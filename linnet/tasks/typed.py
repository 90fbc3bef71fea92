"""How a text that a user types becomes the tokens of a model, and what the outputs of the model mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from linnet.data.vocabulary import Vocabulary


class TypedText(NamedTuple):
    """What a page needs in which a user types and a model reads one token at a time."""

    vocabulary: Vocabulary
    # Finds the words, if they are not those of `vocabulary.encode`.
    pattern: re.Pattern[str] | None = None
    # What is replaced before, in this order; {} in the replacement is what was found.
    rewrites: Sequence[tuple[re.Pattern[str], str]] = ()
    # The outputs; None: the tokens of the vocabulary.
    labels: tuple[str, ...] | None = None
    # How often each token occurs in the training text, if that is known.
    counts: Sequence[int] | None = None
    # A text to begin with.
    example: str = ""
    # Further texts, each read from the start, among which the page searches for similar states.
    passages: Sequence[str] = ()
    # Options of `linnet train` that make a model read one token at a time, if not every model does.
    options: str = ""


# The number of tokens, about, of all passages together.
PASSAGE_TOKENS = 1000


def first_texts(texts: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return texts, given as words, until they have enough tokens: the example and the passages of a page."""
    found, tokens = [], 0
    for words in texts:
        if tokens > PASSAGE_TOKENS:
            break
        found.append(" ".join(words))
        tokens += len(words)
    return tuple(found)
