"""Checks of what a user asked for: each answers with what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "identity": identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


def choose(option: str, value: object, allowed: Iterable[object]) -> None:
    """Raise unless `value` is one of `allowed`."""
    allowed = list(allowed)
    if value not in allowed:
        names = ", ".join(repr(item) for item in allowed)
        raise ValueError(f"{option} must be one of {names}; got {value!r}")


def activation(value: str, allowed: Iterable[str] = ("tanh", "identity")) -> Callable[[Tensor], Tensor]:
    """The pointwise function g that a paper calls by name."""
    choose("activation", value, allowed)
    return ACTIVATIONS[value]


def check_size(option: str, value: object, least: int = 1, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option} must be an int; got {value!r}")
    if value < least:
        raise ValueError(f"{option} must be at least {least}; got {value}")
    if most is not None and value > most:
        raise ValueError(f"{option} must be at most {most}; got {value}")


def check_number(option: str, value: float, least: float = -math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number; got {value!r}")
    if not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" and at least {least}"
        raise ValueError(f"{option} must be finite{bound}; got {value}")


def check_share(option: str, value: float) -> None:
    check_number(option, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{option} must be in [0, 1]; got {value}")


def check_rate(option: str, value: float) -> None:
    """A dropout rate: the probability of being dropped. At 1 nothing would be left to scale up."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number in [0, 1); got {value!r}")
    if not 0 <= value < 1:
        raise ValueError(f"{option} must be in [0, 1); got {value}")
