"""The arguments of a stack as help() and editors show them: its own, then those of its unit's paper."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def joint_signature(
    constructors: Sequence[Callable[..., None]], cell: Callable[..., Any]
) -> inspect.Signature:
    """The arguments of the constructors, and those of the cell that they do not have, by keyword only."""
    parameters: dict[str, inspect.Parameter] = {}
    for constructor in constructors:
        parameters |= others(named_arguments(constructor), parameters)
    own = others(named_arguments(cell), parameters)
    parameters |= {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in own.items()}
    return inspect.Signature(list(parameters.values()))


def others(
    arguments: dict[str, inspect.Parameter], known: dict[str, inspect.Parameter]
) -> dict[str, inspect.Parameter]:
    return {name: p for name, p in arguments.items() if name not in known}


def named_arguments(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments of a function that have names of their own, except `self`."""
    parameters = inspect.signature(function).parameters
    unnamed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: p for name, p in parameters.items() if name != "self" and p.kind not in unnamed}
