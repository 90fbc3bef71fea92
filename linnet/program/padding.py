"""Padded sequences [T, B, D] of which only the real steps are stored and computed.

In the packed layout, the sequences are sorted by the number of their real steps, the longest first, and the
steps follow each other: first that of all sequences at time 0, then that of those which have a second step:

    lengths 3, 1, 2    rows  0 2 1 | 0 2 | 0      starts of the slots of a state  0, 3, 6, 8, 9

So a step reads and writes the first rows of the batch, and every matrix product reads real rows only. It is
the layout of torch's PackedSequence. The time of a step is its number among the real steps of its sequence:
padding may be anywhere.

A packed tensor is [N, 1, D], where N is the number of real steps. The states of all steps have a slot more:
in a forward scan, the first B rows are the initial state; in a backward scan, row `edges[b]` is that of b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

# With no more sequences than this, kernels for few rows run, which read a mask.
FEW_SEQUENCES = 3


class Pair:
    """A tensor in both layouts."""

    def __init__(self, padded: Tensor, packed: Tensor):
        self.padded, self.packed = padded, packed
        self.version = None if padded.is_inference() else padded._version

    def has(self, part: Tensor) -> bool:
        """Whether `part` is the padded tensor, unchanged, or some of its channels."""
        whole = self.padded
        if self.version is not None and whole._version != self.version:
            return False
        if part is whole:
            return True
        if part.shape[:-1] != whole.shape[:-1] or part.stride() != whole.stride():
            return False
        return part.dtype is whole.dtype and 0 <= self.column(part) <= whole.shape[-1] - part.shape[-1]

    def part(self, part: Tensor) -> Tensor:
        """The same part of the packed tensor."""
        first, size = self.column(part), part.shape[-1]
        return self.packed if size == self.packed.shape[-1] else self.packed[..., first : first + size]

    def column(self, part: Tensor) -> int:
        return (part.data_ptr() - self.padded.data_ptr()) // part.element_size()


@lru_cache(maxsize=16)
def slot_times(steps: int) -> Tensor:
    """[T + 2, 1]: the time that each slot of a state belongs to.

    No sequence has a step at the first, so that slot 0 starts at 0; and all have one at the second, -1.
    """
    with torch.inference_mode(False):
        edges = torch.tensor([1 << 62, -1], device="cpu")
        return torch.cat([edges, torch.arange(steps, device="cpu")])[:, None]


def step_times(steps: int) -> Tensor:
    """[T, 1]."""
    return slot_times(steps)[2:]


class Padding:
    """Which steps of a batch are real, and where they are in the packed layout.

    mask      [T, B]: True where a step is real
    lengths   [B]: the number of real steps; None if it is to be counted
    is_sorted the longest sequence is the first
    """

    def __init__(self, mask: Tensor, lengths: Tensor | None = None, is_sorted: bool = False):
        self.mask, (self.steps, self.batch) = mask, mask.shape
        self.lengths = mask.sum(0) if lengths is None else lengths
        by_length, self.order = self.lengths.sort(descending=True, stable=True)
        self.rank = self.order if is_sorted else self.order.argsort()
        slots = slot_times(self.steps) < by_length
        # [T + 2]: where each slot of the states starts, and the end.
        self.starts = slots.sum(1).cumsum(0)
        self.within = slots[2:]
        self.index = self.places(lengths is None).masked_select(self.within)
        self.count = self.index.shape[0]
        # What is packed already, and is not copied again: the input of the layers, which may be anything at
        # padded steps, and that of the layer that runs.
        self.raw: Pair | None = None
        self.last: Pair | None = None
        # Whether all that is done with the output of a scan is to pack it.
        self.packs_output = False

    def places(self, is_anywhere: bool) -> Tensor:
        """[T, B]: at which of T * B places the steps of each sequence are, in the order of `order`."""
        if not is_anywhere:
            return step_times(self.steps) * self.batch + self.order
        real_first = self.mask.to(torch.uint8).argsort(dim=0, descending=True, stable=True)
        return real_first.index_select(1, self.order) * self.batch + self.order

    @cached_property
    def edges(self) -> Tensor:
        """[B]: the row of the last state of each sequence."""
        return self.starts.index_select(0, self.lengths) + self.rank

    @cached_property
    def inverse(self) -> Tensor:
        """[T * B]: the row of each step in the packed layout; `count` for padding."""
        made = torch.full((self.steps * self.batch,), self.count, device="cpu")
        return made.index_copy_(0, self.index, torch.arange(self.count, device="cpu"))

    @property
    def real_steps(self) -> Tensor:
        """The mask, also if the tensor that was given has been changed in place since."""
        return (self.inverse < self.count).view(self.steps, self.batch)

    @cached_property
    def read_rows(self) -> Tensor:
        """[N]: which row of the states a forward step has read."""
        rows = self.starts[: self.steps, None] + torch.arange(self.batch, device="cpu")
        return rows.masked_select(self.within)

    # ------------------------------------------------------------------------------------ sequences

    def pack(self, padded: Tensor) -> Tensor:
        """[T, B, D] -> [N, 1, D]."""
        packed = self.known(padded)
        if packed is None:
            packed = self.packed(padded)
            self.remember(padded, packed)
        return packed

    def pack_extra(self, padded: Tensor) -> Tensor:
        """`pack` of an input besides that of the projection, which may be a part of that one."""
        packed = self.known(padded)
        return self.packed(padded) if packed is None else packed

    def known(self, padded: Tensor) -> Tensor | None:
        pairs = [pair for pair in (self.raw, self.last) if pair is not None and pair.has(padded)]
        return pairs[0].part(padded) if pairs else None

    def unpack(self, packed: Tensor) -> Tensor:
        """[N, 1, D] -> [T, B, D], with zeros at padded steps."""
        padded = self.unpacked(packed)
        self.remember(padded, packed)
        return padded

    def standing_for(self, packed: Tensor) -> Pair:
        """A tensor [T, B, D] without contents, for which `packed` stands."""
        size = packed.shape[-1]
        return Pair(packed.new_empty(size).expand(self.steps, self.batch, size), packed)

    def take(self, packed: Tensor) -> Tensor:
        """The input of the layers if it is packed already; see `packing`."""
        self.raw = self.standing_for(packed)
        return self.raw.padded

    def give(self, packed: Tensor) -> Tensor:
        """The output of a scan, [T, B, D]."""
        if not self.packs_output:
            return self.unpack(packed)
        self.last = self.standing_for(packed)
        return self.last.padded

    def remember(self, padded: Tensor, packed: Tensor) -> None:
        if not padded.is_inference():  # its changes in place are not counted
            self.last = Pair(padded, packed)

    def packed(self, padded: Tensor) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and padded.requires_grad
        return Pack.apply(padded, self) if needs_gradient else self.gather(padded)

    def unpacked(self, packed: Tensor) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and packed.requires_grad
        return Unpack.apply(packed, self) if needs_gradient else self.scatter(packed)

    def gather(self, padded: Tensor) -> Tensor:
        size = padded.shape[-1]
        return padded.reshape(-1, size).index_select(0, self.index).view(-1, 1, size)

    def scatter(self, packed: Tensor) -> Tensor:
        size = packed.shape[-1]
        rows = torch.cat([packed.view(-1, size), packed.new_zeros(1, size)])
        return rows.index_select(0, self.inverse).view(self.steps, self.batch, size)

    def for_each_step(self, rows: Tensor) -> Tensor:
        """[B, size] -> [N, 1, size]: the same for all steps of a sequence."""
        return rows.index_select(0, self.index % self.batch)[:, None]

    def pack_flags(self, flags: Tensor | None) -> Tensor | None:
        """[T, B] -> [N, 1]."""
        return None if flags is None else self.gather(flags[..., None])[..., 0]

    def unpack_flags(self, flags: Tensor | None) -> Tensor | None:
        """[N, 1] -> [T, B]."""
        return None if flags is None else self.scatter(flags[..., None])[..., 0]

    # --------------------------------------------------------------------------------------- states

    def first_rows(self, reverse: bool) -> Tensor:
        """[B]: the rows of the states that hold the initial state of each sequence."""
        return self.edges if reverse else self.rank

    def last_rows(self, reverse: bool) -> Tensor:
        return self.rank if reverse else self.edges


class Pack(torch.autograd.Function):
    """`Padding.pack`."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, padding: Padding) -> Tensor:
        ctx.padding = padding
        return padding.gather(padded)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        return ctx.padding.unpacked(above), None


