"""Functions over states, which are nested tuples and named tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any, shared: bool = True) -> Any:
    """Return the same tuples with `function` applied to each tensor; None stays None.

    shared   also to those in tuples with `is_shared`, which all hypotheses of an input have in common
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if tree is None or (getattr(tree, "is_shared", False) and not shared):
        return tree
    parts = [map_tensors(function, part, shared) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def take_rows(tree: Any, rows: Tensor) -> Any:
    """Return the rows `rows` of each tensor, except of what the hypotheses of an input share."""
    return map_tensors(lambda tensor: tensor.index_select(0, rows), tree, shared=False)


def repeat_rows(tree: Any, times: int) -> Any:
    """Repeat each row `times` times, one after the other, except of what the hypotheses of an input share."""
    return map_tensors(lambda tensor: tensor.repeat_interleave(times, 0), tree, shared=False)
