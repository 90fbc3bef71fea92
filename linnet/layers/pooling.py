"""One vector for a sequence: y [T, B, F] -> [B, F]. What is at padded steps never changes it.

last   the last real step of the forward direction and the first step of the backward one: each has
       read the whole sequence
max    the largest value of each channel
mean   the mean of each channel
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from linnet.layers.sequence import mask_of_lengths


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


POOLINGS: dict[str, Callable[..., Tensor]] = {"last": last, "max": maximum, "mean": mean}
"""By name: pool(y, lengths=None, directions=1)."""
