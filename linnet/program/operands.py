"""The tensors that a scan reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.program import blocks
from linnet.program.padding import Padding
from linnet.program.plan import Plan

Flags = tuple[Tensor | None, Tensor | None, bool]  # mask, resets, reverse
NO_FLAGS: Flags = (None, None, False)


def arithmetic(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which kernels compute with tensors of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Like `Tensor.to`, without its cost if the dtype is the same."""
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


class Source(NamedTuple):
    """The operands of a projection: x [T, B, D], weight [n H, D / heads], bias [m H] of the last m parts.

    second   a bias that is added to `bias`, but for its last `apart` numbers. Kernels read the sum of both
    """

    x: Tensor
    weight: Any  # a Tensor; None if x is the projection
    bias: Tensor | None
    heads: int = 1
    second: Tensor | None = None
    apart: int = 0

    def summed(self) -> Source:
        """The same with one bias."""
        return self._replace(bias=sum_of_biases(self.bias, self.second, self.apart), second=None, apart=0)

    def linear(self, parts: int) -> Tensor:
        bias = self.bias
        if bias is not None and len(bias) < len(self.weight):
            bias = F.pad(bias, (len(self.weight) - len(bias), 0))
        return blocks.linear(self.x, self.weight, bias, self.heads, parts)


def sum_of_biases(first: Tensor | None, second: Tensor | None, apart: int) -> Tensor | None:
    """first + second, but for the last `apart` numbers of the second; with gradients."""
    if first is None or second is None:
        return first
    return first + (F.pad(second[:-apart], (0, apart)) if apart else second)


def add_biases(first: Tensor, second: Tensor, apart: int, out: Tensor | None = None) -> Tensor:
    """`sum_of_biases` without gradients, in one operation."""
    if not apart:
        return torch.add(first, second, out=out)
    return torch.addcmul(first, second, summands(len(first), apart, first.dtype, first.device), out=out)


@cache
def summands(count: int, apart: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1 for each number that is added, and 0 for the last `apart`."""
    with torch.inference_mode(False):
        return (torch.arange(count, device=device) < count - apart).to(dtype)


class Operands:
    """The operands of a scan.

    joint      [T, B, n H]: the first n inputs of the step side by side; if the kernel
               computes them, in the dtype of arithmetic, or only a buffer for a few steps
    extras     [T, B, H]: the inputs that follow
    weights    [H]
    states     [B, H]
    matrices   [parts * H, H / heads]: those of the products and of the inner products
    source     the operands of the projection, if the kernel computes it
    drops      [B, H] for each product: the mask by which it multiplies the state
    is_single  a scan of one step reads the given states and writes the new ones, without memory for both
    padding    if only the real steps are stored: [T, B] of the sequences and of the resets is [N, 1]
    pads_output   that of the output is [T, B], with zeros at padded steps

    Without inner products, all H are the same number. Else each is that of a group; see program/phases.py.
    """

    def __init__(
        self,
        plan: Plan,
        joint: Any,
        tensors: Sequence[Tensor],
        flags: Flags = NO_FLAGS,
        source: Source | None = None,
        drops: Sequence[Tensor] = (),
        padding: Padding | None = None,
        pads_output: bool = False,
    ):
        """`tensors`: the extras, weights, states and matrices. `joint` may be None if there is a source."""
        self.is_single = False  # set by kernels that run it so
        extras, weights, states = plan.ends
        self.plan, self.joint, self.source, self.drops = plan, joint, source, drops
        self.padding, self.pads_output = padding, pads_output
        self.mask, self.resets, self.reverse = flags
        self.extras, self.weights = tensors[:extras], tensors[extras:weights]
        self.states, self.matrices = tensors[weights:states], tensors[states:]
        like = joint if source is None else source.x
        self.dtype, self.real = like.dtype, arithmetic(like.dtype)
        # Of each group, the first of which is that of the first projection.
        self.sizes = plan.sizes(self.weights, self.states, self.matrices)
        steps, batch, _ = like.shape
        # The shapes of a sequence, and of the states of all steps, without the channels.
        self.rows, self.slots = (steps, batch), (steps + 1, batch)
        if padding is not None:
            steps, batch = padding.steps, padding.batch
            self.slots = (batch + padding.count, 1)
        self.shape = (steps, batch, self.sizes[0])

    @property
    def flags(self) -> Flags:
        return self.mask, self.resets, self.reverse

    def unpacked(self) -> Operands:
        """The same with all steps, and a mask; with gradients."""
        padding = self.padding
        assert padding is not None
        extras = [padding.unpacked(extra) for extra in self.extras]
        tensors = [*extras, *self.weights, *self.states, *self.matrices]
        flags = (padding.real_steps, padding.unpack_flags(self.resets), self.reverse)
        return Operands(self.plan, padding.unpacked(self.joint), tensors, flags, drops=self.drops)

    def in_order(self, rows: Tensor) -> Tensor:
        """[B, size] in the order in which kernels read the sequences of a batch."""
        return rows if self.padding is None else rows.index_select(0, self.padding.order)

    def out_of_order(self, rows: Tensor) -> Tensor:
        return rows if self.padding is None else rows.index_select(0, self.padding.rank)

    def write_first(self, sequence: Tensor, start: Tensor) -> None:
        """Write the initial state [B, size] into the states of all steps."""
        if self.padding is None:
            sequence[-1 if self.reverse else 0] = start
        else:
            rows = self.padding.first_rows(self.reverse)
            sequence[:, 0].index_copy_(0, rows, as_dtype(start, sequence.dtype))

    def final(self, sequence: Tensor) -> Tensor:
        """The final state [B, size], of the states of all steps or of one slot."""
        if self.padding is None:
            return sequence[0 if self.reverse else -1]
        if len(sequence) == 1:
            return self.out_of_order(sequence[0])
        return sequence[:, 0].index_select(0, self.padding.last_rows(self.reverse))

    def before_each_step(self, sequence: Tensor) -> Tensor:
        """The states that the steps have read."""
        if self.padding is not None and not self.reverse:
            return sequence.index_select(0, self.padding.read_rows)
        return self.following(sequence) if self.reverse else sequence[:-1]

    def after_each_step(self, sequence: Tensor) -> Tensor:
        """The states that the steps have written; not for padded sequences in the backward direction."""
        return sequence[:-1] if self.reverse else self.following(sequence)

    def following(self, sequence: Tensor) -> Tensor:
        """All slots of a state but the first."""
        return sequence[1 if self.padding is None else self.padding.batch :]

    def size_of(self, name: str) -> int:
        """The number of channels of an input, state or weight, of y, or of what an inner product reads."""
        return self.sizes[self.plan.groups[name]]

    def offsets(self) -> dict[str, int]:
        """At which channel of `joint` each projection starts."""
        return self.plan.offsets(self.sizes)


def ends(operands: Operands, sequences: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """The final states: copies, so that the states of all steps can be freed."""
    if operands.is_single:
        return list(sequences)
    made = []
    for sequence in sequences:
        end = operands.final(sequence)
        if end.dtype is not dtype:
            end = end.to(dtype)
        elif operands.padding is None and sequence.shape[0] > 1:  # that of padded sequences is a copy already
            end = end.clone()
        made.append(end)
    return made
