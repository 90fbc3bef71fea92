"""A module with other parameters: scalars to trace with, or weights that dropout has changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

from linnet.program.settings import note_reads

# While a step is traced: the set to which the names of the attributes that it reads are added.
attributes_read: ContextVar[set[str] | None] = ContextVar("linnet_attributes_read", default=None)


def with_parameters(module: nn.Module, parameters: Mapping[str, Tensor]) -> Any:
    """Return a copy of the module that shares everything with it except its own parameters.

    `module` itself is not changed, because other threads may be using it.
    """
    other = object.__new__(type(module))
    other.__dict__ = {**module.__dict__, "_parameters": dict(parameters)}
    names = attributes_read.get()
    if names is not None:
        note_reads(other, names)
    return other


def with_modules(module: nn.Module, modules: Mapping[str, nn.Module]) -> Any:
    """Return a copy of the module with other children, by their names."""
    other = with_parameters(module, module._parameters)  # type: ignore[arg-type]
    other.__dict__["_modules"] = {**module._modules, **modules}
    return other


def with_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> Any:
    """`with_parameters` for some of the parameters, by their names in `module.named_parameters()`."""
    inner: dict[str, dict[str, Tensor]] = {}
    own = dict(module._parameters)
    for path, weight in weights.items():
        first, _, rest = path.partition(".")
        if rest:
            inner.setdefault(first, {})[rest] = weight
        else:
            own[path] = weight  # type: ignore[assignment]
    changed = {name: with_weights(module._modules[name], theirs) for name, theirs in inner.items()}  # type: ignore[arg-type]
    return with_parameters(with_modules(module, changed), own)  # type: ignore[arg-type]
