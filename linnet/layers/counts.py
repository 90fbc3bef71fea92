"""Scores of classes from the counts of words and of pairs of adjacent words, weighted by TF-IDF.

    v_f = (1 + log count_f) idf_f    for each feature f that occurs in a text
    scores = scale * (v / |v|) W     added to the logits of a network

This is logistic regression over counts: with few texts it is hard to beat, and it is trained together with
the network. Feature 0 is padding. A feature whose idf is 0, such as an unknown word, never counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.types import Device

from linnet.base.options import check_size
from linnet.recurrent.sequence import mask_of_lengths

COUNTS = ("none", "words", "bigrams")
# v / |v| has length 1 and some hundred entries. With this factor, the weights that Adam reaches by its usual
# steps of 1e-3 are large enough.
SCALE = 30.0
# Numbers of new words that differ for PairCountScores; larger ones are the last one.
NEW_WORDS = 20


class CountScores(nn.Module):
    """tokens [T, B] -> scores [B, classes]; the features are the words, then pairs of adjacent words.

    words   the size of the vocabulary; word 0 is padding
    pairs   the number of pairs that are counted; a pair (a, b) is the number a * words + b

    A new module counts nothing: `learn` sets the pairs and the idf of all features.
    """

    def __init__(
        self, words: int, pairs: int, classes: int, device: Device = None, dtype: torch.dtype | None = None
    ):
        super().__init__()
        check_size("words", words)
        check_size("pairs", pairs, least=0)
        check_size("classes", classes)
        self.words = words
        count = self.feature_count(words, pairs)
        self.pairs: Tensor
        self.register_buffer("pairs", torch.zeros(pairs, dtype=torch.int64, device=device))
        self.idf: Tensor
        self.register_buffer("idf", torch.zeros(count, device=device, dtype=dtype))
        self.weight = nn.Parameter(torch.zeros(count, classes, device=device, dtype=dtype))

    @staticmethod
    def feature_count(words: int, pairs: int) -> int:
        return words + pairs

    @torch.no_grad()
    def learn(self, pairs: Tensor, batches: Iterable[tuple[Any, ...]], special: int) -> None:
        """Count these pairs, and set idf = log((1 + texts) / (1 + texts with the feature)) + 1.

        pairs     sorted, int64
        batches   the arguments of `forward` for each batch of the training texts
        special   the number of words at the beginning of the vocabulary that do not count, such as padding
        """
        self.pairs.copy_(pairs)
        texts, found = 0, torch.zeros(len(self.idf), dtype=torch.float64)
        for batch in batches:
            features = self.features(*batch)
            _, occurring, _ = self.distinct(features)
            texts += features.shape[1]
            found += occurring.bincount(minlength=len(found)).cpu()
        self.idf.copy_(((1 + texts) / (1 + found)).log() + 1)
        self.idf[:special] = 0

    def forward(self, *texts: Any) -> Tensor:
        features = self.features(*texts)
        batch = features.shape[1]
        rows, features, counts = self.distinct(features)
        values = self.normed((1 + counts.to(self.idf.dtype).log()) * self.idf[features], rows, batch)
        starts = torch.searchsorted(rows, torch.arange(batch, device=rows.device))
        return F.embedding_bag(features, self.weight, starts, mode="sum", per_sample_weights=values)

    def distinct(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows of the batch in order, the distinct features of each, and how often each occurs."""
        columns = torch.arange(features.shape[1], device=features.device)
        found, counts = (features + len(self.idf) * columns).unique(return_counts=True)
        return found // len(self.idf), found % len(self.idf), counts

    def normed(self, values: Tensor, rows: Tensor, batch: int) -> Tensor:
        """Scale the values of each text to the norm SCALE; those of a text without known words stay 0."""
        squares = values.new_zeros(batch).index_add(0, rows, values * values)
        return SCALE * values / squares.sqrt().clamp(min=1e-6)[rows]

    def features(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the numbers of all words and pairs, [steps, B]; 0 at padding and for unknown pairs."""
        tokens = padded_with_0(tokens, lengths)
        if not len(self.pairs):
            return tokens
        numbers = tokens[:-1] * self.words + tokens[1:]
        places = torch.searchsorted(self.pairs, numbers).clamp(max=len(self.pairs) - 1)
        known = self.pairs[places] == numbers
        return torch.cat([tokens, torch.where(known, places + self.words, 0)])

    def extra_repr(self) -> str:
        return f"words={self.words}, pairs={len(self.pairs)}, classes={self.weight.shape[1]}"


class PairCountScores(CountScores):
    """Scores of a pair of texts: the features of the second, its words that the first does not have, and
    their number. Words of the first text alone say little about a pair."""

    @staticmethod
    def feature_count(words: int, pairs: int) -> int:
        return 2 * words + pairs + NEW_WORDS

    def features(  # type: ignore[override]
        self, first: Tensor, second: Tensor, lengths: Tensor | None = None, its_lengths: Tensor | None = None
    ) -> Tensor:
        first, second = padded_with_0(first, lengths), padded_with_0(second, its_lengths)
        is_new = (second[:, None] != first).all(1) & (second != 0)
        start = self.words + len(self.pairs)
        number = is_new.sum(0, keepdim=True).clamp(max=NEW_WORDS - 1) + start + self.words
        return torch.cat([super().features(second), torch.where(is_new, second + start, 0), number])


def padded_with_0(tokens: Tensor, lengths: Tensor | None) -> Tensor:
    return tokens if lengths is None else tokens.masked_fill(~mask_of_lengths(lengths, like=tokens), 0)
