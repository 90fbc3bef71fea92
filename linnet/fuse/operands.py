"""The tensors that a scan reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse.plan import Plan

Flags = tuple[Tensor | None, Tensor | None, bool]  # mask, resets, reverse
NO_FLAGS: Flags = (None, None, False)


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which kernels compute with tensors of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Like `Tensor.to`, without its cost if the dtype is the same."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


class Source(NamedTuple):
    """The operands of a projection: x [T, B, D], weight [n H, D], bias [m H] of the last m parts."""

    x: Tensor
    weight: Any  # a Tensor; None if x is the projection
    bias: Tensor | None

    def linear(self) -> Tensor:
        bias = self.bias
        if bias is not None and len(bias) < len(self.weight):
            bias = F.pad(bias, (len(self.weight) - len(bias), 0))
        return F.linear(self.x, self.weight, bias)


class Operands:
    """The operands of a scan.

    joint      [T, B, n H]: the first n inputs of the step side by side; if the kernel
               computes them, in the dtype of arithmetic, or only a buffer for a few steps
    extras     [T, B, H]: the inputs that follow
    weights    [H]
    states     [B, H]
    matrices   [parts * H, H]: those of the products and of the inner products
    source     the operands of the projection, if the kernel computes it
    drops      [B, H] for each product: the mask by which it multiplies the state

    Without inner products, all H are the same number. Else each is that of a group; see fuse/phases.py.
    """

    def __init__(
        self,
        plan: Plan,
        joint: Any,
        tensors: Sequence[Tensor],
        flags: Flags = NO_FLAGS,
        source: Source | None = None,
        drops: Sequence[Tensor] = (),
    ):
        """`tensors`: the extras, weights, states and matrices. `joint` may be None if there is a source."""
        extras, weights, states = plan.ends
        self.plan, self.joint, self.source, self.drops = plan, joint, source, drops
        self.mask, self.resets, self.reverse = flags
        self.extras, self.weights = tensors[:extras], tensors[extras:weights]
        self.states, self.matrices = tensors[weights:states], tensors[states:]
        like = joint if source is None else source.x
        self.dtype, self.real = like.dtype, arithmetic(like.dtype)
        # Of each group, the first of which is that of the first projection.
        self.sizes = plan.sizes(self.weights, self.states, self.matrices)
        steps, batch, _ = like.shape
        self.shape = (steps, batch, self.sizes[0])

    @property
    def flags(self) -> Flags:
        return self.mask, self.resets, self.reverse

    def size_of(self, name: str) -> int:
        """The number of channels of an input, state or weight, of y, or of what an inner product reads."""
        return self.sizes[self.plan.groups[name]]

    def offsets(self) -> dict[str, int]:
        """At which channel of `joint` each projection starts."""
        return self.plan.offsets(self.sizes)
