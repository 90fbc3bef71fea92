"""Layers and cells as leaves of torch.fx: a traced model calls them, as it calls torch's own."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.fx import Proxy


def is_symbol(x: Any) -> bool:
    """Whether torch.fx.symbolic_trace, or another tracer of torch.fx, records the call."""
    return type(x) is not Tensor and isinstance(x, Proxy)


def recorded_call(module: nn.Module, x: Proxy, state: Any, others: dict[str, Any]) -> Proxy:
    """Record a call of `module` with those of its arguments that are not None.

    A tracer asks only for the package of a module whether it is a leaf, and calls all modules but torch's.
    """
    given = {name: value for name, value in others.items() if value is not None}
    inputs = (x,) if state is None else (x, state)
    tracer: Any = x.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), inputs, given)
