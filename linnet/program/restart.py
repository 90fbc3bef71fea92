"""Resets to a given state instead of zeros.

At a reset, kernels set the state and its products with matrices to zeros. To start from another state, the
step adds that state and its products to those zeros. Both are further inputs of the step, [T, B, size], which
are zeros at all other steps. So kernels, their gradients and exports know nothing of such resets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from linnet.program import blocks
from linnet.program.unit import Named, Unit


def start_of(name: str) -> str:
    """The input that a reset adds to a state, or to a product with it."""
    return f"reset.{name}"


def named_starts(states: Named) -> Named:
    return {start_of(name): state for name, state in states.items()}


def starts_of(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(start_of, names))


def restarted(values: Named, inputs: Named) -> Named:
    """States or products at the start of a step, with what a reset adds to them."""
    added = {name: inputs[start_of(name)] for name in values if start_of(name) in inputs}
    return {**values, **{name: values[name] + start for name, start in added.items()}} if added else values


def restart_inputs(
    cell: Unit, resets: Tensor, reset_state: Named, masks: Mapping[str, Tensor], countable: bool
) -> Named:
    """What resets [T, B] to `reset_state`, [B, size] or [T, B, size] by name, add at each step.

    masks       by state: which of its channels the recurrent matrices read
    countable   the resets can be counted, so that products are computed for these only
    """
    inputs = {start_of(name): at_resets(resets, state) for name, state in reset_state.items()}
    for stage in cell.stages():
        for attribute, name in stage.recurrence.items():
            projection, start = getattr(cell, attribute), inputs[start_of(name)]
            visible = start * masks[name] if masks else start
            how = (projection.weight, None, projection.heads, len(projection.parts))
            joint = product_at(resets, visible, *how) if countable else blocks.linear(visible, *how)
            parts = joint.split(list(projection.parts.values()), -1)
            inputs |= zip(starts_of(projection.parts), parts, strict=True)
    return inputs


def at_resets(resets: Tensor, state: Tensor) -> Tensor:
    """[T, B, size]: the state at a reset, zeros elsewhere."""
    return torch.where(resets[..., None], state, torch.zeros((), dtype=state.dtype, device=state.device))


def product_at(resets: Tensor, start: Tensor, matrix: Tensor, *how: Any) -> Tensor:
    """`blocks.linear`, where `start` is zeros at all steps without a reset."""
    rows = resets.flatten().nonzero()[:, 0]
    made = blocks.linear(start.flatten(0, 1)[rows], matrix, *how)
    return made.new_zeros(resets.numel(), len(matrix)).index_copy(0, rows, made).view(*resets.shape, -1)
