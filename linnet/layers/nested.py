"""Functions over states, which are nested tuples and named tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return the same tuples with `function` applied to each tensor; None stays None."""
    if isinstance(tree, Tensor):
        return function(tree)
    if tree is None:
        return None
    parts = [map_tensors(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def take_rows(tree: Any, rows: Tensor) -> Any:
    """Return the rows `rows` of each tensor."""
    return map_tensors(lambda tensor: tensor.index_select(0, rows), tree)


def repeat_rows(tree: Any, times: int) -> Any:
    """Repeat each row of each tensor `times` times, one after the other."""
    return map_tensors(lambda tensor: tensor.repeat_interleave(times, 0), tree)
