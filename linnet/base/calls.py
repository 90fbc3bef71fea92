"""Calls of modules, for type checkers: torch says no more than that a module can be called.

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

`__call__ = forward` would do for mypy; pyright then takes the type that torch declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def like(method: Method) -> Callable[[Any], Method]:
    """Give a method the signature of another."""
    return lambda other: method
