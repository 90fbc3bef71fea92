"""The hidden size with which a model has a given number of parameters."""

from __future__ import annotations

from collections.abc import Callable

from linnet.base.options import check_size


def closest_size(budget: int, count: Callable[[int], int], advice: str) -> int:
    """Return the hidden size whose `count` is closest to `budget`; the count must grow with the size.

    advice   what to use instead, for the error if even a hidden size of 1 has too many parameters
    """
    check_size("budget", budget)
    least = count(1)
    if least > budget:
        raise ValueError(
            f"a budget of {budget:,} parameters is too small: with hidden_size=1 this model has {least:,}; "
            f"take {advice}"
        )
    low, high = 1, 2
    while count(high) < budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < budget else (low, middle)
    return min((low, high), key=lambda size: abs(count(size) - budget))
