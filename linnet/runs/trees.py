"""Recurrent states as trees: nested tuples, named tuples, lists and dicts of tensors [layers, B, ...]."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.runs.errors import Mismatch


def map_trees(function: Callable[..., Any], *trees: Any) -> Any:
    """Return the tree of `function` of the leaves of trees that have the same form."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: map_trees(function, *(tree[key] for tree in trees)) for key in first}
    if isinstance(first, (tuple, list)):
        inner = [map_trees(function, *each) for each in zip(*trees, strict=True)]
        return type(first)(*inner) if hasattr(first, "_fields") else type(first)(inner)
    return function(*trees)


# ------------------------------------------------------------------------ shared among processes


def joined(states: Sequence[Any]) -> Any:
    """Return the state of all sequences from the states of all processes."""
    return map_trees(join_leaves, *states)


def join_leaves(*leaves: Any) -> Any:
    shared = isinstance(leaves[0], Tensor) and leaves[0].dim()
    return torch.cat(leaves, batch_dimension(leaves[0])) if shared else leaves[0]


def share(state: Any, rank: int, world: int) -> Any:
    """Return the state of the sequences of process `rank` of `world`; see `TimeBatch.columns`."""

    def share_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.dim():
            return leaf
        dimension = batch_dimension(leaf)
        start, stop = (leaf.shape[dimension] * each // world for each in (rank, rank + 1))
        return leaf.narrow(dimension, start, stop - start).contiguous()

    return map_trees(share_leaf, state)


def batch_dimension(tensor: Tensor) -> int:
    return min(1, tensor.dim() - 1)


# --------------------------------------------------------------------------------------- on disk


def to_values(state: Any) -> Any:
    """Return a tree as values that torch.load reads with weights_only=True."""
    if isinstance(state, dict):
        return {"dict": {key: to_values(value) for key, value in state.items()}}
    if isinstance(state, tuple):
        cls = type(state)
        name = None if cls is tuple else f"{cls.__module__}:{cls.__qualname__}"
        return {"tuple": [to_values(each) for each in state], "class": name}
    if isinstance(state, list):
        return {"list": [to_values(each) for each in state]}
    return {"value": state.detach().cpu() if isinstance(state, Tensor) else state}


def from_values(value: Any, device: torch.device) -> Any:
    """Return the tree that `to_values` was given. The class of a named tuple must have been imported."""
    if "dict" in value:
        return {key: from_values(each, device) for key, each in value["dict"].items()}
    if "tuple" in value:
        inner = [from_values(each, device) for each in value["tuple"]]
        return named_tuple(value["class"])(*inner) if value["class"] else tuple(inner)
    if "list" in value:
        return [from_values(each, device) for each in value["list"]]
    leaf = value["value"]
    return leaf.to(device) if isinstance(leaf, Tensor) else leaf


def named_tuple(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise Mismatch(f"the checkpoint carries a state of {name}, which is not a named tuple here")
    return found
