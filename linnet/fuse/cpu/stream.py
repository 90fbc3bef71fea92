"""A single step without gradients, as in a stream of steps.

For one step, preparing the arguments costs more than the kernel. So we cache the block of arguments and
update only the pointers that change from call to call.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from linnet.fuse.cpu import jit
from linnet.fuse.cpu.call import whole_bias
from linnet.fuse.cpu.program import HEADER
from linnet.fuse.cpu.scan_call import ScanCall, kernel_for
from linnet.fuse.operands import Operands, Source, arithmetic
from linnet.fuse.plan import Plan

Tensors = Sequence[Tensor]


def run_step(
    plan: Plan, source: Source, extras: Tensors, weights: Tensors, states: Tensors, matrices: Tensors
) -> tuple[Tensor, list[Tensor]] | None:
    """x [1, B, D] and what `Operands` has: the output [1, B, H] and the new states [B, H].

    None, where a weight would have to be copied first: such a copy would grow old.
    """
    x, fixed = source.x, [source.weight, *weights, *matrices]
    real = arithmetic(x.dtype)
    whole = all(tensor.dtype is real and tensor.is_contiguous() for tensor in fixed)
    if not whole or any(tensor.dtype is not real or tensor.stride(-1) != 1 for tensor in (x, *extras)):
        return None
    places = [tensor.data_ptr() for tensor in fixed]
    key = (x.dtype, x.shape, x.stride(), torch.get_num_threads(), places, [e.stride() for e in extras])
    # Read once: another thread may put its own call in the place of this one at any moment.
    kept = plan.stream
    if kept is None or kept[0] != key:
        kept = plan.stream = key, StepCall(plan, source, (*extras, *weights, *states, *matrices))
    return kept[1](x, source.bias, extras, states)


class StepCall:
    """The arguments of a kernel for one step, all but the moving ones as they will be."""

    def __init__(self, plan: Plan, source: Source, tensors: Tensors):
        joint = source.x.new_empty(1, source.x.shape[1], len(source.weight))
        operands = Operands.of(plan, (None, None, False), (joint, *tensors), source)
        call = ScanCall(operands)
        call.put_input(*source, plain=True)
        for name, state in zip(plan.traced.states, operands.states, strict=True):
            call.put(f"state.{name}", state.contiguous())
        products = call.put_products(keep=False, plain=True)
        call.put("y", joint[..., : operands.shape[-1]].contiguous())
        self.shape, self.count = operands.shape[1:], len(source.weight)
        shared = plan.traced.output_state
        self.shared = None if shared is None else plan.traced.states.index(shared)
        self.function, names = kernel_for(operands, "forward", (), shared is None, True, True)
        self.units, self.grain, self.numbers = call.shared_out(names, 1, kept=False, by_rows=False)
        self.at = {name: len(HEADER) + 3 * i for i, name in enumerate(names)}
        self.extras = [self.at[name] for name in operands.extra_names]
        self.states = [self.at[f"state.{name}"] for name in plan.traced.states]
        self.room = joint.nbytes + sum(product.nbytes for product in products)
        self.in_room = list(self.places_in_room(operands, [joint, *products]))

    def places_in_room(self, operands: Operands, rooms: Tensors) -> Iterator[tuple[int, int]]:
        """Yield the arguments that point to projections and products, with their offsets in the room."""
        parts = [operands.joint_names, *(product.parts for product in operands.plan.products)]
        wide, before = self.shape[-1] * rooms[0].element_size(), 0
        for i, (room, names) in enumerate(zip(rooms, parts, strict=True)):
            offsets = {f"product.{i - 1}": 0, **{name: column * wide for column, name in enumerate(names)}}
            yield from ((self.at[name], before + offsets[name]) for name in offsets if name in self.at)
            before += room.nbytes

    def __call__(
        self, x: Tensor, bias: Tensor | None, extras: Tensors, states: Tensors
    ) -> tuple[Tensor, list[Tensor]]:
        numbers, starts = self.numbers[:], whole_bias(bias, self.count, x.dtype)
        numbers[self.at["x"]] = x.data_ptr()
        numbers[self.at["packed.input"] + 2] = starts.data_ptr()
        for at, extra in zip(self.extras, extras, strict=True):
            numbers[at] = extra.data_ptr()
        room = self.put_room(numbers)
        states = [state.contiguous() for state in states]
        new = self.put_states(numbers, states)
        y = torch.empty((1, *self.shape), dtype=x.dtype, device="cpu")
        if self.shared is None:
            numbers[self.at["y"]] = y.data_ptr()
        jit.run(self.function, self.units, self.grain, numbers)
        del room, starts  # the kernel has read them
        return y if self.shared is None else y.copy_(new[self.shared]), new

    def put_room(self, numbers: array[int]) -> Tensor:
        """For the projections and the products."""
        room = torch.empty(self.room, dtype=torch.uint8, device="cpu")
        first = room.data_ptr()
        for at, offset in self.in_room:
            numbers[at] = first + offset
        return room

    def put_states(self, numbers: array[int], states: Tensors) -> list[Tensor]:
        """Slot 0 is the old state, slot 1 the new one; the stride is the distance of the two tensors."""
        new = [torch.empty(self.shape, dtype=state.dtype, device="cpu") for state in states]
        for at, before, after in zip(self.states, states, new, strict=True):
            numbers[at] = before.data_ptr()
            numbers[at + 1] = after.data_ptr() - before.data_ptr()
        return new
