"""How the numbers of a buffer are read: from where, in which shape, and how far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """Some of the numbers of the buffer or constant `base`, with the shape and strides of a tensor."""

    base: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.base}[{self.offset}:]" if self.offset else self.base

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        return self.squeezed == row_major([size for size in self.shape if size > 1])

    @property
    def squeezed(self) -> tuple[int, ...]:
        """The strides of the dimensions of more than one number."""
        return tuple(stride for size, stride in zip(self.shape, self.strides, strict=True) if size > 1)

    def reshaped(self, shape: Sequence[int]) -> View:
        """The same numbers in another shape; they must lie side by side."""
        assert self.is_contiguous or tuple(shape) == self.shape
        return (
            self
            if tuple(shape) == self.shape
            else View(self.base, self.offset, tuple(shape), row_major(shape))
        )

    def strides_in(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The strides if this view is broadcast to `shape`, for its dimensions of more than one number."""
        missing = len(shape) - len(self.shape)
        sizes, strides = [1] * missing + list(self.shape), [0] * missing + list(self.strides)
        pairs = zip(sizes, strides, shape, strict=True)
        return tuple(0 if size == 1 else stride for size, stride, whole in pairs if whole > 1)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def whole(base: str, shape: Sequence[int]) -> View:
    return View(base, 0, tuple(shape), row_major(shape))
