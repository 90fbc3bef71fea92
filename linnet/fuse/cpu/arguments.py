"""The arguments of a kernel that is prepared once and called again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from linnet.fuse.cpu.program import HEADER


class Arguments:
    """The arguments of a kernel, in places that each call may write again."""

    def __init__(self, numbers: Any, names: Sequence[str]):
        self.numbers = numbers
        self.places = {name: len(HEADER) + 3 * i for i, name in enumerate(names)}

    def put(self, name: str, tensor: Tensor, offset: int = 0) -> None:
        """Write the address and strides of [T, B, size], [B, size] or [size], from channel `offset` on."""
        at, each, strides = self.places[name], tensor.element_size(), tensor.stride()
        self.numbers[at] = tensor.data_ptr() + offset * each
        self.numbers[at + 1] = strides[0] * each if len(strides) > 2 else 0
        self.numbers[at + 2] = strides[-2] * each if len(strides) > 1 else 0

    def put_numbers(self, name: str, *numbers: int) -> None:
        at = self.places[name]
        for i, number in enumerate(numbers):
            self.numbers[at + i] = number
