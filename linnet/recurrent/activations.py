"""The pointwise functions g that the papers call by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from linnet.base.options import choose


def identity(x: Tensor) -> Tensor:
    return x


def positive(x: Tensor) -> Tensor:
    """x + 0.5 from 0 on, and sigmoid(x) below: a continuous function with positive values."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "identity": identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "positive": positive,
}


def pointwise(
    name: str, allowed: Iterable[str] = ("tanh", "identity"), option: str = "activation"
) -> Callable[[Tensor], Tensor]:
    """Return the function that an option names, if the unit allows it."""
    choose(option, name, allowed)
    return ACTIVATIONS[name]
