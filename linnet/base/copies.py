"""Deep copies of modules that take hardly longer than copying their tensors.

`copy.deepcopy` copies each of the fifteen dicts of every module by the general protocol, although nearly all
are empty. A stack has some twenty modules, so that took ten times as long as the tensors. The copies here
are the same: modules with a `__deepcopy__`, `__reduce__`, `__getstate__` or `__setstate__` of their own are
copied by these.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch import nn

# What a copy shares with its original.
SHARED = frozenset({type(None), bool, int, float, str, type, FunctionType, BuiltinFunctionType})
CONTAINERS = frozenset({dict, OrderedDict, set})


class CopiedFast:
    """A module whose deep copies, with those of the modules in it, are made by `copy_module`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy_module(self, memo)


def copy_module(module: Any, memo: dict[int, Any]) -> Any:
    """A copy by `__reduce_ex__`, as copy.deepcopy makes it."""
    make, arguments, *rest = reduced(module)
    # The memo knows objects by their address: what was made for this must not be freed before the end.
    memo.setdefault(id(memo), []).append(rest)
    made = make(*[copied(argument, memo) for argument in arguments])
    memo[id(module)] = made
    if rest and rest[0] is not None:
        made.__setstate__(copied(rest[0], memo))
    return made


def reduced(module: Any) -> tuple:
    """How to make a module and what to give it, as the protocol of pickle says."""
    if "parametrizations" in module._modules:  # torch refuses to pickle it, and copies its attributes
        return type(module).__new__, (type(module),), vars(module)
    return module.__reduce_ex__(4)


def copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in SHARED:
        return value
    if kind in CONTAINERS and not value:
        return kind()
    if id(value) in memo:
        return memo[id(value)]
    if kind is dict:
        return copied_dict(value, memo)
    if isinstance(value, nn.Module) and is_copied_fast(kind):
        return copy_module(value, memo)
    return copy.deepcopy(value, memo)


def copied_dict(values: dict, memo: dict[int, Any]) -> dict:
    memo[id(values)] = made = {}
    for name, value in values.items():
        # The first question of `copied`, here too: asking it without a call saves a third of the time.
        name = name if type(name) is str else copied(name, memo)
        made[name] = value if type(value) in SHARED else copied(value, memo)
    return made


def is_copied_fast(kind: type) -> bool:
    """Whether a class has no `__deepcopy__` of its own."""
    return getattr(kind, "__deepcopy__", None) in (None, CopiedFast.__deepcopy__)
