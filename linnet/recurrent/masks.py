"""Dropout masks; no other file draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from linnet.run.random_state import RandomState


def keep_mask(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """Return a mask of zeros (with probability `rate`) and 1 / (1 - rate), which preserves the mean."""
    mask = torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate)
    return mask.div_(1 - rate) if rate < 1 else mask


Result = TypeVar("Result")


def with_same_masks(device: torch.device, *calls: Callable[[], Result]) -> list[Result]:
    """Return the results of several calls that draw masks of the same shapes: each draws the same numbers."""
    first, results = RandomState(device), []
    for call in calls:
        first.restore()
        results.append(call())
    return results


def over_time(x: Tensor, size: int) -> list[int]:
    """Return the shape of a mask of `size` channels for all steps of x [T, B, D], or for a step x [B, D]."""
    return [1, x.shape[1], size] if x.dim() == 3 else [x.shape[0], size]
