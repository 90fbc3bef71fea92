"""What a model file may ask for: memory, nodes, levels of subgraphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from linnet.deploy.read.errors import UnreadableModel

MEMORY = 4 * 2**30
"""The default of the most bytes that a model may take: its weights, and all values of one call."""
NODES = 100_000
"""The most nodes of a graph with its subgraphs, and the most that one call may run in loops."""
DEPTH = 8
"""The most levels of subgraphs within each other."""
RANK = 16
"""The most dimensions of a tensor."""
LARGEST = 2**62


class Account:
    """Counts the bytes in use, and refuses what would exceed the limit before memory is taken."""

    def __init__(self, limit: int = MEMORY):
        self.limit = limit
        self.used = 0

    def check(self, more: int, what: str) -> None:
        if self.used + more > self.limit:
            raise UnreadableModel(
                f"{what} needs {more:,} bytes beside {self.used:,} in use, and the limit is {self.limit:,}; "
                "if you trust the file, raise memory_limit"
            )

    def take(self, more: int, what: str) -> None:
        self.check(more, what)
        self.used += more

    def free(self, size: int) -> None:
        self.used -= size


def size_of(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of tensors as if each value were stored, also of expanded ones."""
    return sum(each.numel() * each.element_size() for each in tensors if each is not None)


def checked_shape(shape: Sequence[int], what: str) -> list[int]:
    """Return the shape if a tensor could have it: few dimensions, none negative, a product in range."""
    # torch multiplies all lengths, also when one of them is 0.
    product = math.prod(max(length, 1) for length in shape)
    if len(shape) > RANK or any(length < 0 for length in shape) or product > LARGEST:
        raise UnreadableModel(f"{what} has the shape {list(shape)[:RANK]}, which no tensor has")
    return list(shape)


def bytes_of(shape: Sequence[int], dtype: torch.dtype, what: str) -> int:
    return math.prod(checked_shape(shape, what)) * dtype.itemsize
