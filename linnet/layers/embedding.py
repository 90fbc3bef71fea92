"""Token ids as input: checks of the ids, and embeddings that start from pretrained vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from linnet.layers.softmax import IGNORE


def check_tokens(what: str, tokens: Tensor, size: int, ignored: bool = False) -> None:
    """Ids [time, batch] of a vocabulary of `size`; `ignored` allows -100 as well."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64:
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"{what} must be a tensor of torch.int64, [time, batch]; got {kind}")
    if tokens.dim() != 2 or not tokens.numel():
        raise ValueError(f"{what} must be [time, batch] and not empty; got shape {tuple(tokens.shape)}")
    # On other devices than the CPU, reading the values would wait for the device.
    if tokens.device.type == "cpu":
        check_range(what, tokens, size, ignored)


def check_range(what: str, tokens: Tensor, size: int, ignored: bool) -> None:
    wrong = (tokens < 0) | (tokens >= size)
    if ignored:
        wrong &= tokens != IGNORE
    if wrong.any():
        raise IndexError(
            f"{what} has the id {int(tokens[wrong][0])}, but this model has a vocabulary of {size}: ids are "
            f"0 to {size - 1}{f', or {IGNORE} where no target is counted' if ignored else ''}"
        )


@torch.no_grad()
def use_vectors(
    embedding: nn.Embedding, vectors: Tensor, rows: Tensor | None = None, frozen: bool = False
) -> None:
    """Start from pretrained vectors.

    vectors   [N, embedding_size]
    rows      [N]: the token of each vector (default: all tokens in order); other rows stay as they are
    frozen    do not train the embedding
    """
    if vectors.dim() != 2 or vectors.shape[1] != embedding.embedding_dim:
        raise ValueError(
            f"vectors must be [N, {embedding.embedding_dim}], the size of this embedding; got "
            f"{tuple(vectors.shape)}: set embedding_size={vectors.shape[-1]}, or use other vectors"
        )
    count = embedding.num_embeddings if rows is None else len(rows)
    if len(vectors) != count:
        raise ValueError(f"there are {len(vectors)} vectors for {count} tokens; give one for each")
    here = embedding.weight
    target = slice(None) if rows is None else rows.to(here.device)
    here[target] = vectors.to(here.device, here.dtype)
    here.requires_grad_(not frozen)
