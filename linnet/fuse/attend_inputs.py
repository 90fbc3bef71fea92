"""The operands of attention; its kernels and what calls them import this file."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Keys(NamedTuple):
    """What the queries read."""

    keys: Tensor  # [B, heads, T, size]
    values: Tensor  # [B, heads, T, size]
    vector: Tensor  # [size]
    mask: Tensor | None  # bool [B, 1, T], True at real steps
