"""The backward scan of a plan, bound to its arguments as the forward one is, and the products after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.cpu import forward, jit
from linnet.cpu.block import Block
from linnet.cpu.call import Cut, channel_blocks, row_parts, side_by_side, zeros
from linnet.cpu.forward import products_of, shared_cut, shared_threads, shares_channels
from linnet.cpu.memory import new_empty
from linnet.cpu.pack import Packing
from linnet.cpu.scan_call import kernel_for
from linnet.cpu.threads import grain
from linnet.cpu.width import vector_width
from linnet.program import blocks
from linnet.program.loops import lowered_backward, scratch_size
from linnet.program.operands import Operands, as_dtype


class Kind(NamedTuple):
    """What a binding depends on besides its plan.

    needed      for each operand, whether its gradient is needed
    projected   the kernel computed the projections, which are in the dtype of arithmetic
    shared      threads share the channels of a step
    single      there is one step, so the kernel computes no products: no earlier step needs them
    """

    needed: tuple[bool, ...]
    sizes: tuple[int, ...]
    batch: int
    dtype: torch.dtype
    projected: bool
    shared: bool
    single: bool
    drops: bool
    resets: bool
    padded: bool
    reverse: bool
    threads: int


class Kept(NamedTuple):
    """What the forward scan has kept: the states [T + 1, B, H] and the products of all steps.

    Of a single step, the states are those that it has read, [B, H].
    """

    sequences: Sequence[Tensor]
    products: Sequence[Tensor]


def run_backward(
    operands: Operands,
    kept: Kept,
    needed: Sequence[bool],
    above: Sequence[Tensor],
    in_place: bool = False,
) -> list[Tensor | None]:
    """Return the gradients of the operands, None for those not needed.

    above      the gradients of the output and of the final states
    in_place   the gradient of the projections may overwrite them
    """
    plan, (steps, batch, _) = operands.plan, operands.shape
    single = steps == 1 and operands.padding is None and not plan.traced.inner and not plan.traced.sizes
    # The gradient of a head is the sum over the parts, which threads that may compute it twice cannot add up.
    dense = max(plan.heads, default=1) == 1
    shared = not single and shares_channels(operands) and plan.is_even and not plan.traced.inner and dense
    flags = (bool(operands.drops), operands.resets is not None, operands.padding is not None)
    how = (operands.source is not None, shared, single, *flags, operands.reverse, torch.get_num_threads())
    kind = Kind(tuple(needed), operands.sizes, batch, operands.dtype, *how)
    # Threads that share channels may compute a step twice, so it must not write where it reads; nor must a
    # step that reads other channels than its own.
    in_place = in_place and not shared and not plan.traced.sizes
    pool = plan.bindings.of(kind)
    scan = pool.take() or BackwardScan(operands, kind)
    gradients = scan.run(operands, kept, above, in_place)
    pool.append(scan)
    return gradients


class Product(NamedTuple):
    """A product in the backward pass.

    state   the number of the state that it read; None for an inner product
    parts   the inputs of the step that it made, with their columns
    need    whether the gradient of its matrix is needed
    start   at which column of the projections the same gradients are; None if it needs its own buffer
    """

    state: int | None
    parts: list[tuple[str, int]]
    need: bool
    start: int | None


class BackwardScan:
    """A backward kernel with its arguments, for calls of one kind. One thread uses it at a time."""

    nbytes = 0

    def __init__(self, operands: Operands, kind: Kind):
        plan, needs = operands.plan, iter(kind.needed)
        self.kind, self.plan, self.real = kind, plan, operands.real
        self.panel = vector_width(self.real)
        self.need_joint = next(needs)
        self.extras = {name: next(needs) for name in plan.extras}
        self.weights = {name: next(needs) for name in plan.traced.weights}
        self.need_states = [next(needs) for _ in plan.traced.states]
        self.offsets = list(operands.offsets().items())
        self.products = [self.product(operands, i, next(needs)) for i in range(len(plan.matrices))]
        self.depth = max(len(plan.traced.sizes) > 0, products_of(operands))
        self.function, names = kernel_for(operands, "backward", tuple(self.wanted()), shared=kind.shared)
        self.block = block = Block(names)
        self.scratch = 0
        if "scratch" in names:
            self.scratch = scratch_size(lowered_backward(plan.pattern.traced, tuple(self.wanted())))
        self.set_header(operands)
        # The places of the projections, and of their gradients; the same for each product.
        self.joint = block.parts_at(self.offsets)
        self.joint_gradient = block.parts_at(gradients_of(self.offsets)) if self.need_joint else []
        self.made = [block.parts_at(product.parts) for product in self.products]
        self.made_gradients = [
            block.parts_at(gradients_of(product.parts)) if product.start is None else []
            for product in self.products
        ]
        places = block.places
        # Of each weight: its place, that of its gradient (0: it has none), and its size.
        self.weight_places = [
            (places[name], places[f"d.{name}"] if need else 0, operands.size_of(name))
            for name, need in self.weights.items()
        ]
        self.state_places = [(places[f"state.{n}"], places[f"carry.{n}"]) for n in plan.traced.states]
        self.at_dy = places["dy"]

    def wanted(self) -> Iterator[str]:
        """The inputs and weights whose gradients the kernel writes."""
        if self.need_joint:
            yield from (name for name, _ in self.offsets)
        yield from (name for name, need in (*self.extras.items(), *self.weights.items()) if need)
        yield from (name for product in self.products if product.start is None for name, _ in product.parts)

    def product(self, operands: Operands, i: int, need: bool) -> Product:
        products, parts, first = self.plan.products, [], 0
        for name in self.plan.matrices[i][1]:
            parts.append((name, first))
            first += operands.size_of(name)
        if i >= len(products):
            # The gradients of an inner product are written while the projections are still to be read.
            return Product(None, parts, need, None)
        state, start = self.plan.traced.states.index(products[i].state), None
        in_real = self.kind.projected or operands.dtype == self.real
        if self.need_joint and in_real and not self.kind.resets:
            start = self.plan.start_of_shared_gradients(products[i], self.plan.projected)
        return Product(state, parts, need, None if start is None else self.offsets[start][1])

    def set_header(self, operands: Operands) -> None:
        kind, block, size = self.kind, self.block, self.kind.sizes[0]
        if kind.shared:
            self.cut = shared_cut(kind.sizes, self.panel)
        else:
            whole_rows = self.depth or kind.padded
            self.cut = Cut(1, 1, size) if whole_rows else Cut(1, *channel_blocks(kind.batch, size))
        block.set(size=size, blocks=self.cut.blocks, block=self.cut.block, rows=1, reverse=kind.reverse)
        block.set(batch=kind.batch, threads=1, patience=forward.PATIENCE if kind.shared else 0)
        block.put_fixed("zeros", zeros(max(operands.sizes), self.real))
        if self.plan.traced.inner and not self.plan.traced.sizes:
            for group, wide in enumerate(operands.sizes):
                block.put_numbers(
                    f"group.{group}", wide, -(-wide // (self.cut.blocks * self.panel)) * self.panel, 0
                )
        if self.plan.pattern.numbers:
            block.put_fixed("numbers", self.plan.numbers_as(self.real))

    # ------------------------------------------------------------------------------------ running

    def run(
        self, operands: Operands, kept: Kept, above: Sequence[Tensor], in_place: bool
    ) -> list[Tensor | None]:
        steps, block, taken = operands.shape[0], self.block, list[Any]()
        block.numbers[0] = steps
        parts = 0
        if self.kind.padded:
            parts = row_parts(operands, self.depth)
            block.set_padding(operands.padding, parts, operands.pads_output)
        block.set_flags(operands.mask, operands.resets)
        dy = above[0].reshape(-1, above[0].shape[-1]) if operands.pads_output else above[0]
        dy = block.put_at(self.at_dy, side_by_side(dy))
        djoint = self.put_joint(operands, in_place)
        extras = [self.put_extra(*pair) for pair in zip(self.extras, operands.extras, strict=True)]
        read, sums = self.put_weights(operands, steps)
        for i, drop in enumerate(operands.drops):
            drop = as_dtype(operands.in_order(drop), self.real)
            read.append(block.put(f"drop_mask.{i}", side_by_side(drop)))
        carries = self.put_states(operands, kept, above[1:], read)
        made = [self.put_product(operands, kept, i, djoint, taken) for i in range(len(self.products))]
        if self.scratch:
            read.append(block.put("scratch", new_empty((self.kind.batch, self.scratch), self.real)))
        self.call(steps, parts)
        del dy, read  # the kernel has read them
        for pool, packing in taken:
            pool.append(packing)
        if self.kind.shared:
            carries = [self.first_of(carry) for carry in carries]
        matrices = [self.finish(operands, kept, i, carries, *each) for i, each in enumerate(made)]
        dtype, over = self.kind.dtype, (0, 1) if self.kind.shared else 0
        weights = [None if each is None else as_dtype(each.sum(over), dtype) for each in sums]
        states = [as_dtype(operands.out_of_order(carry), dtype) for carry in carries]
        return [djoint, *extras, *weights, *states, *matrices]

    def call(self, steps: int, parts: int) -> None:
        kind, numbers = self.kind, self.block.numbers
        if parts:
            jit.run(self.function, parts, 1, numbers)
            return
        if not kind.shared:
            units = kind.batch * self.cut.blocks
            jit.run(self.function, units, grain(steps * self.cut.block * (1 + self.depth)), numbers)
            return
        # For each phase of each step, which blocks are claimed, and which are finished.
        count = steps * self.plan.shared_phases["backward"]
        claims = torch.zeros(2, count, dtype=torch.int64, device="cpu")
        self.block.put_numbers("claims", claims.data_ptr(), 8, 8 * count)
        threads = shared_threads(self.cut, steps * kind.batch * kind.sizes[0] * self.depth)
        self.block.set(threads=threads)
        jit.run(self.function, threads, 1, numbers)

    def put_joint(self, operands: Operands, in_place: bool) -> Tensor | None:
        joint, block = operands.joint, self.block
        # The projections that a kernel has computed have the same strides in each call.
        put = block.put_parts_of_buffer if self.kind.projected else block.put_parts
        put(self.joint, joint)
        if not self.need_joint:
            return None
        gradient = joint if in_place else new_empty(joint.shape, joint.dtype)
        put(self.joint_gradient, gradient)
        return gradient

    def put_extra(self, name: str, extra: Tensor) -> Tensor | None:
        self.block.put(name, extra)
        if not self.extras[name]:
            return None
        return self.block.put(f"d.{name}", new_empty(extra.shape, extra.dtype))

    def put_weights(self, operands: Operands, steps: int) -> tuple[list[Tensor], list[Tensor | None]]:
        """The weights as the kernel reads them, and the sums of their gradients.

        The sums are over time for each row of the batch, in an order that does not depend on the threads.
        """
        read: list[Tensor] = []
        sums: list[Tensor | None] = []
        rows = (steps, self.kind.batch) if self.kind.shared else (self.kind.batch,)
        for (at, gradient_at, size), weight in zip(self.weight_places, operands.weights, strict=True):
            weight = as_dtype(weight, self.real).contiguous()
            self.block.numbers[at] = weight.data_ptr()
            read.append(weight)
            made = torch.zeros((*rows, size), dtype=self.real, device="cpu") if gradient_at else None
            sums.append(None if made is None else self.block.put_buffer(gradient_at, made))
        return read, sums

    def put_states(
        self, operands: Operands, kept: Kept, dfinals: Sequence[Tensor], read: list[Tensor]
    ) -> list[Tensor]:
        carries, steps, block = [], operands.shape[0], self.block
        for (at, carried), sequence, above in zip(self.state_places, kept.sequences, dfinals, strict=True):
            read.append(block.put_at(at, side_by_side(as_dtype(sequence, self.real))))
            carry = operands.in_order(above)
            carry = carry.to(self.real, copy=carry is above, memory_format=torch.contiguous_format)
            carries.append(block.put_buffer(carried, self.of_all_steps(carry, steps)))
        return carries

    def of_all_steps(self, last: Tensor, steps: int) -> Tensor:
        """The gradient of a state after the last step, with room for all others if threads share channels."""
        if not self.kind.shared:
            return last
        made = new_empty((steps + 1, *last.shape), last.dtype)
        made[0 if self.kind.reverse else -1] = last
        return made

    def first_of(self, gradients: Tensor) -> Tensor:
        """The gradient of a state before the first step."""
        return gradients[-1 if self.kind.reverse else 0] if self.kind.shared else gradients

    def put_product(
        self,
        operands: Operands,
        kept: Kept,
        i: int,
        djoint: Tensor | None,
        taken: list[Any],
    ) -> tuple[Tensor, Tensor]:
        """Where the kernel writes the gradient of a product, and that of what the product has read."""
        block, (steps, batch, _) = self.block, operands.shape
        block.put_parts(self.made[i], kept.products[i])
        gradient = self.put_gradient(operands, i, djoint)
        if self.kind.single:
            block.put_numbers(f"matrix.{i}", 0, 0, 0)
            return gradient, block.put(f"state_gradient.{i}", zeros(max(self.kind.sizes), self.real))
        wide = self.put_matrix(i, as_dtype(operands.matrices[i], self.real), taken)
        last = torch.zeros(batch, wide, dtype=self.real, device="cpu")
        return gradient, block.put(f"state_gradient.{i}", self.of_all_steps(last, steps))

    def put_gradient(self, operands: Operands, i: int, djoint: Tensor | None) -> Tensor:
        """[T, B, parts * H]: a buffer of its own, or the columns that get the same numbers anyway."""
        product, name, wide = self.products[i], f"dproduct.{i}", len(operands.matrices[i])
        if product.start is not None and djoint is not None:
            self.block.put(name, djoint, product.start)
            return djoint[..., product.start : product.start + wide]
        buffer = self.block.put(name, new_empty((*operands.rows, wide), self.real))
        self.block.put_parts(self.made_gradients[i], buffer)
        return buffer

    def put_matrix(self, i: int, matrix: Tensor, taken: list[Any]) -> int:
        """Put the transposed matrix; return the width of a product with it."""
        if self.plan.heads[i] > 1:
            return self.put_blocks(i, matrix, taken)
        name, matrix = f"matrix.{i}", matrix.T
        panels = self.packed(i, matrix, 1, taken)
        self.block.put_numbers(name, panels.data_ptr(), panels.shape[1], panels.shape[0])
        return panels.shape[0] * panels.shape[2]

    def put_blocks(self, i: int, matrix: Tensor, taken: list[Any]) -> int:
        """`put_matrix` of a block-diagonal matrix."""
        heads, parts, depth = self.plan.heads[i], len(self.products[i].parts), matrix.shape[1]
        panels = self.packed(i, blocks.transposed(matrix, heads, parts), parts * heads, taken)
        self.block.put_numbers(f"matrix.{i}", panels.data_ptr(), panels.shape[1], depth)
        # The product adds up the parts in whole panels, of which the last may begin at the last channel.
        return heads * depth + self.panel

    def packed(self, i: int, matrix: Tensor, groups: int, taken: list[Any]) -> Tensor:
        pool = self.plan.scratch.of(("backward", i, matrix.shape, self.real))
        packing = pool.take() or Packing(matrix.shape, self.real, groups, self.panel)
        taken.append((pool, packing))
        return packing.run(matrix)

    def finish(
        self,
        operands: Operands,
        kept: Kept,
        i: int,
        carries: list[Tensor],
        gradient: Tensor,
        state_gradient: Tensor,
    ) -> Tensor | None:
        """Add the gradient of the state that a product has read, and return that of its matrix."""
        heads, parts = self.plan.heads[i], len(self.products[i].parts)
        state, drop, single = self.products[i].state, self.drop(operands, i), self.kind.single
        gradients = gradient[0] if single else gradient.flatten(0, 1)
        if single and state is not None and self.need_states[state]:
            matrix = as_dtype(operands.matrices[i], self.real)
            if heads == 1 and drop is None:
                carries[state].addmm_(gradients, matrix)
            else:
                more = blocks.input_gradient(gradients, matrix, heads, parts)
                carries[state] += more if drop is None else more * drop
        elif not single and state is not None:
            more = self.first_of(state_gradient)[:, : carries[state].shape[-1]]
            carries[state] += more if drop is None else more * operands.in_order(drop)
        if not self.products[i].need:
            return None
        rows = self.read(operands, kept, i)
        made = blocks.weight_gradient(
            gradients, rows if rows.dim() == 2 else rows.flatten(0, 1), heads, parts
        )
        return as_dtype(made, self.kind.dtype)

    def read(self, operands: Operands, kept: Kept, i: int) -> Tensor:
        """[T, B, H], or [B, H]: what product i has read, a state or something that the step has computed."""
        state = self.products[i].state
        if state is None:
            return kept.products[len(operands.matrices) + i - len(self.plan.products)]
        sequence, drop = kept.sequences[state], self.drop(operands, i)
        states = sequence if sequence.dim() == 2 else operands.before_each_step(sequence)
        if drop is None:
            return states
        if operands.padding is not None:
            drop = operands.padding.for_each_step(drop)
        return states * drop

    def drop(self, operands: Operands, i: int) -> Tensor | None:
        """The mask by which product i multiplies the state; inner products read no state."""
        return operands.drops[i] if i < len(operands.drops) else None


def gradients_of(parts: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The operands for the gradients of parts of a tensor, at the same columns."""
    return [(f"d.{name}", first) for name, first in parts]
