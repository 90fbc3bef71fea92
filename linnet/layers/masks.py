"""Dropout masks; no other file draws them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def keep_mask(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """Return a mask of zeros (with probability `rate`) and 1 / (1 - rate), which preserves the mean."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate).div_(1 - rate)


def over_time(x: Tensor, size: int) -> list[int]:
    """Return the shape of a mask of `size` channels for all steps of x [T, B, D], or for a step x [B, D]."""
    return [1, x.shape[1], size] if x.dim() == 3 else [x.shape[0], size]
