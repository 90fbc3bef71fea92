"""The fused loop over time as a function that autograd knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.fuse import cpu, jit, reference
from linnet.fuse.call import Call, vector_width
from linnet.fuse.memory import new_empty
from linnet.fuse.plan import Fusible, Plan
from linnet.fuse.trace import Step

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
# As much of a projection, in bytes, as may stay in the cache until its steps are done.
PIECE = 1 << 23


@dataclass
class Operands:
    """What a scan reads.

    joint      [T, B, n H]: the first n inputs of the step side by side
    extras     [T, B, H]: the inputs that follow
    weights    [H]
    states     [B, H]
    matrices   [parts * H, H]: those of the products
    """

    plan: Plan
    joint: Tensor
    extras: list[Tensor]
    weights: list[Tensor]
    states: list[Tensor]
    matrices: list[Tensor]
    mask: Tensor | None = None
    resets: Tensor | None = None
    reverse: bool = False

    @classmethod
    def of(cls, plan: Plan, flags: tuple[Any, Any, Any], tensors: Sequence[Any]) -> Operands:
        """From the flat list of `tensors`."""
        joint, *rest = tensors
        groups = []
        for names in (plan.products, plan.traced.states, plan.traced.weights):
            cut = len(rest) - len(names)
            groups.append(rest[cut:])
            rest = rest[:cut]
        matrices, states, weights = groups
        return cls(plan, joint, rest, weights, states, matrices, *flags)

    @property
    def dtype(self) -> torch.dtype:
        return self.joint.dtype

    @property
    def real(self) -> torch.dtype:
        """The dtype of arithmetic."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def shape(self) -> tuple[int, int, int]:
        steps, batch, _ = self.joint.shape
        return steps, batch, self.states[0].shape[-1]

    @property
    def joint_names(self) -> tuple[str, ...]:
        return self.plan.traced.inputs[: self.joint.shape[-1] // self.shape[-1]]

    @property
    def extra_names(self) -> tuple[str, ...]:
        start = len(self.joint_names)
        return self.plan.traced.inputs[start : start + len(self.extras)]

    def recipe(self, wanted: Sequence[str] = (), keeps_output: bool = True) -> cpu.Recipe:
        dtype, plan = self.dtype, self.plan
        return cpu.Recipe(
            plan.traced, plan.products, DTYPES[dtype], vector_width(dtype), tuple(wanted), keeps_output
        )


def fused_scan(
    fusible: Fusible,
    joint: Tensor,
    extras: Sequence[Tensor],
    weights: Sequence[Tensor],
    states: Sequence[Tensor],
    matrices: Sequence[Tensor] = (),
    mask: Tensor | None = None,
    resets: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """What `reference.scan` computes, in one kernel: the output [T, B, H] and the final states by name."""
    flags = (mask, resets, reverse)
    extras = [extra.to(joint.dtype) for extra in extras]
    tensors = (*map(side_by_side, (joint, *extras)), *weights, *states, *matrices)
    if torch.compiler.is_compiling():
        from linnet.fuse.ops import compiled_scan

        y, *finals = compiled_scan(fusible.plan, tensors, *flags)
    else:
        y, *finals = FusedScan.apply(fusible, flags, torch.is_grad_enabled(), *tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def projected_scan(
    fusible: Fusible,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    extras: Sequence[Tensor],
    weights: Sequence[Tensor],
    states: Sequence[Tensor],
    matrices: Sequence[Tensor] = (),
    mask: Tensor | None = None,
    resets: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """`fused_scan` of F.linear(x, weight, bias), which never leaves this function.

    So its memory can be used again: for the gradients in training, and for the next steps without.
    """
    tensors = (*map(side_by_side, extras), *weights, *states, *matrices)
    flags = (mask, resets, reverse)
    y, *finals = ProjectedScan.apply(fusible, flags, torch.is_grad_enabled(), x, weight, bias, *tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def side_by_side(tensor: Tensor) -> Tensor:
    """Kernels take any strides but one: the channels of a row stand side by side."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def ends(sequences: Sequence[Tensor], reverse: bool, dtype: torch.dtype) -> list[Tensor]:
    """The final states."""
    return [sequence[0 if reverse else -1].to(dtype, copy=True) for sequence in sequences]


class FusedScan(torch.autograd.Function):
    """The scan of a projection that autograd sees."""

    @staticmethod
    def forward(ctx, fusible: Fusible, flags: tuple[Any, Any, Any], graded: bool, *tensors):
        operands = Operands.of(fusible.plan, flags, tensors)
        # torch asks whether inputs need gradients, but not whether anybody wants them.
        keep = graded and any(ctx.needs_input_grad)
        y, sequences, products = run_forward(operands, keep)
        ctx.fusible, ctx.flags = fusible, flags
        if keep:
            ctx.save_for_backward(*tensors, *sequences, *products)
        return y, *ends(sequences, operands.reverse, y.dtype)

    @staticmethod
    def backward(ctx, dy, *dfinals):
        (plan, step), saved = ctx.fusible, list(ctx.saved_tensors)
        products = [saved.pop() for _ in plan.products][::-1]
        sequences = [saved.pop() for _ in plan.traced.states][::-1]
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            saved = aliases(saved)
            operands = Operands.of(plan, ctx.flags, saved)
            return None, None, None, *reference_gradients(step, operands, saved, needed, (dy, *dfinals))
        operands = Operands.of(plan, ctx.flags, saved)
        return None, None, None, *Backward(operands, sequences, products, needed).run(dy, dfinals)


class ProjectedScan(torch.autograd.Function):
    """The scan of a projection that nobody else sees: its gradient overwrites it."""

    @staticmethod
    def forward(ctx, fusible: Fusible, flags: tuple[Any, Any, Any], graded: bool, x, weight, bias, *tensors):
        ctx.fusible, ctx.flags, ctx.used = fusible, flags, False
        if not (graded and any(ctx.needs_input_grad)):
            return run_in_pieces(fusible.plan, flags, x, weight, bias, tensors)
        joint = project(x, weight, bias)
        operands = Operands.of(fusible.plan, flags, (joint, *tensors))
        y, sequences, products = run_forward(operands, keep=True)
        ctx.save_for_backward(x, weight, bias, joint, *tensors, *sequences, *products)
        return y, *ends(sequences, operands.reverse, y.dtype)

    @staticmethod
    def backward(ctx, dy, *dfinals):
        (plan, step), (x, weight, bias, joint, *saved) = ctx.fusible, ctx.saved_tensors
        products = [saved.pop() for _ in plan.products][::-1]
        sequences = [saved.pop() for _ in plan.traced.states][::-1]
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            sources = aliases([x, weight, bias, *saved])
            operands = Operands.of(plan, ctx.flags, (F.linear(*sources[:3]), *sources[3:]))
            return None, None, None, *reference_gradients(step, operands, sources, needed, (dy, *dfinals))
        if ctx.used:
            # Differentiated for a second time: the projection, overwritten by then, is made anew.
            joint = F.linear(x, weight, bias)
        operands = Operands.of(plan, ctx.flags, (joint, *saved))
        ctx.used = True
        backward = Backward(operands, sequences, products, (any(needed[:3]), *needed[3:]), in_place=True)
        djoint, *others = backward.run(dy, dfinals)
        return None, None, None, *projection_gradients(djoint, x, weight, needed[:3]), *others


def project(x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
    """F.linear(x, weight, bias) for x [T, B, D], in memory of our choosing."""
    joint = new_empty((*x.shape[:2], len(weight)), x.dtype) if out is None else out
    rows, target = x.reshape(-1, x.shape[-1]), joint.view(-1, len(weight))
    if bias is None:
        torch.mm(rows, weight.T, out=target)
    else:
        torch.addmm(bias, rows, weight.T, out=target)
    return joint


def projection_gradients(djoint: Tensor | None, x: Tensor, weight: Tensor, needed) -> list[Tensor | None]:
    if djoint is None:
        return [None, None, None]
    above = djoint.flatten(0, 1)
    need_x, need_weight, need_bias = needed
    return [
        (above @ weight).view(x.shape) if need_x else None,
        above.T @ x.reshape(-1, x.shape[-1]) if need_weight else None,
        above.sum(0) if need_bias else None,
    ]


def run_in_pieces(plan: Plan, flags: tuple[Any, Any, Any], x, weight, bias, tensors) -> tuple[Tensor, ...]:
    """Without gradients the projection of a step is done with after it: a few at a time fit the cache."""
    mask, resets, reverse = flags
    steps, batch, _ = x.shape
    whole = Operands.of(plan, flags, (x, *tensors))
    y = new_empty((steps, batch, whole.states[0].shape[-1]), x.dtype)
    piece = max(1, min(steps, PIECE // (batch * len(weight) * x.element_size())))
    room = torch.empty(piece, batch, len(weight), dtype=x.dtype)
    starts = range(0, steps, piece)
    for start in reversed(starts) if reverse else starts:
        now = slice(start, min(start + piece, steps))
        joint = project(x[now], weight, bias, out=room[: now.stop - now.start])
        part = Operands(
            plan,
            joint,
            [extra[now] for extra in whole.extras],
            whole.weights,
            whole.states,
            whole.matrices,
            None if mask is None else mask[now],
            None if resets is None else resets[now],
            reverse,
        )
        _, sequences, _ = run_forward(part, keep=False, y=y[now])
        whole.states = [sequence[0] for sequence in sequences]
    return y, *(state.to(y.dtype) for state in whole.states)


def reference_gradients(step: Step, operands: Operands, sources, needed, above) -> list[Tensor | None]:
    """Gradients of `sources`, which make the operands: through the loop, to be differentiated again."""
    y, finals = reference_scan(step, operands)
    results = (y, *(finals[name] for name in operands.plan.traced.states))
    pairs = [(result, a) for result, a in zip(results, above, strict=True) if result.requires_grad]
    wanted = [tensor for tensor, need in zip(sources, needed, strict=True) if need]
    outputs, gradients = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def aliases(tensors: Sequence[Tensor | None]) -> list[Any]:
    """The same tensors as inputs of their own: one of them may have been made from another."""
    return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def reference_scan(step: Step, operands: Operands) -> tuple[Tensor, dict[str, Tensor]]:
    plan, size = operands.plan, operands.shape[-1]
    names = (*operands.joint_names, *operands.extra_names)
    parts = dict(zip(names, (*operands.joint.split(size, -1), *operands.extras), strict=True))
    weights = dict(zip(plan.traced.weights, operands.weights, strict=True))
    states = dict(zip(plan.traced.states, operands.states, strict=True))

    def advance(part, state):
        for product, matrix in zip(plan.products, operands.matrices, strict=True):
            columns = F.linear(state[product.state], matrix).split(size, -1)
            part = {**part, **dict(zip(product.parts, columns, strict=True))}
        return step(part, state, weights)

    return reference.scan(advance, parts, states, operands.mask, operands.resets, operands.reverse)


@cache
def forward_kernel(recipe: cpu.Recipe) -> jit.Compiled:
    return jit.compile_function(cpu.forward_ir(recipe), "forward")


@cache
def backward_kernel(recipe: cpu.Recipe) -> jit.Compiled:
    return jit.compile_function(cpu.backward_ir(recipe), "backward")


def run_forward(
    operands: Operands, keep: bool, share: bool = True, y: Tensor | None = None
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The output, the states as [T + 1, B, H] (or one slot, which ends with the last), and the products."""
    traced, (steps, batch, size) = operands.plan.traced, operands.shape
    call = ScanCall(operands)
    same = share and y is None and operands.mask is None and operands.dtype == operands.real
    shared = traced.output_state if same else None
    sequences = []
    for name, start in zip(traced.states, operands.states, strict=True):
        slots = steps + 1 if keep or name == shared else 1
        sequence = new_empty((slots, batch, size), operands.real)
        sequence[-1 if operands.reverse else 0] = start
        call.put(f"state.{name}", sequence if slots > 1 else sequence.expand(steps + 1, -1, -1))
        sequences.append(sequence)
    products = call.put_products(keep)
    if shared is None:
        y = call.put("y", new_empty((steps, batch, size), operands.dtype) if y is None else y)
    else:
        sequence = sequences[traced.states.index(shared)]
        y = sequence[:-1] if operands.reverse else sequence[1:]
    recipe = operands.recipe(keeps_output=shared is None)
    call.run(forward_kernel(recipe), recipe.forward_operands(), call.depth)
    return y, sequences, products


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
        self.in_place = in_place
        self.wanted: list[str] = []
        self.call = ScanCall(operands)

    def run(self, dy: Tensor, dfinals: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of `operands.tensors()`, None for those not needed."""
        self.call.put("dy", side_by_side(dy))
        carries = self.put_states(dfinals)
        joint, extras, weights = self.put_joint(), self.put_extras(), self.put_weights()
        dproducts, through = self.put_products()
        recipe = self.operands.recipe(self.wanted)
        self.call.run(backward_kernel(recipe), recipe.backward_operands(), self.call.depth)
        for product, more in zip(self.operands.plan.products, through, strict=True):
            carries[self.traced.states.index(product.state)] += more[:, : self.operands.shape[-1]]
        dtype = self.operands.dtype
        summed = [None if weight is None else weight.sum(0).to(dtype) for weight in weights]
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
            carries.append(self.call.put(f"carry.{name}", carry))
        return carries

    def put_joint(self) -> Tensor | None:
        if not self.need_joint[0]:
            return None
        joint = self.operands.joint
        gradient = joint if self.in_place else new_empty(tuple(joint.shape), joint.dtype)
        for column, name in enumerate(self.operands.joint_names):
            self.want(name, gradient, column * self.operands.shape[-1])
        return gradient

    def put_extras(self) -> list[Tensor | None]:
        named = zip(self.operands.extra_names, self.operands.extras, self.need_extras, strict=True)
        return [
            self.want(name, new_empty(tuple(extra.shape), extra.dtype)) if need else None
            for name, extra, need in named
        ]

    def put_weights(self) -> list[Tensor | None]:
        """Sums over time for each row of the batch: added up in one order, whatever the threads."""
        _, batch, size = self.operands.shape
        named = zip(self.traced.weights, self.need_weights, strict=True)
        return [
            self.want(name, torch.zeros(batch, size, dtype=self.operands.real)) if need else None
            for name, need in named
        ]

    def put_products(self) -> tuple[list[Tensor], list[Tensor]]:
        steps, _, size = self.operands.shape
        dproducts, through = [], []
        for i, (product, matrix) in enumerate(
            zip(self.operands.plan.products, self.operands.matrices, strict=True)
        ):
            self.call.put_product(i, self.products[i])
            dproduct = self.call.room(f"dproduct.{i}", len(matrix), steps)
            for column, name in enumerate(product.parts):
                self.want(name, dproduct, column * size)
            wide = self.call.put_packed(f"packed.{i}", matrix.T)
            through.append(self.call.room(f"through.{i}", wide).zero_())
            dproducts.append(dproduct)
        return dproducts, through

    def matrices(self, dproducts: list[Tensor]) -> list[Tensor | None]:
        """dR = (gradients of the products)^T (states before): one product over all steps."""
        gradients: list[Tensor | None] = []
        named = zip(self.operands.plan.products, dproducts, self.need_matrices, strict=True)
        for product, dproduct, need in named:
            sequence = self.sequences[self.traced.states.index(product.state)]
            before = sequence[1:] if self.operands.reverse else sequence[:-1]
            gradient = dproduct.flatten(0, 1).T @ before.flatten(0, 1) if need else None
            gradients.append(None if gradient is None else gradient.to(self.operands.dtype))
        return gradients


class ScanCall(Call):
    """A run over `operands`."""

    def __init__(self, operands: Operands):
        super().__init__(operands.shape, (operands.mask, operands.resets, operands.reverse), operands.real)
        self.operands = operands
        size = operands.shape[-1]
        for column, name in enumerate(operands.joint_names):
            self.put(name, operands.joint, column * size)
        for name, tensor in zip(operands.extra_names, operands.extras, strict=True):
            self.put(name, tensor)
        for name, weight in zip(operands.plan.traced.weights, operands.weights, strict=True):
            self.put(name, weight.to(operands.real).contiguous())
        self.put("zeros", torch.zeros(size, dtype=operands.real))
        self.depth = sum(len(matrix) for matrix in operands.matrices)

    def put_products(self, keep: bool) -> list[Tensor]:
        """Room for the products: of all steps if they are to be kept, else of one."""
        products = []
        for i, matrix in enumerate(self.operands.matrices):
            wide = self.put_packed(f"packed.{i}", matrix)
            products.append(self.room(f"product.{i}", wide, self.shape[0] if keep else 0))
            self.put_product(i, products[-1])
        return products

    def put_product(self, i: int, room: Tensor) -> None:
        for column, name in enumerate(self.operands.plan.products[i].parts):
            self.put(name, room, column * self.shape[-1])
