"""One vector for a sequence: y [T, B, F] -> [B, F]. What is at padded steps never changes it.

last        the last real step of the forward direction and the first step of the backward one: each has
            read the whole sequence
max         the largest value of each channel
mean        the mean of each channel
meanmax     the mean and the largest value of each channel, [B, 2 F]
attentive   a weighted mean; the weights are learned (`AttentivePooling`, `LinearPooling`)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.recurrent.dropout import Dropout
from linnet.recurrent.sequence import mask_of_lengths


def last(y: Tensor, lengths: Tensor | None = None, directions: int = 1) -> Tensor:
    forward, *backward = y.chunk(directions, -1)
    if lengths is None:
        ends = forward[-1]
    else:
        mask_of_lengths(lengths, like=y)
        columns = torch.arange(y.shape[1], device=y.device)
        ends = forward[lengths.to(y.device) - 1, columns]
    return torch.cat([ends, *(each[0] for each in backward)], -1)


def maximum(y: Tensor, lengths: Tensor | None = None, directions: int = 1) -> Tensor:
    if lengths is not None:
        y = y.masked_fill(~mask_of_lengths(lengths, like=y)[..., None], -torch.inf)
    return y.amax(0)


def mean(y: Tensor, lengths: Tensor | None = None, directions: int = 1) -> Tensor:
    if lengths is None:
        return y.mean(0)
    y = y.masked_fill(~mask_of_lengths(lengths, like=y)[..., None], 0)
    return y.sum(0) / lengths.to(y.device)[:, None]


def mean_and_maximum(y: Tensor, lengths: Tensor | None = None, directions: int = 1) -> Tensor:
    return torch.cat([mean(y, lengths), maximum(y, lengths)], -1)


POOLINGS: dict[str, Callable[..., Tensor]] = {
    **{"last": last, "max": maximum, "mean": mean},
    "meanmax": mean_and_maximum,
}
"""Those without parameters, by name: pool(y, lengths=None, directions=1)."""


def pooled_size(pooling: str, size: int) -> int:
    """Return the size of the vector of a sequence whose steps have `size` channels."""
    return 2 * size if pooling == "meanmax" else size


class AttentivePooling(nn.Module):
    """A weighted mean of the steps (the LRN authors, additive attention):

        s_t = v . tanh(W y_t + b + W_q q + b_q)        a = softmax over real steps of s
        result = sum over t of a_t y_t

    hidden_size     the size of the layer under tanh
    query_size      the size of a query q [B, query_size], such as the final states (0: no query)
    query_dropout   dropout on the query, with a new mask for each step
    score_dropout   dropout on y where it is scored, with one mask for all steps; the mean is of y (R-Net)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        query_size: int = 0,
        query_dropout: float = 0.0,
        score_dropout: float = 0.0,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("input_size", input_size)
        check_size("hidden_size", hidden_size)
        check_size("query_size", query_size, least=0)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query_size = query_size
        self.hidden = nn.Linear(input_size, hidden_size, **where)
        self.query = nn.Linear(query_size, hidden_size, **where) if query_size else None
        self.score = nn.Linear(hidden_size, 1, bias=False, **where)
        self.query_dropout = Dropout(query_dropout)
        self.score_dropout = Dropout(score_dropout, "sequence")

    def forward(self, y: Tensor, lengths: Tensor | None = None, query: Tensor | None = None) -> Tensor:
        return self.attend(y, lengths, query)[0]

    def attend(
        self, y: Tensor, lengths: Tensor | None = None, query: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The vector of each sequence, [B, F], and the weights of its steps, [T, B]."""
        return weighted_mean(y, lengths, partial(self.scores, query=query))

    def scores(self, y: Tensor, query: Tensor | None) -> Tensor:
        hidden = self.hidden(self.score_dropout(y))
        if self.query is not None:
            hidden = hidden + self.query(self.dropped(self.check_query(query), len(y)))
        return self.score(torch.tanh(hidden))[..., 0]

    def dropped(self, query: Tensor, steps: int) -> Tensor:
        """[B, query_size], or [T, B, query_size] where each step has its own mask."""
        if not self.query_dropout.is_active:
            return query
        return self.query_dropout(query.expand(steps, -1, -1))

    def check_query(self, query: Tensor | None) -> Tensor:
        if query is None or query.dim() != 2 or query.shape[-1] != self.query_size:
            got = "None" if query is None else f"shape {tuple(query.shape)}"
            raise ValueError(f"this pooling needs a query [batch, {self.query_size}]; got {got}")
        return query


class LinearPooling(nn.Module):
    """A mean of the steps, each weighted by softmax(w . y_t + b) (the question in DrQA)."""

    def __init__(self, input_size: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.score = nn.Linear(input_size, 1, device=device, dtype=dtype)

    def forward(self, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.attend(y, lengths)[0]

    def attend(self, y: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The vector of each sequence, [B, input_size], and the weights of its steps, [T, B]."""
        return weighted_mean(y, lengths, lambda y: self.score(y)[..., 0])


def weighted_mean(
    y: Tensor, lengths: Tensor | None, score: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The mean of y [T, B, F], weighted by a softmax of its scores [T, B], and the weights."""
    if lengths is None:
        weights = score(y).softmax(0)
    else:
        mask = mask_of_lengths(lengths, like=y)
        y = y.masked_fill(~mask[..., None], 0)
        weights = score(y).masked_fill(~mask, -torch.inf).softmax(0)
    return (weights[..., None] * y).sum(0), weights
