"""Token ids as input: checks of the ids, embeddings of words, and pretrained vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.layers.softmax import IGNORE

TUNED = ("all", "special", "none")
# Padding, unknown word and end of text.
SPECIAL = 3


def check_tokens(what: str, tokens: Tensor, size: int, ignored: bool = False) -> None:
    """Ids [time, batch] of a vocabulary of `size`; `ignored` allows -100 as well."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"{what} must be a tensor of torch.int64, [time, batch]; got {kind}")
    if tokens.dim() != 2 or not tokens.numel():
        raise ValueError(f"{what} must be [time, batch] and not empty; got shape {tuple(tokens.shape)}")
    # On other devices than the CPU, reading the values would wait for the device. Tensors in a graph that is
    # being traced have no values.
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        check_range(what, tokens, size, ignored)


def check_range(what: str, tokens: Tensor, size: int, ignored: bool = False) -> None:
    wrong = (tokens < 0) | (tokens >= size)
    if ignored:
        wrong &= tokens != IGNORE
    if wrong.any():
        raise IndexError(
            f"{what} has the id {int(tokens[wrong][0])}, but this model has a vocabulary of {size}: ids are "
            f"0 to {size - 1}{f', or {IGNORE} where no target is counted' if ignored else ''}"
        )


class WordEmbedding(nn.Module):
    """Ids [...] -> vectors [..., size].

    tuned     "all": train every row; "none": train no row; "special": train the first `special` rows only
    special   the number of special words (LRN: padding, unknown word and end of text)

    Rows that are not trained are a buffer: optimisers and parameter counts leave them out, and checkpoints
    have them.
    """

    def __init__(
        self,
        words: int,
        size: int,
        tuned: str = "all",
        special: int = SPECIAL,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("words", words)
        check_size("size", size)
        choose("tuned", tuned, TUNED)
        self.words, self.size, self.tuned = words, size, tuned
        rows = torch.empty(words, size, device=device, dtype=dtype)
        self.weight: Tensor
        self.special: nn.Parameter | None
        if tuned == "all":
            self.weight = nn.Parameter(rows)
        else:
            self.register_buffer("weight", rows)
        count = min(special, words) if tuned == "special" else 0
        self.register_parameter("special", nn.Parameter(rows.new_empty(count, size)) if count else None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """N(0, 1), as nn.Embedding."""
        self.weight.normal_()
        if self.special is not None:
            self.special.normal_()
            # The trained rows are added to these.
            self.weight[: len(self.special)] = 0

    def forward(self, tokens: Tensor) -> Tensor:
        vectors = F.embedding(tokens, self.weight)
        if self.special is None:
            return vectors
        # One more row, of zeros, for all other words: the gradient has as few rows as this small table.
        table = F.pad(self.special, (0, 0, 0, 1))
        return vectors + F.embedding(tokens.clamp(max=len(self.special)), table)

    def rows(self) -> Tensor:
        """All vectors, [words, size], without a graph."""
        return self(torch.arange(self.words, device=self.weight.device)).detach()

    @torch.no_grad()
    def set_rows(self, vectors: Tensor) -> None:
        """Replace all vectors, trained or not, by `vectors` [words, size]."""
        self.weight.copy_(vectors)
        if self.special is not None:
            self.special.copy_(vectors[: len(self.special)])
            self.weight[: len(self.special)] = 0

    def extra_repr(self) -> str:
        return f"{self.words}, {self.size}, tuned={self.tuned!r}"


def use_vectors(
    embedding: WordEmbedding,
    vectors: Tensor,
    rows: Tensor | None = None,
    *,
    spread: float | None = None,
    unit_norm: bool = False,
) -> None:
    """Start from pretrained vectors.

    vectors     [N, size]
    rows        [N]: the id of each vector's word (default: all words in order)
    spread      draw the vectors of the other words from U(-spread, spread) (default: leave them)
    unit_norm   scale every row to norm 1, those of the other words too (the SRU authors)
    """
    check_vectors(embedding, vectors, rows)
    table = embedding.rows()
    if spread is not None:
        check_number("spread", spread, least=0)
        table.uniform_(-spread, spread)
    table[slice(None) if rows is None else rows.to(table.device)] = vectors.to(table)
    embedding.set_rows(F.normalize(table, dim=1) if unit_norm else table)


def check_vectors(embedding: WordEmbedding, vectors: Tensor, rows: Tensor | None) -> None:
    if vectors.dim() != 2 or vectors.shape[1] != embedding.size:
        raise ValueError(
            f"vectors must be [N, {embedding.size}], the size of this embedding; got "
            f"{tuple(vectors.shape)}: set embedding_size={vectors.shape[-1]}, or use other vectors"
        )
    count = embedding.words if rows is None else len(rows)
    if len(vectors) != count:
        raise ValueError(f"there are {len(vectors)} vectors for {count} tokens; give one for each")


class WordDropout(nn.Module):
    """Read some words as word 0 while training, each with probability `rate` (the LRN authors).

    fixed   a mask [T, B] to use instead of drawing one: 0 at the words to replace
    """

    fixed: Tensor | None

    def __init__(self, rate: float):
        super().__init__()
        check_rate("rate", rate)
        self.rate, self.fixed = rate, None

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.training or (self.rate == 0 and self.fixed is None):
            return tokens
        if self.fixed is not None:
            return tokens.masked_fill(self.fixed == 0, 0)
        return tokens.masked_fill(torch.rand(tokens.shape, device=tokens.device) < self.rate, 0)

    def extra_repr(self) -> str:
        return f"{self.rate}"
