"""The loop over time that defines what every kernel must compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Values = dict[str, Tensor]


def scan(
    step: Callable[[Values, Values], tuple[Tensor, Values]],
    parts: Values,
    state: Values,
    mask: Tensor | None = None,
    resets: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Values]:
    """Take `step` along time.

    parts    [T, B, ...] by name: what each step reads beside the state
    state    [B, ...] by name
    mask     [T, B], True where a step is real; elsewhere the state stays and the output is 0
    resets   [T, B], True where a sequence starts anew from a state of zeros, seen along time
    """
    times = len(next(iter(parts.values())))
    slices = {name: part.unbind(0) for name, part in parts.items()}
    start = {name: torch.zeros_like(held) for name, held in state.items()}
    outputs: list[Tensor] = []
    for t in reversed(range(times)) if reverse else range(times):
        if resets is not None:
            state = choose_state(resets[t], start, state)
        y, new = step({name: part[t] for name, part in slices.items()}, state)
        state = new if mask is None else choose_state(mask[t], new, state)
        outputs.append(y)
    y = torch.stack(outputs[::-1] if reverse else outputs)
    # Filled and not multiplied, so that a NaN in the gradient of a padded step stops there as well.
    return (y if mask is None else y.masked_fill(~mask[..., None], 0)), state


def choose_state(where: Tensor, yes: Values, no: Values) -> Values:
    """For each sequence of the batch one state or the other."""
    return {name: torch.where(where[:, None], yes[name], no[name]) for name in no}
