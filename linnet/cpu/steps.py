"""A whole step, of a cell or of a stack of layers, as one native call.

`StepProgram` collects kernels that run one after another on buffers of its own: products, norms, and the
traced steps of cells. Kernels read the weights themselves, so changes in place take effect. For a single
step, preparing the arguments of a kernel costs more than the kernel, so we prepare them once, and a call only
sets the addresses of its input and of its output.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from linnet.cpu import jit, row_kernels
from linnet.cpu.call import Call, Cut, zeros
from linnet.cpu.in_order import InOrder
from linnet.cpu.int8 import Int8Blocks, Int8Panels, linear_kernel, units_of
from linnet.cpu.recipe import Recipe
from linnet.cpu.scan_call import DTYPES, compiled
from linnet.cpu.width import vector_width
from linnet.program.loops import lowered_forward, scratch_size
from linnet.program.plan import Plan
from linnet.program.readable import unreadable
from linnet.program.trace import name_in_unit
from linnet.program.unit import CannotFuse, Int8Linear, Linear, Named, Norm, Operation, Shift

# With fewer multiplications than this, threads do not share a kernel: while other processes keep the cores
# busy, waiting for a second thread can take a hundred times as long as the work (docs/log.md).
SHARED = 1 << 22


class StepProgram:
    """Kernels for one step of `batch` rows in `dtype`. All tensors that it creates are [batch, size]."""

    def __init__(self, batch: int, dtype: torch.dtype):
        self.batch, self.dtype = batch, dtype
        self.width, self.bits = vector_width(dtype), 64 if dtype == torch.float64 else 32
        # For each kernel: itself, its arguments, its units of work, whether threads share them.
        self.kernels: list[tuple[jit.Compiled, array[int], int, bool]] = []
        self.alive: list[object] = []
        self.calls = InOrder()
        self.nbytes = 0  # of all buffers

    # ------------------------------------------------------------------------------- building

    def buffer(self, size: int) -> Tensor:
        made = torch.zeros(self.batch, size, dtype=self.dtype, device="cpu")
        self.nbytes += made.nbytes
        return made

    def call(self, size: int) -> Call:
        return Call((1, self.batch, size), (None, None, False), self.dtype)

    def append(
        self, kernel: jit.Compiled, names: Sequence[str], call: Call, units: int, work: int = 0
    ) -> None:
        """`work`: the number of multiplications of the kernel."""
        numbers = call.numbers(tuple(names), Cut(1, 1, call.shape[-1]))
        self.kernels.append((kernel, numbers, units, work >= SHARED))
        self.alive.append(call)

    def weight(self, name: str, weight: Tensor, shape: Sequence[int]) -> Tensor:
        """Return `weight` if a kernel can read it without a copy, else raise CannotFuse."""
        reason = unreadable(weight)
        if reason is not None:
            raise CannotFuse(f"{name} {reason}")
        if tuple(weight.shape) != tuple(shape):
            raise CannotFuse(f"{name} has the shape {tuple(weight.shape)} instead of {tuple(shape)}")
        if weight.dtype is not self.dtype or weight.device.type != "cpu":
            raise CannotFuse(f"{name} is {weight.dtype} on {weight.device}, and x is {self.dtype} on cpu")
        if not weight.is_contiguous():
            raise CannotFuse(f"{name} is not contiguous")
        return weight.detach()

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        heads: int = 1,
        parts: Sequence[int] = (),
    ) -> Tensor:
        """F.linear(x, weight, bias), where `bias` may be that of the last columns only.

        heads, parts   of a block-diagonal matrix; see program/blocks.py
        """
        columns = 0 if weight.dim() == 0 else len(weight)
        weight = self.weight("a matrix", weight, (columns, x.shape[-1] // heads))
        target, biased = self.buffer(columns), 0 if bias is None else min(bias.numel(), columns)
        if heads > 1:
            none = zeros(0, self.dtype)
            bias = none if bias is None else self.weight("a bias", bias, (biased,))
            # A bias that was replaced by a shorter one may start within a part.
            whole = columns - biased in accumulate(parts, initial=0)
            self.products(x, weight, bias if whole else none, target, heads, parts)
            if not whole:
                shifted = target[:, columns - biased :]
                self.add(shifted, bias, shifted)
            return target
        if biased < columns:
            self.product(x, weight[: columns - biased], zeros(columns, self.dtype), target)
        if bias is not None:
            bias = self.weight("a bias", bias, (biased,))
            self.product(x, weight[columns - biased :], bias, target[:, columns - biased :])
        return target

    def products(
        self, x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, heads: int, parts: Sequence[int]
    ) -> None:
        """A product for each part; `bias` is that of the last parts, or of none."""
        first, unbiased = 0, len(weight) - len(bias)
        for size in parts:
            last = first + size
            own = bias[first - unbiased : last - unbiased] if first >= unbiased else zeros(size, self.dtype)
            self.product(x, weight[first:last], own, target[:, first:last], heads)
            first = last

    def product(self, x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, heads: int = 1) -> None:
        columns, depth = weight.shape
        call = self.call(columns)
        if heads > 1:
            kernel, names = row_kernels.block_product(self.bits, self.width)
            call.locations["blocks"] = (columns // heads, 0, 0)
            units = heads
        else:
            kernel, names = row_kernels.product(self.bits, self.width)
            units = -(-columns // row_kernels.COLUMNS)
        for name, tensor in (("source", x), ("bias", bias), ("target", target)):
            call.put(name, tensor)
        call.locations["matrix"] = (weight.data_ptr(), depth, depth * weight.element_size())
        call.keep(weight)
        self.append(kernel, names, call, units, self.batch * columns * depth)

    def int8_linear(self, x: Tensor, panels: Int8Panels | Int8Blocks, bias: Tensor | None) -> Tensor:
        if self.dtype != torch.float32 or panels.depth != x.shape[-1]:
            raise CannotFuse(f"products of int8 are computed in float32, of {panels.depth} channels")
        target = self.buffer(panels.count)
        for block, columns, own, made in panels.pieces(x, bias, target):
            numbers, alive = block.arguments(columns, own, made)
            self.kernels.append((linear_kernel(), numbers, units_of(x), False))
            self.alive.append(alive)
        return target

    def norm(self, x: Tensor, norm: Norm, target: Tensor) -> None:
        kernel, names = row_kernels.norm(self.bits, self.width, norm.shift is not None, norm.eps)
        call = self.call(x.shape[-1])
        call.put("source", x)
        call.put("target", target)
        for name, weight in (("gain", norm.gain), ("shift", norm.shift)):
            if weight is not None:
                call.put(name, self.weight(f"the {name} of a norm", weight, x.shape[-1:]))
        self.append(kernel, names, call, self.batch)

    def add(self, left: Tensor, right: Tensor, target: Tensor) -> Tensor:
        """`right` may be [size], the same for all rows."""
        kernel, names = row_kernels.addition(self.bits, self.width)
        call = self.call(target.shape[-1])
        for name, tensor in zip(names, (left, right, target), strict=True):
            call.put(name, tensor)
        self.append(kernel, names, call, self.batch)
        return target

    def operations(self, x: Tensor, operations: Sequence[Operation]) -> Tensor:
        for operation in operations:
            if isinstance(operation, Linear):
                x = self.linear(x, *operation)
            elif isinstance(operation, Int8Linear):
                x = self.int8_linear(x, *operation)
            elif isinstance(operation, Shift):
                beyond = x.shape[-1] - operation.apart
                shifted = x[:, max(0, beyond - operation.bias.numel()) : beyond]
                self.add(shifted, self.weight("a bias", operation.bias, shifted.shape[-1:]), shifted)
            else:
                x = self.norms(x, operation.norms)
        return x

    def norms(self, x: Tensor, norms: Sequence[Norm]) -> Tensor:
        sizes, target = [norm.gain.numel() for norm in norms], self.buffer(x.shape[-1])
        if sum(sizes) != x.shape[-1]:
            raise CannotFuse(f"norms of {sizes} channels do not fit {x.shape[-1]} channels")
        for norm, group, columns in zip(norms, x.split(sizes, -1), target.split(sizes, -1), strict=True):
            self.norm(group, norm, columns)
        return target

    def scan(
        self, plan: Plan, inputs: Named, weights: Named, old: Named, new: Named, matrices: Sequence[Tensor]
    ) -> Tensor:
        """The traced step of a plan: reads `inputs` and `old`, writes `new`, and returns the output.

        `inputs` contain the products with states; inner products are computed here.
        """
        traced = plan.traced
        try:
            by_group = plan.sizes(
                [weights[n] for n in traced.weights], [old[name_in_unit(n)] for n in traced.states], matrices
            )
        except ValueError as error:
            raise CannotFuse(str(error)) from error
        sizes = {name: by_group[group] for name, group in plan.groups.items()}
        call = self.call(by_group[0])
        for name, tensor in inputs.items():
            call.put(name, tensor)
        for name in traced.weights:
            call.put(name, self.weight(f"the weight {name!r}", weights[name], (sizes[name],)))
        for name in traced.states:
            self.put_state(call, f"state.{name}", old[name_in_unit(name)], new[name_in_unit(name)])
        call.put("zeros", zeros(max(by_group), self.dtype))
        call.put_groups(by_group)
        if plan.pattern.numbers:
            call.put("numbers", plan.numbers_as(self.dtype))
        y = call.put("y", self.buffer(sizes["y"]))
        if traced.sizes:
            call.put("scratch", self.buffer(max(1, scratch_size(lowered_forward(plan.pattern.traced)))))
        self.phases(plan, call, sizes, matrices[len(plan.products) :])
        return y

    def phases(self, plan: Plan, call: Call, sizes: dict[str, int], matrices: Sequence[Tensor]) -> None:
        """The phases of a step, and an inner product after each but the last."""
        products = []
        for i, ((_, names, heads), matrix) in enumerate(zip(plan.traced.inner, matrices, strict=True)):
            read = call.put(f"inner.{i}", self.buffer(sizes[f"inner.{i}"]))
            parts = [sizes[part] for part in names]
            columns = sum(parts)
            matrix = self.weight("a matrix", matrix, (columns, read.shape[-1] // heads))
            target = self.buffer(columns)
            for part, made in zip(names, target.split(parts, -1), strict=True):
                call.put(part, made)
            # A dense matrix is one product for all parts.
            parts = parts if heads > 1 else [columns]
            products.append((read, matrix, zeros(0, self.dtype), target, heads, parts))
        pattern, count = plan.pattern, len(plan.pattern.numbers)
        how = (pattern.traced, (), DTYPES[self.dtype], self.width)
        for i in range(len(products) + 1):
            recipe = Recipe(*how, numbers=count, phase=i if products else None)
            kernel, operands = compiled(recipe, "forward")
            self.append(kernel, operands, call, self.batch)
            if i < len(products):
                self.products(*products[i])

    def put_state(self, call: Call, name: str, old: Tensor, new: Tensor) -> None:
        """Slot 0 is the old state, slot 1 the new one; the stride is the distance between the two tensors."""
        call.put(name, old)
        call.keep(new)
        address, _, row = call.locations[name]
        call.locations[name] = (address, new.data_ptr() - address, row)

    def copy(self, *pairs: tuple[Tensor, Tensor]) -> array[int]:
        """Copy each source, [rows, size], to its target; return the array in which addresses can be set."""
        numbers = array("q", [number for pair in pairs for number in row_kernels.copy_numbers(*pair)])
        self.kernels.append((row_kernels.copies(), numbers, len(pairs), False))
        self.alive.append(pairs)
        return numbers

    def clear(self, target: Tensor) -> array[int]:
        """Set rows of [rows, size] to zeros, none at first; return the array for `set_flags`."""
        each = target.element_size()
        numbers = array("q", (target.data_ptr(), target.stride(0) * each, 0, target.shape[1] * each, 0, 0))
        self.kernels.append((row_kernels.clears(), numbers, 1, False))
        self.alive.append(target)
        return numbers

    def finish(self) -> None:
        for kernel, numbers, units, shared in self.kernels:
            self.calls.append(kernel, numbers, units, grain=1 if shared else units)
        self.run = self.calls.finish()


def set_flags(numbers: array[int], flags: Tensor | None) -> None:
    """Set the flags [rows] of a `StepProgram.clear`."""
    if flags is None:
        numbers[2] = 0
    else:
        numbers[2], numbers[4], numbers[5] = flags.shape[0], flags.data_ptr(), flags.stride(0)
