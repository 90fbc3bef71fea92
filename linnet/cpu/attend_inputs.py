"""The operands of attention, for its kernels and for the code that calls them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Keys(NamedTuple):
    """The memory that the queries read."""

    keys: Tensor  # [B, heads, T, size]
    values: Tensor  # [B, heads, T, size]
    vector: Tensor  # [size]
    mask: Tensor | None  # bool [B, 1, T], True at real steps
