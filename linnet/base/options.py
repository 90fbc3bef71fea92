"""Checks of option values: each error says what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def choose(option: str, value: object, allowed: Iterable[object]) -> None:
    """Raise unless `value` is one of `allowed`."""
    allowed = list(allowed)
    if value not in allowed:
        names = ", ".join(repr(item) for item in allowed)
        raise ValueError(f"{option} must be one of {names}; got {value!r}")


def either(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return the value of an argument that has two names, Linnet's and torch's."""
    if value is not None and other is not None:
        raise TypeError(f"{name} and {other_name} are two names of one argument; give one of them")
    return other if value is None else value


def check_size(option: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise unless `value` is an int between `least` and `most`, both included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option} must be an int; got {value!r}")
    if value < least:
        raise ValueError(f"{option} must be at least {least}; got {value}")
    if most is not None and value > most:
        raise ValueError(f"{option} must be at most {most}; got {value}")


def check_number(option: str, value: float, least: float = -math.inf) -> None:
    """Raise unless `value` is a finite number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number; got {value!r}")
    if not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" and at least {least}"
        raise ValueError(f"{option} must be finite{bound}; got {value}")


def check_share(option: str, value: float) -> None:
    """Raise unless `value` is a number in [0, 1]."""
    check_number(option, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{option} must be in [0, 1]; got {value}")


def check_rate(option: str, value: float) -> None:
    """Raise unless `value` is a dropout rate: with a rate of 1, no values would remain to be rescaled."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number in [0, 1); got {value!r}")
    if not 0 <= value < 1:
        raise ValueError(f"{option} must be in [0, 1); got {value}")
