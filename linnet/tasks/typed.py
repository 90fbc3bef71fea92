"""How a text that a user types becomes the tokens of a model, and what the outputs of the model mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from linnet.data.vocabulary import Vocabulary


class TypedText(NamedTuple):
    """What a page needs in which a user types and a model reads one token at a time."""

    vocabulary: Vocabulary
    # Finds the words, if they are not those of `vocabulary.encode`.
    pattern: re.Pattern[str] | None = None
    # The outputs; None: the tokens of the vocabulary.
    labels: tuple[str, ...] | None = None
    # How often each token occurs in the training text, if that is known.
    counts: Sequence[int] | None = None
    # A text to begin with.
    example: str = ""
