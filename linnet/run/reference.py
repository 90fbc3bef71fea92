"""The loop over time that defines what every kernel must compute."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from linnet.run.kept_states import collect, is_collecting

Values = dict[str, Tensor]


def scan(
    step: Callable[[Values, Values], tuple[Tensor, Values]],
    parts: Values,
    state: Values,
    mask: Tensor | None = None,
    resets: Tensor | None = None,
    reverse: bool = False,
    reset_state: Values | None = None,
) -> tuple[Tensor, Values]:
    """Call `step` at each time step.

    parts    [T, B, ...] by name: the inputs of each step besides the state
    state    [B, ...] by name
    mask     [T, B], True where a step is real; elsewhere the state stays and the output is 0
    resets   [T, B], True where the state is set to `reset_state` before the step

    reset_state   [B, ...] by name, or [T, B, ...] with one for each step (default: zeros)
    """
    times = len(next(iter(parts.values())))
    slices = {name: part.unbind(0) for name, part in parts.items()}
    start = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    start = {name: s.expand(times, *state[name].shape) for name, s in (reset_state or start).items()}
    outputs: list[Tensor] = []
    states = [state]
    for t in reversed(range(times)) if reverse else range(times):
        if resets is not None:
            state = choose_state(resets[t], {name: s[t] for name, s in start.items()}, state)
        y, new = step({name: part[t] for name, part in slices.items()}, state)
        state = new if mask is None else choose_state(mask[t], new, state)
        outputs.append(y)
        if is_collecting():
            states.append(state)
    y = torch.stack(outputs[::-1] if reverse else outputs)
    if is_collecting():
        ordered = states[::-1] if reverse else states
        collect({name: torch.stack([each[name] for each in ordered]) for name in state}, reverse)
    # Filled instead of multiplied, so that a NaN in the gradient of a padded step does not spread.
    return (y if mask is None else y.masked_fill(~mask[..., None], 0)), state


def choose_state(where: Tensor, yes: Values, no: Values) -> Values:
    """Choose the state `yes` or `no` for each sequence of the batch."""
    return {name: torch.where(where[:, None], yes[name], no[name]) for name in no}
