"""One pass of a kernel over a sequence: forward, and backward with the large products after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.fuse.cpu.call import side_by_side, steps_at_once
from linnet.fuse.cpu.gemm import ROWS
from linnet.fuse.cpu.linear import PackedMatrix
from linnet.fuse.cpu.memory import new_empty
from linnet.fuse.cpu.scan_call import ScanCall, kernel_for
from linnet.fuse.operands import Operands, Source, arithmetic
from linnet.fuse.plan import Plan

# Copies an operand whose strides kernels cannot read.
laid_out = side_by_side

# For a matrix of at least this many numbers, our own product is faster than torch's.
OWN_PRODUCT = 1 << 15
# Up to this many rows, a recurrent matrix is read without packing, and threads share the channels.
FEW_ROWS = 3
# The largest size of the products of all steps, in bytes.
MOST_BYTES = 1 << 28
# For more rows than this, packing the matrices is worth its cost.
UNPACKED_ROWS = 64


def run_forward(
    operands: Operands, keep: bool, share: bool = True, projects: bool = False, unpacked: bool = False
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The output, the states as [T + 1, B, H] (or one slot, which ends with the last), and the products.

    The products are followed by what inner products have read.

    projects: the kernel computes the projections; all are kept, or `joint` is a buffer for a few steps.
    unpacked: the kernel reads the matrices without packing.
    """
    traced, (steps, batch, _) = operands.plan.traced, operands.shape
    call = ScanCall(operands)
    # If threads share the channels of a step, each step needs memory of its own.
    shared = not projects and shares_channels(operands)
    keep, unpacked = keep or shared, unpacked or shared
    same = share and operands.mask is None and operands.dtype == operands.real
    same_state = traced.output_state if same else None
    sequences = put_states(call, operands, keep, same_state)
    products = call.put_products(keep, unpacked)
    if same_state is None:
        y = call.put("y", new_empty((steps, batch, operands.size_of("y")), operands.dtype))
    else:
        sequence = sequences[traced.states.index(same_state)]
        y = sequence[:-1] if operands.reverse else sequence[1:]
    function, names = kernel_for(operands, "forward", (), same_state is None, projects, unpacked, shared)
    if shared:
        call.run_shared(function, names, operands.plan.shared_phases["forward"])
    elif projects:
        assert operands.source is not None
        call.put_input(*operands.source, unpacked)
        by_rows = call.depth > 0 and not unpacked
        call.run_projecting(function, names, steps_at_once(batch), keep, by_rows)
    else:
        call.run(function, names, call.depth)
    return y, sequences, products


def put_states(call: ScanCall, operands: Operands, keep: bool, same_state: str | None) -> list[Tensor]:
    """The memory of each state, all steps or one slot; `same_state` is the one that is also the output."""
    steps, batch, _ = operands.shape
    sequences = []
    for name, start in zip(operands.plan.traced.states, operands.states, strict=True):
        # Threads may share the channels of a single step, whose products read all channels: it must not
        # write where it reads.
        if keep or name == same_state or steps == 1:
            sequence = new_empty((steps + 1, batch, operands.size_of(name)), operands.real)
            sequence[-1 if operands.reverse else 0] = start
            call.put(f"state.{name}", sequence)
        else:
            # One slot, [B, H], which each step reads and writes.
            slot = start.to(operands.real, copy=True, memory_format=torch.contiguous_format)
            sequence = call.put(f"state.{name}", slot)[None]
        sequences.append(sequence)
    return sequences


def shares_channels(operands: Operands) -> bool:
    """Whether there are so few rows that threads share the channels of each step instead of the rows.

    This does not depend on the number of threads, because the products are rounded in another way.
    """
    steps, batch, _ = operands.shape
    size = steps * batch * sum(map(len, operands.matrices)) * operands.real.itemsize
    few = steps > 1 and batch <= FEW_ROWS and size <= MOST_BYTES
    return few and bool(operands.plan.matrices) and not operands.drops


def leaves_unpacked(plan: Plan, x: Tensor, drops: Sequence[Tensor]) -> bool:
    """Whether x [T, B, D] has so few rows that packing the matrices would cost more than it saves."""
    steps, batch, _ = x.shape
    few = steps == 1 if plan.products else steps * batch < ROWS
    return not plan.traced.inner and few and steps * batch <= UNPACKED_ROWS and not drops


def worth_projecting(plan: Plan, x: Tensor) -> bool:
    """Whether a kernel that packs matrices should compute the projections of x [T, B, D], too.

    With recurrent matrices threads share the rows, so it should not if there are too few for all threads.
    """
    return x.shape[1] >= 4 * torch.get_num_threads() if plan.matrices else True


