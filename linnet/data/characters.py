"""The characters of words as ids: [words] -> [words, width], for models that read how a word is spelt."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from linnet.data.errors import DataError

PAD, UNKNOWN, FIRST = 0, 1, 2
WIDTH = 25


@dataclass(frozen=True)
class Characters:
    """Ids of characters: 0 is padding, 1 any other character, then `known` in order.

    known   the characters that have an id
    width   the characters of a word that are read; the rest of a longer word is not
    """

    known: str
    width: int = WIDTH

    def __len__(self) -> int:
        """Return the number of ids, with padding and unknown."""
        return FIRST + len(self.known)

    @cached_property
    def index(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.known, FIRST)}

    def encode(self, words: Sequence[str]) -> Tensor:
        """Return int64 [len(words), width], padded at the end of each word."""
        ids = np.full((len(words), self.width), PAD)
        for row, word in zip(ids, words, strict=True):
            spelt = [self.index.get(character, UNKNOWN) for character in word[: self.width]]
            row[: len(spelt)] = spelt
        return torch.from_numpy(ids)

    def to_json(self) -> str:
        return json.dumps({"known": self.known, "width": self.width})

    @classmethod
    def from_json(cls, text: str | bytes) -> Characters:
        try:
            values = json.loads(text)
            known, width = values["known"], values["width"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"characters are an object with 'known' and 'width': {error}") from None
        if not isinstance(known, str) or type(width) is not int or width < 1:
            raise DataError(f"known is a string and width a positive integer; got {known!r} and {width!r}")
        return cls(known, width)


def count_characters(words: Iterable[str], least: int = 1, width: int = WIDTH) -> Characters:
    """Return the characters that occur at least `least` times in `words`, the most frequent first."""
    counts = Counter(character for word in words for character in word)
    kept = [character for character in counts if counts[character] >= least]
    return Characters("".join(sorted(kept, key=lambda each: (-counts[each], each))), width)


class Spellings:
    """The characters of many words, each word stored once: a step of a text needs one number, not `width`.

    numbers = spellings.numbers(["a", "linnet"])     # [2]; 0 is padding
    spellings.look_up(numbers)                       # [2, C], C characters of the longest of these words
    """

    def __init__(self, characters: Characters):
        self.characters = characters
        self.index: dict[str, int] = {"": 0}
        self.table = characters.encode([""])

    def numbers(self, words: Sequence[str]) -> Tensor:
        """Return the number of each word; a new word gets the next number."""
        index = self.index
        found = [index.setdefault(word, len(index)) for word in words]
        return torch.tensor(found, dtype=torch.int64)

    def look_up(self, numbers: Tensor) -> Tensor:
        """Return the characters [..., C] of words by number, on the device of `numbers`."""
        if len(self.table) < len(self.index):
            new = list(self.index)[len(self.table) :]
            self.table = torch.cat([self.table, self.characters.encode(new)])
        spelt = self.table[numbers.cpu()]
        longest = int((spelt != PAD).sum(-1).max()) if spelt.numel() else 0
        return spelt[..., : max(longest, 1)].to(numbers.device)
