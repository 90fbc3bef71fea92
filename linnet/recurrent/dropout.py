"""Dropout for sequences: a new mask at each step, one mask over time, or one mask for a whole batch.

    naive      a new mask for each step of each sequence
    sequence   one mask for each sequence, the same at all steps ("locked", "variational")
    batch      one mask for all sequences and steps (the SCRN authors' variational dropout)

The modules draw a new mask at each call, unless `fixed` is set, for example to compare with recorded numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.options import check_rate, check_size, choose
from linnet.recurrent.masks import keep_mask

MODES = ("naive", "sequence", "batch")


class Dropout(nn.Module):
    """x [T, B, D] -> the same, with channels dropped while training.

    rate    the probability that a channel is dropped
    mode    "naive", "sequence" or "batch": which values share a mask
    spare   the number of channels at the end that are never dropped
    first   the number of channels at the beginning that are never dropped
    fixed   a mask to use instead of drawing one, already divided by 1 - rate
    """

    fixed: Tensor | None

    def __init__(self, rate: float, mode: str = "naive", *, spare: int = 0, first: int = 0):
        super().__init__()
        check_rate("rate", rate)
        choose("mode", mode, MODES)
        check_size("spare", spare, least=0)
        check_size("first", first, least=0)
        self.rate, self.mode, self.fixed = rate, mode, None
        self.spared = (first, spare)

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active:
            return x
        if self.mode == "naive" and self.fixed is None and not any(self.spared):
            return F.dropout(x, self.rate)
        return x * self.mask(x.shape, like=x)

    @property
    def is_active(self) -> bool:
        return self.training and (self.rate > 0 or self.fixed is not None)

    def mask(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """Return a mask for tensors of `shape`, with size 1 in the dimensions that share it."""
        times, batch, size = shape
        shape = {"naive": (times, batch, size), "sequence": (1, batch, size), "batch": (1, 1, size)}[
            self.mode
        ]
        if self.fixed is not None:
            # Plans for kernels are made on the meta device, where a mask has only a shape.
            return like.new_empty(shape) if like.is_meta else self.fixed
        drawn = keep_mask((*shape[:-1], size - sum(self.spared)), self.rate, like)
        return F.pad(drawn, self.spared, value=1.0) if any(self.spared) else drawn

    def extra_repr(self) -> str:
        return f"{self.rate}, {self.mode!r}"


class RowDropout(nn.Module):
    """Drops whole words: all occurrences of a word in a window, or none (Gal and Ghahramani 2016).

    rate     the probability that a row of the embedding is dropped for a window
    fixed    a mask [number of rows] to use instead of drawing one, already divided by 1 - rate
    """

    fixed: Tensor | None

    def __init__(self, rate: float, rows: int):
        super().__init__()
        check_rate("rate", rate)
        self.rate, self.rows, self.fixed = rate, rows, None

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """x [T, B, D], the rows of `tokens` [T, B]."""
        if not self.training or (self.rate == 0 and self.fixed is None):
            return x
        mask = keep_mask((self.rows,), self.rate, like=x) if self.fixed is None else self.fixed
        # Masks the words of the window instead of the whole matrix.
        return x * mask[tokens][..., None]

    def extra_repr(self) -> str:
        return f"{self.rate}, rows={self.rows}"
