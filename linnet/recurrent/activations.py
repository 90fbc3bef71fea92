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


def quant_tanh(x: Tensor) -> Tensor:
    return x.clamp(-1, 1)


def quant_sigmoid(x: Tensor) -> Tensor:
    return ((x + 1) / 2).clamp(0, 1)


def quant_sigmoid4(x: Tensor) -> Tensor:
    return ((x + 2) / 4).clamp(0, 1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "identity": identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "positive": positive,
    # Piecewise linear, for processors on which an exponential is slow; the names are those of EdgeML.
    "quantTanh": quant_tanh,
    "quantSigm": quant_sigmoid,
    "quantSigm4": quant_sigmoid4,
}


def pointwise(
    name: str, allowed: Iterable[str] = ("tanh", "identity"), option: str = "activation"
) -> Callable[[Tensor], Tensor]:
    """Return the function that an option names, if the unit allows it."""
    choose(option, name, allowed)
    return ACTIVATIONS[name]
