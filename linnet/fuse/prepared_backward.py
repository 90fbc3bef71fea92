"""The backward scan of a cell, prepared once: of a sequence without recurrent matrices, or of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.cpu import jit
from linnet.fuse.cpu.arguments import Arguments
from linnet.fuse.cpu.call import Cut, channel_blocks, side_by_side, zeros
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.pack import Packing
from linnet.fuse.cpu.scan_call import ScanCall, kernel_for
from linnet.fuse.cpu.threads import grain
from linnet.fuse.cpu.width import vector_width
from linnet.fuse.operands import Operands
from linnet.fuse.plan import Plan, Product
from linnet.fuse.pools import Pools


class PreparedProduct:
    """A product with a state in a prepared backward scan.

    state   the number of the state that it reads
    need    whether the gradient of its matrix is needed
    start   at which column of the projections the same gradients are, or None
    """

    def __init__(self, state: int, parts: Sequence[str], need: bool, start: int | None):
        self.state, self.parts, self.need, self.start = state, parts, need, start
        self.packing: Packing | None = None

    def packed(self, matrix: Tensor) -> Tensor:
        """The panels of a matrix, in the memory of those of the last one if it is at the same address."""
        matrix = matrix if 1 in matrix.stride() else matrix.contiguous()
        if self.packing is None or not is_same_place(self.packing.alive[0], matrix):
            self.packing = Packing(matrix, 1, vector_width(matrix.dtype))
        return self.packing.run()


def is_same_place(one: Tensor, other: Tensor) -> bool:
    places = [(tensor.data_ptr(), tensor.shape, tensor.stride()) for tensor in (one, other)]
    return places[0] == places[1]


class PreparedBackward:
    """The backward scan of one cell, for one choice of gradients; it has no fixed addresses.

    one_step   of a single step. Its projections are kept: otherwise, their gradients overwrite them. The
               kernel computes no products with the matrices, since no earlier step needs them.
    """

    def __init__(self, operands: Operands, needed: Sequence[bool], one_step: bool = False):
        plan, needs = operands.plan, iter(needed)
        self.one_step = one_step
        self.states, self.size, self.batch = plan.traced.states, operands.sizes[0], operands.shape[1]
        self.projected, self.offsets = next(needs), operands.offsets()
        self.extras = {name: next(needs) for name in plan.extras}
        self.weights = {name: next(needs) for name in plan.traced.weights}
        self.need_states = [next(needs) for _ in self.states]
        self.products = [self.product_of(plan, product, next(needs)) for product in plan.products]
        others = [name for group in (self.extras, self.weights) for name, need in group.items() if need]
        others += [part for product in self.products if product.start is None for part in product.parts]
        wanted = (*(self.offsets if self.projected else ()), *others)
        self.function, names = kernel_for(operands, "backward", wanted)
        call = ScanCall(operands)
        for name in names:  # those that each call writes
            call.locations.setdefault(name, (0, 0, 0))
        by_rows = call.depth > 0
        self.blocks, self.block = (1, self.size) if by_rows else channel_blocks(self.batch, self.size)
        self.each = self.block * (1 + call.depth)
        self.arguments = Arguments(call.numbers(names, Cut(1, self.blocks, self.block)), names)

    @property
    def nbytes(self) -> int:
        packings = (product.packing for product in self.products)
        return sum(packing.panels.nbytes for packing in packings if packing is not None)

    def product_of(self, plan: Plan, product: Product, need: bool) -> PreparedProduct:
        shared = plan.start_of_shared_gradients(product, plan.projected) if self.projected else None
        start = None if shared is None else self.offsets[plan.projected[shared]]
        return PreparedProduct(self.states.index(product.state), product.parts, need, start)

    def run(
        self,
        operands: Operands,
        sequences: Sequence[Tensor],
        products: Sequence[Tensor],
        above: Sequence[Tensor],
    ) -> list[Any]:
        """The gradients of the operands, None for those not needed.

        above   the gradients of the output and of the final states
        """
        put, dy, joint = self.arguments.put, side_by_side(above[0]), operands.joint
        put("dy", dy)
        djoint = torch.empty_like(joint) if self.one_step and self.projected else joint
        for name, offset in self.offsets.items():
            put(name, joint, offset)
            if self.projected:
                put(f"d.{name}", djoint, offset)
        read = [weight.contiguous() for weight in operands.weights]
        extras = [self.put_extra(*pair) for pair in zip(self.extras, operands.extras, strict=True)]
        weights = [self.put_weight(*pair) for pair in zip(self.weights, read, strict=True)]
        carries = [self.put_state(*each) for each in zip(self.states, sequences, above[1:], strict=True)]
        made = [
            self.put_product(i, *each, djoint)
            for i, each in enumerate(zip(operands.matrices, products, strict=True))
        ]
        self.arguments.numbers[0] = steps = len(dy)
        jit.run(self.function, self.batch * self.blocks, grain(steps * self.each), self.arguments.numbers)
        del read  # by the address
        sums = [None if weight is None else weight.sum(0) for weight in weights]
        matrices = [
            self.finish(*each, sequences, carries, operands.reverse)
            for each in zip(self.products, operands.matrices, made, strict=True)
        ]
        return [djoint if self.projected else None, *extras, *sums, *carries, *matrices]

    def put_product(self, i: int, matrix: Tensor, product: Tensor, djoint: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the kernel writes the gradient of a product, and that of the state that it read."""
        known, put = self.products[i], self.arguments.put
        for column, part in enumerate(known.parts):
            put(part, product, column * self.size)
        state = self.put_matrix(i, matrix)
        put(f"state_gradient.{i}", state)
        if known.start is not None:
            put(f"dproduct.{i}", djoint, known.start)
            return djoint[..., known.start : known.start + len(matrix)], state
        gradient = matrix.new_empty(*product.shape[:2], len(matrix))
        put(f"dproduct.{i}", gradient)
        for column, part in enumerate(known.parts):
            put(f"d.{part}", gradient, column * self.size)
        return gradient, state

    def put_matrix(self, i: int, matrix: Tensor) -> Tensor:
        """Return the gradient of the state that product i reads, before the kernel adds to it."""
        if self.one_step:
            self.arguments.put_numbers(f"matrix.{i}", 0, 0, 0)
            return zeros(self.size, matrix.dtype)
        panels = self.products[i].packed(matrix.T)
        self.arguments.put_numbers(f"matrix.{i}", panels.data_ptr(), panels.shape[1], panels.shape[0])
        return matrix.new_zeros(self.batch, panels.shape[0] * panels.shape[2])

    def finish(
        self,
        known: PreparedProduct,
        matrix: Tensor,
        made: tuple[Tensor, Tensor],
        sequences: Sequence[Tensor],
        carries: Sequence[Tensor],
        reverse: bool,
    ) -> Tensor | None:
        """Add the gradient of the state that a product has read, and return that of its matrix."""
        gradient, state = made
        if not self.one_step:
            carries[known.state].add_(state[:, : self.size])
        elif self.need_states[known.state]:
            carries[known.state].addmm_(gradient[0], matrix)
        sequence = sequences[known.state]
        read = sequence[1:] if reverse else sequence[:-1]
        return gradient.flatten(0, 1).T @ read.flatten(0, 1) if known.need else None

    def put_extra(self, name: str, extra: Tensor) -> Tensor | None:
        self.arguments.put(name, extra)
        return self.put_gradient(name, new_empty(extra.shape, extra.dtype)) if self.extras[name] else None

    def put_weight(self, name: str, weight: Tensor) -> Tensor | None:
        """The gradient is summed over time for each row, in an order that does not depend on the threads."""
        self.arguments.put(name, weight)
        if not self.weights[name]:
            return None
        return self.put_gradient(name, weight.new_zeros(self.batch, self.size))

    def put_gradient(self, name: str, gradient: Tensor) -> Tensor:
        self.arguments.put(f"d.{name}", gradient)
        return gradient

    def put_state(self, name: str, sequence: Tensor, above: Tensor) -> Tensor:
        carry = above.clone(memory_format=torch.contiguous_format)
        self.arguments.put(f"state.{name}", sequence)
        self.arguments.put(f"carry.{name}", carry)
        return carry


def run_prepared(
    backwards: Pools[PreparedBackward],
    key: tuple,
    operands: Operands,
    sequences: Sequence[Tensor],
    products: Sequence[Tensor],
    above: Sequence[Tensor],
    needed: Sequence[bool],
    one_step: bool = False,
) -> list[Any]:
    """`PreparedBackward.run` by one that an earlier call with this key has prepared, or a new one."""
    gradients = backwards.run(
        key,
        lambda: PreparedBackward(operands, needed, one_step),
        lambda backward: backward.run(operands, sequences, products, above),
    )
    assert gradients is not None
    return gradients