def project(source: Source, out: Tensor) -> Tensor:
    """Compute F.linear(x, weight, bias) for x [T, B, D] into `out`, in its dtype."""
    x, weight, bias = source
    rows, matrix = x.reshape(-1, x.shape[-1]).to(out.dtype), weight.T.to(out.dtype)
    target = out.view(-1, len(weight))
    torch.mm(rows, matrix, out=target)
    if bias is not None:
        target[:, len(weight) - len(bias) :] += bias
    return out


def projection_gradients(djoint: Tensor | None, source: Source, needed) -> list[Tensor | None]:
    if djoint is None:
        return [None, None, None]
    x, weight, bias = source
    above = djoint.flatten(0, 1)
    need_x, need_weight, need_bias = needed
    rows = x.reshape(-1, x.shape[-1]).to(above.dtype)
    return [
        times(above, weight.to(above.dtype), x.shape).to(x.dtype) if need_x else None,
        (above.T @ rows).to(x.dtype) if need_weight else None,
        None if bias is None or not need_bias else above[:, len(weight) - len(bias) :].sum(0).to(x.dtype),
    ]


def times(rows: Tensor, matrix: Tensor, shape: Sequence[int]) -> Tensor:
    """rows @ matrix as a tensor of this shape, computed by our own product where that is faster."""
    # Not a view: autograd adds other gradients to it in place, and would copy a view first.
    made = new_empty(shape, rows.dtype)
    target = made.view(-1, matrix.shape[1])
    if matrix.numel() >= OWN_PRODUCT:
        PackedMatrix(matrix.T).times(rows, into=target)
    else:
        torch.mm(rows, matrix, out=target)
    return made


def run_projected(
    plan: Plan,
    flags: tuple[Any, Any, Any],
    source: Source,
    tensors: Sequence[Tensor],
    drops: Sequence[Tensor],
    keep: bool,
) -> tuple[Operands, Tensor, list[Tensor], list[Tensor]]:
    """Scan a projection; return its operands and the results of `run_forward`."""
    unpacked = leaves_unpacked(plan, source.x, drops)
    inside = unpacked or worth_projecting(plan, source.x)
    steps, batch, _ = source.x.shape
    slots = steps if keep or not inside else min(steps, steps_at_once(batch))
    joint = new_empty((slots, batch, len(source.weight)), arithmetic(source.x.dtype))
    if not inside:
        project(source, joint)
    operands = Operands.of(plan, flags, (joint, *tensors), source, drops)
    return operands, *run_forward(operands, keep, projects=inside, unpacked=unpacked)


