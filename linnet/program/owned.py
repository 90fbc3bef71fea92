"""Tensors that a module reads and another module holds: a stack, for the projections inside.

Such a module has them by name in `owned`, a dict that is not registered with torch: the parameters are those
of their owner (see layers/torch_names.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def owned_by_another(space: dict[str, Any]) -> dict[str, Any]:
    """What a module reads and does not hold, given `vars(module)`."""
    return space.get("owned") or {}


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of `module`, and what the modules inside read of those of a module around it."""
    yield from module.named_parameters()
    for path, inner in module.named_modules():
        for name, tensor in owned_by_another(vars(inner)).items():
            if tensor is not None:
                yield (f"{path}.{name}" if path else name), tensor
