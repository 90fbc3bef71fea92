"""Forward scans of a stack without gradients: all arguments of the kernels are bound but the input, the
results and their addresses.

    stack = Stack(layers, outputs, time=0, keeps=False)
    y, states = stack.run(stack.layout(x.shape), x, None)

At each call, what has changed in the matrices is packed again. A stack that keeps them does not look, because
its weights do not change.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import add
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.base.pools import Pool, Pools
from linnet.cpu import jit, row_kernels
from linnet.cpu.call import Call, Cut, steps_at_once
from linnet.cpu.forward import (
    FEW_ROWS,
    PROJECTING,
    ForwardScan,
    Kind,
    is_worth_sharing,
    way_of,
    worth_projecting,
)
from linnet.cpu.in_order import InOrder
from linnet.cpu.pack import KeptPacking, Packing
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width
from linnet.program.operands import NO_FLAGS, Operands, Source, add_biases
from linnet.program.plan import Plan

ADDRESS = Tensor.data_ptr
# Writes three numbers into a block, from a byte on.
put_place = Struct("3q").pack_into
ITEM = array("q").itemsize
# The address of a tensor [T, B, size], and its bytes from step to step and from row to row.
Place = tuple[int, int, int]
# For how many shapes of x the layout of the results is kept.
MOST_LAYOUTS = 256


class StackDirection(NamedTuple):
    """The weights of one layer in one direction.

    packings   of the matrices, by name. All scans share their panels: threads that call at once write the
               same numbers
    second     a bias that is added to `bias`, but for its last `apart` numbers
    """

    plan: Plan
    weight: Tensor
    bias: Tensor | None
    second: Tensor | None
    apart: int
    own: Sequence[Tensor]
    matrices: Sequence[Tensor]
    sizes: Sequence[int]  # of the states
    reverse: bool
    packings: dict[str, Packing]
    heads: int  # of the matrix of the input
    extras: Sequence[tuple[int, int]]  # further inputs of the step: the channels of x where each starts, ends

    @property
    def depth(self) -> int:
        """The channels of the input."""
        return self.heads * self.weight.shape[1]

    def operands(self, steps: int, batch: int) -> Operands:
        """Operands of these sizes, without values."""
        with torch.inference_mode(False):
            like: dict[str, Any] = {"dtype": self.weight.dtype, "device": "cpu"}
            x = torch.zeros(steps, batch, self.depth, **like)
            states = [torch.zeros(batch, size, **like) for size in self.sizes]
        extras = [x[..., first:beyond] for first, beyond in self.extras]
        tensors = [*extras, *self.own, *states, *self.matrices]
        source = Source(x, self.weight, self.bias, self.heads, self.second, self.apart)
        return Operands(self.plan, None, tensors, (None, None, self.reverse), source)


class StackScan(ForwardScan):
    """A scan of one direction, without gradients. One thread uses it at a time."""

    def __init__(self, direction: StackDirection, batch: int):
        operands = direction.operands(steps_at_once(batch), batch)
        depth, bias, heads = direction.depth, direction.bias, direction.heads
        self.packings = direction.packings
        sizes = (operands.sizes, batch, depth, 0 if bias is None else len(bias), heads)
        keep = same = single = drops = padded = False
        how = (keep, same, single, drops, padded, direction.reverse)
        super().__init__(
            operands, Kind(PROJECTING, *sizes, operands.dtype, *how, threads=torch.get_num_threads())
        )
        self.kept: list[Any] = [operands]
        if direction.second is not None:
            self.biases.is_whole = False  # the kernel reads the sum, which is in memory of its own
        self.put_weights(operands, self.kept)
        self.put_projection(operands, self.kept, self.kept)
        self.kept += self.put_products(operands, self.kept, self.kept)
        self.at_x, self.at_y = (ITEM * self.block.places[name] for name in ("x", "y"))
        each = operands.real.itemsize
        self.extras_of_x = [
            (ITEM * at, each * first) for at, (first, _) in zip(self.extras, direction.extras, strict=True)
        ]
        self.at_states = [self.block.places[f"state.{name}"] for name in self.plan.traced.states]
        for at, size in zip(self.at_states, direction.sizes, strict=True):
            self.block.numbers[at + 2] = size * self.real.itemsize
        # The bias, if the kernel reads a copy of it.
        copied = bias is not None and self.biases.of(bias) is not bias
        self.copied_bias = bias if copied else None
        self.sums: list[tuple[jit.Compiled, array[int], int]] = []
        if bias is not None and direction.second is not None:
            self.copied_bias = None
            self.biases.of(add_biases(bias, direction.second, direction.apart))
            self.sums = [*self.sum_of(bias, direction.second, direction.apart)]
        self.nbytes = sum(kept.nbytes for kept in self.kept if isinstance(kept, Tensor))

    def sum_of(
        self, first: Tensor, second: Tensor, apart: int
    ) -> Iterator[tuple[jit.Compiled, array[int], int]]:
        """The kernels that add the present numbers of two biases, each with its arguments and its rows."""
        size = self.kind.sizes[0]
        first, second = first.view(-1, size), second.view(-1, size)
        target, rows = self.biases.groups[:, :size], len(first) - apart // size
        kernel, names = row_kernels.addition(8 * self.real.itemsize, vector_width(self.real))
        call = Call((1, rows, size), NO_FLAGS, self.real)
        for name, tensor in zip(names, (first, second, target), strict=True):
            call.put(name, tensor)
        self.kept.append(call)
        yield kernel, call.numbers(names, Cut(1, 1, size)), rows
        if apart:
            yield row_kernels.copies(), array("q", row_kernels.copy_numbers(first[rows:], target[rows:])), 1

    def packed(self, name: str, matrix: Tensor, groups: int, taken: list[Any]) -> Tensor:
        packing = self.packings.get(name)
        if packing is None:
            kind = KeptPacking if matrix.is_contiguous() else Packing
            packing = kind(matrix.shape, self.real, groups, self.panel)
            packing.run(matrix)
            packing = self.packings.setdefault(name, packing)
        return packing.panels

    def take(self, name: str, shape: Sequence[int], make: Callable[[], Any], taken: list[Any]) -> Any:
        """Memory of its own, which is kept."""
        made = make()
        taken.append(made)
        return made

    def put(self, steps: int, x: Place, y: Place, states: Iterable[int]) -> None:
        """`states`: the addresses of the states, which end as the last ones."""
        numbers = self.block.numbers
        if self.copied_bias is not None:
            self.biases.of(self.copied_bias)
        numbers[0] = steps
        put_place(numbers, self.at_x, *x)
        for at, first in self.extras_of_x:
            put_place(numbers, at, x[0] + first, x[1], x[2])
        put_place(numbers, self.at_y, *y)
        for at, address in zip(self.at_states, states, strict=True):
            numbers[at] = address


class Scans:
    """The scans of all layers, for one size of batch: one native call runs them.

    packings   of matrices that may have changed since the last call
    keeps      biases have not changed either
    """

    def __init__(self, layers: list[list[StackScan]], packings: Iterable[Packing], keeps: bool):
        self.layers, self.calls = layers, InOrder()
        # Of scans that threads may share: the place of the grain, and the size of a unit of work.
        self.shared: list[tuple[int, int]] = []
        self.nbytes = sum(scan.nbytes for layer in layers for scan in layer)
        for packing in packings:
            self.calls.append(packing.kernel, packing.numbers, *packing.work)
        for scan in (scan for layer in layers for scan in layer):
            for kernel, numbers, rows in () if keeps else scan.sums:
                self.calls.append(kernel, numbers, rows, rows)
            at = self.calls.append(scan.function, scan.block.numbers, scan.units, scan.units)
            if scan.units > 1:
                self.shared.append((at, scan.each))
        self.call = self.calls.finish()

    def run(self, steps: int) -> None:
        for at, each in self.shared:
            self.calls.table[at] = grain(steps * each)
        self.call()


class Layout(NamedTuple):
    """How the results for an input of one shape lie in memory. Two tensors of one number stand for others of
    any shape: results are made like them, which takes less time than to make them of a shape.

    pool      the scans for its batch
    layers    for each layer, the output, its bytes from step to step and from row to row, and those of each
              direction and of its states from the beginning
    states    [num_layers * num_directions, B, size] each
    """

    steps: int
    pool: Pool[Scans]
    layers: list[tuple[Tensor, int, int, list[tuple[int, list[int]]]]]
    states: list[Tensor]


class Stack:
    """All layers of a stack, each with its directions."""

    def __init__(
        self, layers: Sequence[Sequence[StackDirection]], outputs: Sequence[int], time: int, keeps: bool
    ):
        """outputs   for each layer, the channels of the output of one direction
        time      the dimension of time: 0, or 1 if the batch comes first
        keeps     the weights do not change, so that their packed copies are kept
        """
        self.layers, self.outputs, self.time, self.keeps = layers, outputs, time, keeps
        first = layers[0][0]
        self.dtype, self.depth, self.sizes = first.weight.dtype, first.depth, first.sizes
        self.count = sum(map(len, layers))
        self.pools: Pools[Scans] = Pools()
        self.layouts: dict[tuple, Layout | None] = {}
        with torch.inference_mode(False):
            self.number = torch.empty(1, dtype=self.dtype, device="cpu")

    def layout(self, shape: torch.Size) -> Layout | None:
        """The layout for x of this shape; None if other kernels are better for it."""
        key = shape, torch.get_num_threads()
        try:
            return self.layouts[key]
        except KeyError:
            if len(self.layouts) >= MOST_LAYOUTS:
                self.layouts.clear()
            made = self.layouts[key] = self.new_layout(shape)
            return made

    def new_layout(self, shape: torch.Size) -> Layout | None:
        if (
            len(shape) != 3
            or shape[2] != self.depth
            or not self.takes(shape[self.time], shape[1 - self.time])
        ):
            return None
        steps, batch, each = shape[self.time], shape[1 - self.time], self.dtype.itemsize
        layers, before = [], [0] * len(self.sizes)
        for layer, size in zip(self.layers, self.outputs, strict=True):
            row, starts = size * each * len(layer), []
            for i in range(len(layer)):
                starts.append((i * size * each, before))
                before = [at + batch * wide * each for at, wide in zip(before, self.sizes, strict=True)]
            like = self.number.expand(*shape[:2], size * len(layer))
            layers.append((like, *((row, steps * row) if self.time else (batch * row, row)), starts))
        states = [self.number.expand(self.count, batch, size) for size in self.sizes]
        return Layout(steps, self.pools.of((batch, torch.get_num_threads())), layers, states)

    def takes(self, steps: int, batch: int) -> bool:
        """Whether these kernels, in which one thread computes a row, are the best for such sequences."""
        if steps < 2 or not batch:
            return False
        if not self.keeps:
            return all(way_of(d.operands(steps, batch)) == PROJECTING for layer in self.layers for d in layer)
        if batch > FEW_ROWS:
            return torch.get_num_threads() == 1 or worth_projecting(batch)
        return not any(is_worth_sharing(d.operands(steps, batch)) for layer in self.layers for d in layer)

    def scans(self, layout: Layout) -> Scans:
        batch = layout.states[0].shape[1]
        layers = [[StackScan(direction, batch) for direction in layer] for layer in self.layers]
        directions = () if self.keeps else chain.from_iterable(self.layers)
        packings = [packing for each in directions for packing in each.packings.values()]
        return Scans(layers, packings, self.keeps)

    def run(self, layout: Layout, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Return the output, laid out as x, and the new states."""
        scans = layout.pool.take() or self.scans(layout)
        # The scans read the states that they write.
        if states is None:
            new = [torch.zeros_like(like) for like in layout.states]
        else:
            new = [state.clone(memory_format=torch.contiguous_format) for state in states]
        addresses, strides, each, time = [*map(ADDRESS, new)], x.stride(), self.dtype.itemsize, self.time
        place = (x.data_ptr(), strides[time] * each, strides[1 - time] * each)
        outputs = [x]
        for layer, (like, time, row, starts) in zip(scans.layers, layout.layers, strict=True):
            y = torch.empty_like(like)
            address = y.data_ptr()
            for scan, (first, before) in zip(layer, starts, strict=True):
                scan.put(layout.steps, place, (address + first, time, row), map(add, addresses, before))
            place = (address, time, row)
            outputs.append(y)
        scans.run(layout.steps)
        layout.pool.append(scans)
        return y, new
