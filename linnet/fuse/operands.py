"""The tensors that a scan reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse.plan import Plan

Flags = tuple[Tensor | None, Tensor | None, bool]  # mask, resets, reverse


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which kernels compute with tensors of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Like `Tensor.to`, without its cost if the dtype is the same."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


class Source(NamedTuple):
    """The operands of a projection: x [T, B, D], weight [n H, D], bias [m H] of the last m parts."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def linear(self) -> Tensor:
        bias = self.bias
        if bias is not None and len(bias) < len(self.weight):
            bias = F.pad(bias, (len(self.weight) - len(bias), 0))
        return F.linear(self.x, self.weight, bias)


@dataclass
class Operands:
    """The operands of a scan.

    joint      [T, B, n H]: the first n inputs of the step side by side; if the kernel
               computes them, in the dtype of arithmetic, or only a buffer for a few steps
    extras     [T, B, H]: the inputs that follow
    weights    [H]
    states     [B, H]
    matrices   [parts * H, H]: those of the products and of the inner products

    Without inner products, all H are the same number. Else each is that of a group; see fuse/phases.py.
    """

    plan: Plan
    joint: Tensor
    extras: list[Tensor]
    weights: list[Tensor]
    states: list[Tensor]
    matrices: list[Tensor]
    mask: Tensor | None = None
    resets: Tensor | None = None
    reverse: bool = False
    source: Source | None = None  # the operands of the projection, if the kernel computes it
    drops: Sequence[Tensor] = ()  # [B, H] for each product: the mask by which it multiplies the state

    @classmethod
    def of(
        cls,
        plan: Plan,
        flags: tuple[Any, Any, Any],
        tensors: Sequence[Any],
        source: Source | None = None,
        drops: Sequence[Tensor] = (),
    ) -> Operands:
        """Create operands from the flat list of `tensors`."""
        joint, *rest = tensors
        groups = []
        for names in (plan.matrices, plan.traced.states, plan.traced.weights):
            cut = len(rest) - len(names)
            groups.append(rest[cut:])
            rest = rest[:cut]
        matrices, states, weights = groups
        return cls(plan, joint, rest, weights, states, matrices, *flags, source, drops)

    def __post_init__(self) -> None:
        like = self.joint if self.source is None else self.source.x
        self.dtype, self.real = like.dtype, arithmetic(like.dtype)
        # Of each group, the first of which is that of the first projection.
        self.sizes = self.plan.sizes(self.weights, self.states, self.matrices)
        self.shape = (*like.shape[:2], self.sizes[0])
        self.joint_names, self.extra_names = self.plan.projected, self.plan.extras

    def size_of(self, name: str) -> int:
        """The number of channels of an input, state or weight, of y, or of what an inner product reads."""
        return self.sizes[self.plan.groups[name]]

    def offsets(self) -> dict[str, int]:
        """At which channel of `joint` each projection starts."""
        return self.plan.offsets(self.sizes)
