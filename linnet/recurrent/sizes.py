"""Sizes in the settings of a model that may be a stranger's, compared with its weights before it is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ANY_MODEL = 100_000
"""Sizes up to this can be allocated without a check."""
ANY_DEPTH = 100
"""Depths up to this can be built without a check."""


@contextmanager
def sketching() -> Iterator[None]:
    """Make modules on the device "meta": their shapes without numbers."""
    with torch.device("meta"), Unfilled():
        yield


class Unfilled(TorchFunctionMode):
    """Draws no normal numbers: on the device "meta", torch would import its compiler for them."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        named = named or {}
        if function in (Tensor.normal_, nn.init.normal_):
            return arguments[0] if arguments else named["tensor"]
        return function(*arguments, **named)


def too_large(settings: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str | None:
    """Return what no model with these weights could have, such as "hidden_size=1,000,000, and ...".

    No size is larger than the number of weights, and no model has more layers than tensors.
    """
    count = count_of(weights)
    for name, value in flat("it", settings):
        layers = len(value) if isinstance(value, (list, tuple)) else value if "layers" in name else 0
        if layers > max(len(weights), ANY_DEPTH):
            return f"{name} of {layers:,} layers, and there are {len(weights):,} tensors in all"
        if isinstance(value, int) and value > max(count, ANY_MODEL):
            return f"{name}={value:,}, and there are {count:,} weights in all"
    return None


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the numbers and lists of nested settings, each with its name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(str(key), inner)
    elif isinstance(value, (list, tuple)):
        yield name, value
        for inner in value:
            yield from flat(name, inner)
    elif isinstance(value, int):
        yield name, value


def count_of(weights: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in weights.values())


def refuse_missing_weights(where: str, sketch: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Raise if a model on the device "meta" needs more numbers than there are."""
    needed, found = count_of(sketch.state_dict()), count_of(weights)
    if needed > found:
        raise ValueError(f"{where} has {found:,} weights, and the model of its config.json needs {needed:,}")
