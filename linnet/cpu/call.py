"""One run of a kernel: the sizes, and the address and strides of each operand."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from linnet.cpu import jit
from linnet.cpu.gemm import ROWS
from linnet.cpu.kernel_cache import once
from linnet.cpu.memory import new_empty
from linnet.cpu.pack import packed
from linnet.cpu.threads import WORTH, grain
from linnet.cpu.width import vector_width
from linnet.program.operands import Flags, Operands, as_dtype

# The rows of a projection that are computed at a time: enough to be worth loading the matrix, and few enough
# to stay in the cache until their steps have run.
PROJECTED_ROWS = 192


class Call:
    """The arguments of one run of a kernel.

    shape       [T, B, H]
    real        the dtype of arithmetic
    locations   the address, the stride along time and the stride along rows of each operand, in bytes
    """

    def __init__(self, shape: tuple[int, int, int], flags: Flags, real: torch.dtype):
        self.shape, self.flags, self.real = shape, flags, real
        self.locations: dict[str, tuple[int, int, int]] = {}
        self.alive: list[Tensor] = []

    def put(self, name: str, tensor: Tensor, offset: int = 0) -> Tensor:
        """Store the address and strides of `tensor`, from channel `offset` on.

        It is [T, B, H]; [B, H] if all steps share it, [H] if all rows share it, too.
        """
        size, strides = tensor.element_size(), tensor.stride()
        row = strides[-2] * size if len(strides) > 1 else 0
        time = strides[-3] * size if len(strides) > 2 else 0
        self.locations[name] = (tensor.data_ptr() + offset * size, time, row)
        self.alive.append(tensor)
        return tensor

    def put_groups(self, sizes: Sequence[int]) -> None:
        """The numbers of channels of groups of operands; see program/phases.py."""
        for group, size in enumerate(sizes):
            self.locations[f"group.{group}"] = (size, -(-size // 16) * 16, 0)

    def put_packed(self, name: str, matrix: Tensor) -> int:
        """Pack the matrix [N, K] as panels; return the width of a product with it, with zeros beyond N."""
        panels = packed(as_dtype(matrix, self.real), 1, vector_width(self.real))
        self.put_panels(name, panels)
        return panels.shape[0] * panels.shape[2]

    def put_panels(self, name: str, panels: Tensor) -> None:
        self.locations[name] = (panels.data_ptr(), panels.shape[1], panels.shape[0])
        self.alive.append(panels)

    def keep(self, tensor: Tensor) -> Tensor:
        """Keep the tensor alive until the kernel has run."""
        self.alive.append(tensor)
        return tensor

    def buffer(self, name: str, wide: int, steps: int = 0) -> Tensor:
        """Create a buffer for results: [steps, B, wide], or [B, wide], which each step overwrites."""
        shape = (steps, self.shape[1], wide) if steps else (self.shape[1], wide)
        return self.put(name, new_empty(shape, self.real))

    def run(self, function: jit.Compiled, names: tuple[str, ...], depth: int = 0) -> None:
        """`depth`: the number of products for each channel and step; with products, rows are not divided."""
        steps, batch, size = self.shape
        blocks, block = (1, size) if depth else channel_blocks(batch, size)
        each = grain(steps * block * (1 + depth))
        jit.run(function, batch * blocks, each, self.numbers(names, Cut(1, blocks, block)))

    def numbers(self, names: tuple[str, ...], cut: Cut, chunk: int = 0, kept: bool = False) -> array[int]:
        """The arguments of a kernel, in the order of program.HEADER and then of its operands."""
        steps, batch, size = self.shape
        *flags, reverse = self.flags
        numbers = [steps, size, cut.blocks, cut.block, int(reverse), batch, cut.rows, chunk, int(kept), 1, 0]
        for flag in flags:
            numbers += (0, 0, 0) if flag is None else (flag.data_ptr(), *flag.stride())
        numbers += (0, 0, 0)  # all steps are stored
        for name in names:
            numbers += self.locations[name]
        return array("q", numbers)


class Cut(NamedTuple):
    """Units of work: `rows` rows by one of `blocks` blocks of `block` channels."""

    rows: int
    blocks: int
    block: int


@once
def zeros(size: int, dtype: torch.dtype) -> Tensor:
    """A shared tensor of zeros, which must only be read."""
    return torch.zeros(size, dtype=dtype, device="cpu")


def whole_bias(bias: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    """Return [count]: zeros, and `bias` at the end."""
    if bias is None:
        return zeros(count, dtype)
    bias, missing = as_dtype(bias, dtype), count - len(bias)
    return torch.cat([zeros(missing, dtype), bias]) if missing else bias.resolve_neg().contiguous()


def side_by_side(tensor: Tensor) -> Tensor:
    """Copy the tensor if its channels are not contiguous; kernels take any other strides."""
    if tensor.is_neg():  # the imaginary part of a conjugate has the other sign in memory
        tensor = tensor.resolve_neg()
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def steps_at_once(batch: int) -> int:
    """How many steps have about PROJECTED_ROWS rows, in whole groups of ROWS."""
    whole = ROWS // math.gcd(ROWS, batch)
    return -(-PROJECTED_ROWS // (batch * whole)) * whole


def row_parts(operands: Operands, products: int) -> int:
    """In how many parts threads share the rows of padded sequences, each with long and short ones.

    products   the number of products for each channel and step
    """
    each = max(1, math.prod(operands.rows) * operands.sizes[0] * (1 + products) // WORTH)
    return min(each, torch.get_num_threads(), operands.shape[1])


def rectangles(batch: int, size: int, panel: int, all_rows: bool = False) -> Cut:
    """One unit of work per thread: whole panels of all rows, unless there are too few panels.

    all_rows   always, because rows have different lengths
    """
    threads, panels = torch.get_num_threads(), -(-size // panel)
    if panels % threads == 0 or panels >= 4 * threads or batch < threads or all_rows:
        wide = -(-panels // threads)
        return Cut(batch, -(-panels // wide), wide * panel)
    return Cut(-(-batch // threads), 1, panels * panel)


def channel_blocks(batch: int, size: int) -> tuple[int, int]:
    """Return the number of blocks of a row, and their channels: several only if there are few rows."""
    threads = torch.get_num_threads()
    if batch >= 4 * threads:
        return 1, size
    block = max(64, -(-size // (2 * threads)))
    block = -(-block // 16) * 16
    return -(-size // block), block
