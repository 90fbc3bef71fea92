"""What the tasks over words share: a vocabulary, the characters of words, and pretrained vectors.

Word 0 is padding, word 1 stands for unknown words. Besides the settings of `linnet.tasks.texts`, their data
has lowercase and vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from linnet.base.settings import fingerprint
from linnet.data.characters import Characters, Spellings
from linnet.data.vectors import Vectors
from linnet.data.vocabulary import Vocabulary
from linnet.layers.embedding import WordEmbedding, use_vectors
from linnet.tasks.texts import TextTask

PAD = "<pad>"
CHARACTERS = "characters.json"
SomeTask = TypeVar("SomeTask", bound="WordTask")


class WordTask(TextTask):
    """A task whose models read words, their characters, or both."""

    asset_files = (*TextTask.asset_files, CHARACTERS)
    vocabulary: Vocabulary
    characters: Characters
    pretrained: Vectors | None = None  # a trained run needs none: its weights have them

    @cached_property
    def spellings(self) -> Spellings:
        return Spellings(self.characters)

    def apart(self: SomeTask) -> SomeTask:
        other = super().apart()
        other.spellings = Spellings(self.characters)
        return other

    def folded(self, word: str) -> str:
        return word.lower() if self.data.lowercase else word

    def ids(self, words: Sequence[str]) -> Tensor:
        return torch.from_numpy(self.vocabulary.encode_words([*map(self.folded, words)]))

    def use_pretrained(self, embedding: WordEmbedding | None, **how: Any) -> None:
        """Start the embedding of a new model from the pretrained vectors; `how` is for `use_vectors`."""
        if self.pretrained is None or embedding is None or embedding.weight.is_meta:
            return
        rows = torch.from_numpy(self.vocabulary.encode_words(self.pretrained.words))
        known = rows != self.vocabulary.unk
        use_vectors(embedding, self.pretrained.matrix[known], rows[known], **how)

    def assets(self) -> dict[str, bytes]:
        return {**super().assets(), CHARACTERS: self.characters.to_json().encode()}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        super().restore(assets)
        self.characters = Characters.from_json(assets[CHARACTERS])

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "vocabulary": self.vocabulary.fingerprint,
            "characters": fingerprint(self.characters.to_json()),
        }
