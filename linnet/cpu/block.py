"""The arguments of a kernel: the numbers of program.HEADER, then three numbers for each operand.

A binding has one block and writes it again at each call, so that it need not be laid out again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from linnet.cpu.program import HEADER
from linnet.program.padding import Padding

AT = {name: i for i, name in enumerate(HEADER)}
AT_MASK, AT_RESETS = AT["mask"], AT["resets"]


class Block:
    """Arguments in places that each call may write again; `numbers` is what a kernel gets."""

    def __init__(self, names: Sequence[str]):
        self.places = {name: len(HEADER) + 3 * i for i, name in enumerate(names)}
        self.numbers = array("q", bytes(8 * (len(HEADER) + 3 * len(names))))
        self.is_packed = False
        # Places whose strides are the same in each call, and have been written.
        self.laid_out: set[int] = set()
        # Tensors of fixed addresses, which live as long as the block.
        self.alive: list[Tensor] = []

    def set(self, **header: int) -> None:
        for name, number in header.items():
            self.numbers[AT[name]] = number

    def set_padding(self, padding: Padding | None, apart: int, pads_output: bool) -> None:
        """Only the real steps of sequences are stored, [N, 1, size]; `apart`: the parts of the rows."""
        self.is_packed = padding is not None
        if padding is not None:
            places = padding.index.data_ptr() if pads_output else 0
            self.set(starts=padding.starts.data_ptr(), apart=apart, places=places)

    def set_flags(self, mask: Tensor | None, resets: Tensor | None) -> None:
        numbers = self.numbers
        if mask is None and resets is None:
            numbers[AT_MASK] = numbers[AT_RESETS] = 0
            return
        for at, flag in ((AT_MASK, mask), (AT_RESETS, resets)):
            if flag is None:
                numbers[at] = 0
            else:
                time, row = flag.stride()
                numbers[at], numbers[at + 1] = flag.data_ptr(), time
                numbers[at + 2] = time if self.is_packed else row

    def put(self, name: str, tensor: Tensor, offset: int = 0) -> Tensor:
        """Write the address and strides of [T, B, size], [B, size] or [size], from channel `offset` on."""
        return self.put_at(self.places[name], tensor, offset)

    def put_at(self, at: int, tensor: Tensor, offset: int = 0) -> Tensor:
        each, strides, numbers = tensor.element_size(), tensor.stride(), self.numbers
        numbers[at] = tensor.data_ptr() + offset * each
        if len(strides) == 3:
            time, row, _ = strides
            # In [N, 1, size] the rows are along the first dimension, as the steps are.
            numbers[at + 1], numbers[at + 2] = time * each, (time if self.is_packed else row) * each
        else:
            numbers[at + 1], numbers[at + 2] = 0, strides[0] * each if len(strides) == 2 else 0
        return tensor

    def parts_at(self, parts: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
        """The places of parts of a tensor, by their names, with their offsets; for `put_parts`."""
        return [(self.places[name], offset) for name, offset in parts]

    def put_parts(self, parts: Sequence[tuple[int, int]], tensor: Tensor) -> None:
        """`put_at` of several places, with their offsets in one tensor, [T, B, size] or [B, size]."""
        for at, offset in parts:
            self.put_at(at, tensor, offset)

    def put_buffer(self, at: int, buffer: Tensor) -> Tensor:
        """`put_at` of memory that a binding creates for each call, with the same strides."""
        if at in self.laid_out:
            self.numbers[at] = buffer.data_ptr()
            return buffer
        self.laid_out.add(at)
        return self.put_at(at, buffer)

    def put_parts_of_buffer(self, parts: Sequence[tuple[int, int]], buffer: Tensor) -> None:
        """`put_parts` of memory that a binding creates for each call."""
        address, each, numbers = buffer.data_ptr(), buffer.element_size(), self.numbers
        for at, offset in parts:
            if at in self.laid_out:
                numbers[at] = address + offset * each
            else:
                self.laid_out.add(at)
                self.put_at(at, buffer, offset)

    def put_numbers(self, name: str, first: int, second: int, third: int) -> None:
        at, numbers = self.places[name], self.numbers
        numbers[at], numbers[at + 1], numbers[at + 2] = first, second, third

    def put_fixed(self, name: str, tensor: Tensor) -> None:
        """`put` of a tensor that all calls read."""
        self.alive.append(self.put(name, tensor))


class Biases:
    """The biases of `count` rows of a matrix, in groups of `size` rows, for kernels that read whole panels.

    The first groups may have no bias. Zeros stand for those, and fill the last panel of each group.
    """

    def __init__(self, bias: Tensor | None, count: int, size: int, panel: int, dtype: torch.dtype):
        with torch.inference_mode(False):  # a later call outside of that mode writes it, too
            self.groups = torch.zeros(count // size, -(-size // panel) * panel, dtype=dtype, device="cpu")
        biased = 0 if bias is None else bias.shape[0] // size
        self.copied = self.groups[count // size - biased :, :size]
        self.is_whole = self.copied.numel() == self.groups.numel() and bias is not None
        if self.copied.is_contiguous():
            self.copied = self.copied.flatten()

    def of(self, bias: Tensor | None) -> Tensor:
        """The present biases as the kernel reads them, valid until the next call."""
        if bias is None:
            return self.groups
        if self.is_whole and bias.dtype is self.groups.dtype and bias.is_contiguous():
            return bias
        self.copied.copy_(bias if self.copied.dim() == 1 else bias.detach().view(self.copied.shape))
        return self.groups
