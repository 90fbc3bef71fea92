"""Checks of what a block is called with: errors say what was expected and what came."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from linnet.base.errors import InputError, InputTypeError
from linnet.recurrent.sequence import check_flags


def check_call(block: nn.Module, x: Tensor, size: int, resets: Tensor | None) -> None:
    name = type(block).__name__
    if not isinstance(x, Tensor):
        raise InputTypeError(f"{name} takes x as a Tensor; got {type(x).__name__}")
    if x.dim() != 3 or x.shape[-1] != size:
        raise InputError(f"{name} takes x as [time, batch, {size}]; got x of shape {tuple(x.shape)}")
    if resets is not None:
        check_flags("resets", resets, tuple(x.shape[:2]), "[time, batch]", x.device)


def check_state(block: nn.Module, state: Any, like: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors of a state, which must have the shapes of the named tuple `like`."""
    names = like._fields  # type: ignore[attr-defined]
    given = tuple(state) if isinstance(state, (tuple, list)) else (state,)
    if len(given) != len(names) or not all(isinstance(tensor, Tensor) for tensor in given):
        got = ", ".join(type(tensor).__name__ for tensor in given)
        raise InputTypeError(
            f"the state of {type(block).__name__} is a tuple ({', '.join(names)}); got ({got})"
        )
    for name, tensor, expected in zip(names, given, like, strict=True):
        if tensor.shape != expected.shape:
            raise InputError(
                f"the state {name!r} of {type(block).__name__} must have shape {tuple(expected.shape)}; "
                f"got {tuple(tensor.shape)}"
            )
    return given
