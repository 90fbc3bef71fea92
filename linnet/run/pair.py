"""Both directions of a layer in one launch, as an autograd function.

This is for elementwise units with Triton: two directions are twice as many programs, and a GPU that one
direction does not fill takes no longer for both. Their outputs are written side by side, as the layer returns
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.program.operands import Flags, Operands, ends
from linnet.program.plan import Fusible
from linnet.program.trace import name_in_unit
from linnet.run.in_place import changeable
from linnet.run.samples import for_each_sample
from linnet.run.scan import aliases, reference_gradients, wants_gradients
from linnet.triton.passes import Side, backward_together, forward_together


class Scanned(NamedTuple):
    """One direction: its plan, and its operands, of which the first is the projection [T, B, n H]."""

    fusible: Fusible
    flags: Flags
    tensors: Sequence[Tensor]


def pair_scan(ahead: Scanned, back: Scanned) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return the outputs side by side, [T, B, 2 H], and the final states of each direction by name."""
    groups = ahead.tensors, back.tensors
    fusibles, flags = (ahead.fusible, back.fusible), (ahead.flags, back.flags)
    y, *finals = PairScan.apply(
        fusibles, flags, wants_gradients((*groups[0], *groups[1])), *groups[0], *groups[1]
    )
    names = [name_in_unit(name) for name in ahead.fusible.plan.traced.states]
    halves = finals[: len(names)], finals[len(names) :]
    return y, [dict(zip(names, half, strict=True)) for half in halves]


# Those of the forward direction and of the backward direction.
Fusibles = tuple[Fusible, Fusible]


def halves(tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    middle = len(tensors) // 2
    return list(tensors[:middle]), list(tensors[middle:])


class PairScan(torch.autograd.Function):
    """Arguments and results: those of the forward direction, then those of the backward direction."""

    @staticmethod
    def forward(
        ctx: Any, fusibles: Fusibles, flags: tuple[Flags, Flags], keep: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        sides = operands_of(fusibles, flags, tensors)
        y, sequences = forward_together(sides, keep)
        pairs = zip(sides, sequences, strict=True)
        finals = [end for side, kept in pairs for end in ends(side, kept, y.dtype)]
        if not keep:
            return y.detach(), *finals
        ctx.fusibles, ctx.count = fusibles, len(tensors)
        y, kept, ctx.changes = changeable(y, [*sequences[0], *sequences[1]])
        # Both directions have the same mask; each has its own resets.
        (mask, ahead, ctx.ahead), (_, back, ctx.back) = flags
        ctx.save_for_backward(mask, ahead, back, *tensors, *kept)
        return y, *finals

    @staticmethod
    @for_each_sample
    def backward(ctx: Any, dy: Tensor, *dfinals: Tensor) -> Any:
        mask, ahead, back, *saved = ctx.saved_tensors
        flags = (mask, ahead, ctx.ahead), (mask, back, ctx.back)
        tensors, sequences = saved[: ctx.count], halves(saved[ctx.count :])
        above = zip(dy.chunk(2, -1), halves(dfinals), strict=True)
        needed = halves(ctx.needs_input_grad[3:])
        if torch.is_grad_enabled():
            return None, None, None, *by_reference(ctx.fusibles, flags, aliases(tensors), needed, above)
        sides = operands_of(ctx.fusibles, flags, tensors)
        if ctx.changes:
            _, (ahead_again, back_again) = forward_together(sides, keep=True)
            sequences = ahead_again, back_again
        # One kernel computes both, so it computes a gradient if either direction needs it.
        either = [a or b for a, b in zip(*needed, strict=True)]
        whole = [
            Side(side, kept, either, *gradients)
            for side, kept, gradients in zip(sides, sequences, above, strict=True)
        ]
        found = [gradient for side in backward_together(whole) for gradient in side]
        pairs = zip(found, ctx.needs_input_grad[3:], strict=True)
        return None, None, None, *(gradient if need else None for gradient, need in pairs)


def operands_of(fusibles: Fusibles, flags: tuple[Flags, Flags], tensors: Sequence[Tensor]) -> list[Operands]:
    sides = zip(fusibles, flags, halves(tensors), strict=True)
    return [Operands(fusible.plan, half[0], half[1:], flag) for fusible, flag, half in sides]


def by_reference(
    fusibles: Fusibles,
    flags: tuple[Flags, Flags],
    tensors: Sequence[Tensor],
    needed: Iterable[Sequence[bool]],
    above: Iterable[tuple[Tensor, Sequence[Tensor]]],
) -> list[Tensor | None]:
    """Gradients that can be differentiated again."""
    sides = operands_of(fusibles, flags, tensors)
    parts = zip(fusibles, sides, halves(tensors), needed, above, strict=True)
    gradients: list[Tensor | None] = []
    for fusible, side, sources, needs, (dy, dfinals) in parts:
        gradients += reference_gradients(fusible.step, side, sources, needs, (dy, *dfinals))
    return gradients