class Unpack(torch.autograd.Function):
    """`Padding.unpack`."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, padding: Padding) -> Tensor:
        ctx.padding = padding
        return padding.scatter(packed)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        return ctx.padding.packed(above), None


# That of the layers which run.
current: ContextVar[Padding | None] = ContextVar("linnet_padding", default=None)


@contextmanager
def packing(padding: Padding | None, raw: Tensor | None = None) -> Iterator[None]:
    """Within this context, scans that get the mask of `padding` compute only the real steps.

    raw   an input that may be anything at padded steps, for example NaN, which must reach no result and no
          gradient: whoever does not pack it has to read `cleared(raw)`
    """
    token = current.set(padding)
    if padding is not None and raw is not None:
        padding.raw = Pair(raw, padding.packed(raw))
    try:
        yield
    finally:
        current.reset(token)
        if padding is not None:  # the graph of these tensors references the padding
            padding.raw = padding.last = None


def cleared(x: Tensor) -> Tensor:
    """x with zeros at padded steps."""
    padding = None if is_compiling() else current.get()
    if padding is None or padding.raw is None or x is not padding.raw.padded:
        return x
    return padding.unpack(padding.raw.packed)


def only_selects(method: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a unit's `extra_inputs` or `output` that returns channels of what it is given as they are.

    Such extra inputs may read x with anything at padded steps, and such an output is 0 where the states are.
    """
    method.only_selects = True  # type: ignore[attr-defined]
    return method


def padding_of(mask: Tensor | None) -> Padding | None:
    """The padding for this mask, if there is one."""
    if mask is None or is_compiling():  # a compiler cannot trace the context variable
        return None
    padding = current.get()
    return padding if padding is not None and padding.mask is mask else None
