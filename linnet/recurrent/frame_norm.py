"""Batch norm over the frames of a batch of sequences: all time steps of all of them together.

Padded steps are no frames: they are left out of the statistics (frames="real"). Most code in use counts them
as frames of zeros (frames="all"), so that the statistics of a sequence depend on what it is batched with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

from linnet.base.options import check_number, choose

# [T, B]: which steps of the sequences that run are real.
real_steps: ContextVar[Tensor | None] = ContextVar("linnet_real_steps", default=None)


@contextmanager
def padded_by(mask: Tensor | None) -> Iterator[None]:
    """Within this context, sequences have padding where `mask` [T, B] is False."""
    token = real_steps.set(mask)
    try:
        yield
    finally:
        real_steps.reset(token)


class FrameNorm(nn.Module):
    """x [..., size], each channel normalised by the frames of the batch; in evaluation, by running means."""

    weight: nn.Parameter
    bias: nn.Parameter
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, size: int, eps: float = 1e-5, momentum: float = 0.1, frames: str = "real", **where: Any
    ):
        super().__init__()
        choose("frames", frames, ("real", "all"))
        check_number("momentum", momentum, least=0)
        self.eps, self.momentum, self.frames = eps, momentum, frames
        self.weight = nn.Parameter(torch.empty(size, **where))
        self.bias = nn.Parameter(torch.empty(size, **where))
        self.register_buffer("running_mean", torch.zeros(size, **where))
        self.register_buffer("running_var", torch.ones(size, **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.running_mean)
        nn.init.ones_(self.running_var)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)  # autocast may have computed it in another one
        if not self.training:
            scale = self.weight * torch.rsqrt(self.running_var + self.eps)
            return (x - self.running_mean) * scale + self.bias
        rows, count = self.rows_of(x)
        if not count:
            return x * self.weight + self.bias
        mean, variance = statistics(rows, count)
        self.follow(mean, variance, count)
        if 1 < len(rows) == count == x[..., 0].numel():  # torch's own is faster, and refuses a single frame
            return F.batch_norm(rows, None, None, self.weight, self.bias, True, eps=self.eps).view_as(x)
        return (x - mean) * (self.weight * torch.rsqrt(variance + self.eps)) + self.bias

    def rows_of(self, x: Tensor) -> tuple[Tensor, int]:
        """The real frames of x, and how many count."""
        mask = None if is_compiling() else real_steps.get()
        rows = x.flatten(0, -2)
        if mask is None:
            return rows, len(rows)
        # Where only real steps are stored, there is nothing to leave out.
        real = x[mask] if x.shape[:-1] == mask.shape else rows
        return real, mask.numel() if self.frames == "all" else len(real)

    @torch.no_grad()
    def follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        unbiased = variance * (count / max(1, count - 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, frames={self.frames!r}"


def statistics(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The mean and the biased variance of these rows and of as many zeros as there are up to `count`."""
    mean = rows.sum(0) / count
    variance = (rows - mean).square().sum(0) + (count - len(rows)) * mean.square()
    return mean, variance / count