class Backward:
    """One run of the backward kernel, and the large products after it."""

    def __init__(
        self,
        operands: Operands,
        sequences: list[Tensor],
        products: list[Tensor],
        needed: Sequence[bool],
        in_place: bool = False,
    ):
        self.operands, self.traced = operands, operands.plan.traced
        self.sequences, self.products = sequences, products
        counts = [
            1,
            len(operands.extras),
            len(operands.weights),
            len(operands.states),
            len(operands.matrices),
        ]
        needs = iter(needed)
        self.need_joint, self.need_extras, self.need_weights, _, self.need_matrices = (
            [next(needs) for _ in range(count)] for count in counts
        )
        self.shared = shares_channels(operands) and operands.plan.is_even and not self.traced.inner
        # Threads that share channels may compute a step twice, so it must not write where it reads.
        self.in_place = in_place and not self.shared
        self.wanted: list[str] = []
        self.call = ScanCall(operands)

    def run(self, dy: Tensor, dfinals: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients of the operands, None for those not needed."""
        self.call.put("dy", side_by_side(dy))
        carries = self.put_states(dfinals)
        joint, extras, weights = self.put_joint(), self.put_extras(), self.put_weights()
        dproducts, state_gradients = self.put_products(joint)
        function, names = kernel_for(
            self.operands, "backward", tuple(self.wanted), unpacked=self.shared, shared=self.shared
        )
        if self.shared:
            self.call.run_shared(function, names, self.operands.plan.shared_phases["backward"])
            carries = [self.first_of(each) for each in carries]
            state_gradients = [self.first_of(each) for each in state_gradients]
        else:
            self.call.run(function, names, self.call.depth)
        for i, product in enumerate(self.operands.plan.products):
            more = self.read_by(i, state_gradients[i][:, : self.operands.size_of(product.state)])
            carries[self.traced.states.index(product.state)] += more
        dtype = self.operands.dtype
        summed = [None if weight is None else weight.flatten(0, -2).sum(0).to(dtype) for weight in weights]
        states = [carry.to(dtype) for carry in carries]
        return [joint, *extras, *summed, *states, *self.matrices(dproducts)]

    def want(self, name: str, gradient: Tensor, offset: int = 0) -> Tensor:
        self.wanted.append(name)
        return self.call.put(f"d.{name}", gradient, offset)

    def put_states(self, dfinals: Sequence[Tensor]) -> list[Tensor]:
        carries = []
        for name, sequence, above in zip(self.traced.states, self.sequences, dfinals, strict=True):
            self.call.put(f"state.{name}", sequence)
            carry = above.to(self.operands.real, copy=True, memory_format=torch.contiguous_format)
            carries.append(self.call.put(f"carry.{name}", self.of_all_steps(carry)))
        return carries

    def of_all_steps(self, last: Tensor) -> Tensor:
        """The gradient of a state after the last step, with room for all others if threads share channels."""
        if not self.shared:
            return last
        made = new_empty((self.operands.shape[0] + 1, *last.shape), last.dtype)
        made[0 if self.operands.reverse else -1] = last
        return made

    def first_of(self, gradients: Tensor) -> Tensor:
        """The gradient of a state before the first step."""
        return gradients[-1 if self.operands.reverse else 0]

    def put_joint(self) -> Tensor | None:
        if not self.need_joint[0]:
            return None
        joint = self.operands.joint
        gradient = joint if self.in_place else new_empty(tuple(joint.shape), joint.dtype)
        for name, offset in self.operands.offsets().items():
            self.want(name, gradient, offset)
        return gradient

    def put_extras(self) -> list[Tensor | None]:
        named = zip(self.operands.extra_names, self.operands.extras, self.need_extras, strict=True)
        return [
            self.want(name, new_empty(tuple(extra.shape), extra.dtype)) if need else None
            for name, extra, need in named
        ]

    def put_weights(self) -> list[Tensor | None]:
        """Sums over time for each row of the batch, in an order that does not depend on the threads."""
        named = zip(self.traced.weights, self.need_weights, strict=True)
        return [self.want(name, self.new_sum(name)) if need else None for name, need in named]

    def new_sum(self, name: str) -> Tensor:
        steps, batch, _ = self.operands.shape
        shape = ((steps, batch) if self.shared else (batch,)) + (self.operands.size_of(name),)
        return torch.zeros(shape, dtype=self.operands.real, device="cpu")

    def put_products(self, joint: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """The gradients of the products, and buffers for the gradients of the states that they read."""
        dproducts, state_gradients = [], []
        matrices = self.operands.matrices
        for i, matrix in enumerate(matrices):
            self.call.put_product(i, self.products[i])
            dproducts.append(self.put_gradient(i, joint))
            put = self.call.put_unpacked if self.shared else self.call.put_packed
            shape = self.operands.shape[1], put(f"matrix.{i}", matrix.T)
            last = torch.zeros(shape, dtype=self.operands.real, device="cpu")
            state_gradients.append(self.call.put(f"state_gradient.{i}", self.of_all_steps(last)))
        return dproducts, state_gradients

    def put_gradient(self, i: int, joint: Tensor | None) -> Tensor:
        """[T, B, parts * H]: a buffer of its own, or the columns that get the same numbers anyway."""
        wide, first = len(self.operands.matrices[i]), self.start_of_shared_gradients(i)
        if joint is not None and first is not None and joint.dtype == self.operands.real:
            offset = self.operands.offsets()[self.operands.joint_names[first]]
            self.call.put(f"dproduct.{i}", joint, offset)
            return joint[..., offset : offset + wide]
        buffer = self.call.buffer(f"dproduct.{i}", wide, self.operands.shape[0])
        _, parts = self.operands.plan.matrices[i]
        for column, name in enumerate(parts):
            self.want(name, buffer, column * self.operands.size_of(name))
        return buffer

    def start_of_shared_gradients(self, i: int) -> int | None:
        """Which projection is the first of those that have the gradients of the parts of product i, if any.

        Gradients of inner products are written while the projections are still to be read.
        """
        products = self.operands.plan.products
        if self.operands.resets is not None or i >= len(products):
            return None
        return self.operands.plan.start_of_shared_gradients(products[i], self.operands.joint_names)

    def read_by(self, i: int, state: Tensor) -> Tensor:
        """The state as product i reads it; likewise for gradients."""
        return state * self.operands.drops[i] if self.operands.drops else state

    def matrices(self, dproducts: list[Tensor]) -> list[Tensor | None]:
        """dR = (gradients of the products)^T (what they have read): one product over all steps."""
        gradients: list[Tensor | None] = []
        for i, (dproduct, need) in enumerate(zip(dproducts, self.need_matrices, strict=True)):
            gradient = dproduct.flatten(0, 1).T @ self.read(i).flatten(0, 1) if need else None
            gradients.append(None if gradient is None else gradient.to(self.operands.dtype))
        return gradients

    def read(self, i: int) -> Tensor:
        """[T, B, H]: what product i has read, a state or something that the step has computed."""
        products = self.operands.plan.products
        if i >= len(products):
            return self.products[len(self.operands.matrices) + i - len(products)]
        sequence = self.sequences[self.traced.states.index(products[i].state)]
        return self.read_by(i, sequence[1:] if self.operands.reverse else sequence[:-1])
