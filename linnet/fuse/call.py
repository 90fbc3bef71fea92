"""One run of a kernel: the sizes, and where each operand lies."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse import jit
from linnet.fuse.memory import new_empty

# Below this many numbers a thread is not worth waking.
THREAD_WORTH = 1 << 15

Flags = tuple[Tensor | None, Tensor | None, bool]  # mask, resets, reverse


@cache
def vector_width(dtype: torch.dtype) -> int:
    """Two registers' worth: while one waits for a result, the other has work."""
    lanes = 16 if "+avx512f" in jit.host_cpu() else 8
    return lanes if dtype == torch.float64 else 2 * lanes


class Call:
    """shape is [T, B, H]; `real` the dtype of arithmetic."""

    def __init__(self, shape: tuple[int, int, int], flags: Flags, real: torch.dtype):
        self.shape, self.flags, self.real = shape, flags, real
        self.places: dict[str, list[int]] = {}
        self.alive: list[Tensor] = []

    def put(self, name: str, tensor: Tensor, offset: int = 0) -> Tensor:
        """Note where `tensor` lies, from channel `offset` on.

        [T, B, H]; one dimension fewer for what is alike at all steps, two for what rows share as well.
        """
        size = tensor.element_size()
        strides = [0, 0, *tensor.stride()][-3:-1]
        self.places[name] = [tensor.data_ptr() + offset * size, *(stride * size for stride in strides)]
        self.alive.append(tensor)
        return tensor

    def put_packed(self, name: str, matrix: Tensor) -> int:
        """[N, K] as panels [N / panel, K, panel], zeros beyond N; how wide a product with it is."""
        panel = vector_width(self.real)
        matrix = F.pad(matrix.to(self.real), (0, 0, 0, -len(matrix) % panel))
        packed = matrix.unflatten(0, (-1, panel)).transpose(1, 2).contiguous()
        self.places[name] = [packed.data_ptr(), packed.shape[1], packed.shape[0]]
        self.alive.append(packed)
        return len(matrix)

    def room(self, name: str, wide: int, steps: int = 0) -> Tensor:
        """[steps, B, wide] for results, or [B, wide] that each step writes anew."""
        shape = (steps, self.shape[1], wide) if steps else (self.shape[1], wide)
        return self.put(name, new_empty(shape, self.real))

    def run(self, function: jit.Compiled, names: tuple[str, ...], depth: int = 0) -> None:
        """`depth` is the number of products for each channel and step: with any, rows are not cut."""
        steps, batch, size = self.shape
        blocks, block = (1, size) if depth else share_out(batch, size)
        *flags, reverse = self.flags
        numbers = [steps, size, blocks, block, int(reverse)]
        for flag in flags:
            numbers += [0, 0, 0] if flag is None else [flag.data_ptr(), *flag.stride()]
        for name in names:
            numbers += self.places[name]
        grain = max(1, THREAD_WORTH // (steps * block * (1 + depth)))
        jit.run(function, batch * blocks, grain, numbers)


def share_out(batch: int, size: int) -> tuple[int, int]:
    """Into how many blocks of how many channels a row is cut: only where there are few rows a thread."""
    threads = torch.get_num_threads()
    if batch >= 4 * threads:
        return 1, size
    block = max(64, -(-size // (2 * threads)))
    block = -(-block // 16) * 16
    return -(-size // block), block
