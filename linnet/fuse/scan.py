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
from linnet.fuse.plan import Fusible, Plan
from linnet.fuse.trace import Step

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
# Below this many numbers a thread is not worth waking.
THREAD_WORTH = 1 << 15


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

    def tensors(self) -> list[Tensor]:
        return [self.joint, *self.extras, *self.weights, *self.states, *self.matrices]

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
    tensors = (*map(side_by_side, (joint, *extras)), *weights, *states, *matrices)
    if torch.compiler.is_compiling():
        from linnet.fuse.ops import compiled_scan

        y, *finals = compiled_scan(fusible.plan, tensors, *flags)
    else:
        y, *finals = FusedScan.apply(fusible, flags, *tensors)
    return y, dict(zip(fusible.plan.traced.states, finals, strict=True))


def side_by_side(tensor: Tensor) -> Tensor:
    """Kernels take any strides but one: the channels of a row stand side by side."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


class FusedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fusible: Fusible, flags: tuple[Any, Any, Any], *tensors):
        operands = Operands.of(fusible.plan, flags, tensors)
        keep = any(ctx.needs_input_grad)
        y, sequences, products = run_forward(operands, keep)
        ctx.fusible, ctx.flags = fusible, flags
        if keep:
            ctx.save_for_backward(*tensors, *sequences, *products)
        last = 0 if operands.reverse else -1
        return y, *(sequence[last].to(y.dtype, copy=True) for sequence in sequences)

    @staticmethod
    def backward(ctx, dy, *dfinals):
        (plan, step), saved = ctx.fusible, list(ctx.saved_tensors)
        products = [saved.pop() for _ in plan.products][::-1]
        sequences = [saved.pop() for _ in plan.traced.states][::-1]
        operands = Operands.of(plan, ctx.flags, saved)
        needed = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *reference_gradients(step, operands, needed, (dy, *dfinals))
        return None, None, *Backward(operands, sequences, products, needed).run(dy, dfinals)


def reference_gradients(step: Step, operands: Operands, needed, above) -> list[Tensor | None]:
    """Gradients that can be differentiated again: through the loop itself."""
    y, finals = reference_scan(step, operands)
    wanted = [tensor for tensor, need in zip(operands.tensors(), needed, strict=True) if need]
    gradients = iter(
        torch.autograd.grad((y, *finals.values()), wanted, above, create_graph=True, allow_unused=True)
    )
    return [next(gradients) if need else None for need in needed]


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


@cache
def vector_width(dtype: torch.dtype) -> int:
    """Two registers' worth: while one waits for a result, the other has work."""
    lanes = 16 if "+avx512f" in jit.host_cpu() else 8
    return lanes if dtype == torch.float64 else 2 * lanes


def run_forward(
    operands: Operands, keep: bool, share: bool = True
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The output, the states as [T + 1, B, H] (or one slot, which ends with the last), and the products."""
    traced, (steps, batch, size) = operands.plan.traced, operands.shape
    call = Call(operands)
    same = share and operands.mask is None and operands.dtype == operands.real
    shared = traced.output_state if same else None
    sequences = []
    for name, start in zip(traced.states, operands.states, strict=True):
        slots = steps + 1 if keep or name == shared else 1
        sequence = torch.empty(slots, batch, size, dtype=operands.real)
        sequence[-1 if operands.reverse else 0] = start
        call.put(f"state.{name}", sequence if slots > 1 else sequence.expand(steps + 1, -1, -1))
        sequences.append(sequence)
    products = call.put_products(keep)
    if shared is None:
        y = call.put("y", torch.empty(steps, batch, size, dtype=operands.dtype))
    else:
        sequence = sequences[traced.states.index(shared)]
        y = sequence[:-1] if operands.reverse else sequence[1:]
    recipe = operands.recipe(keeps_output=shared is None)
    call.run(forward_kernel(recipe), recipe.forward_operands())
    return y, sequences, products


class Backward:
    """One run of the backward kernel, and the large products after it."""

    def __init__(self, operands: Operands, sequences: list[Tensor], products: list[Tensor], needed):
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
        self.wanted: list[str] = []
        self.call = Call(operands)

    def run(self, dy: Tensor, dfinals: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of `operands.tensors()`, None for those not needed."""
        self.call.put("dy", side_by_side(dy))
        carries = self.put_states(dfinals)
        joint, extras, weights = self.put_joint(), self.put_extras(), self.put_weights()
        dproducts, through = self.put_products()
        recipe = self.operands.recipe(self.wanted)
        self.call.run(backward_kernel(recipe), recipe.backward_operands())
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
        gradient = torch.empty_like(self.operands.joint)
        for column, name in enumerate(self.operands.joint_names):
            self.want(name, gradient, column * self.operands.shape[-1])
        return gradient

    def put_extras(self) -> list[Tensor | None]:
        named = zip(self.operands.extra_names, self.operands.extras, self.need_extras, strict=True)
        return [
            self.want(name, torch.empty(extra.shape, dtype=extra.dtype)) if need else None
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
        steps, batch, size = self.operands.shape
        dproducts, through = [], []
        for i, (product, matrix) in enumerate(
            zip(self.operands.plan.products, self.operands.matrices, strict=True)
        ):
            self.call.put_product(i, self.products[i])
            dproduct = torch.empty(steps, batch, len(matrix), dtype=self.operands.real)
            self.call.put(f"dproduct.{i}", dproduct)
            for column, name in enumerate(product.parts):
                self.want(name, dproduct, column * size)
            packed = self.call.put_packed(i, matrix.T)
            target = torch.zeros(batch, packed.shape[0] * packed.shape[2], dtype=self.operands.real)
            through.append(self.call.put(f"through.{i}", target))
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


class Call:
    """One run of a kernel: the sizes, and where each operand lies."""

    def __init__(self, operands: Operands):
        self.operands = operands
        self.places: dict[str, list[int]] = {}
        self.alive: list[Tensor] = []
        size = operands.shape[-1]
        for column, name in enumerate(operands.joint_names):
            self.put(name, operands.joint, column * size)
        for name, tensor in zip(operands.extra_names, operands.extras, strict=True):
            self.put(name, tensor)
        for name, weight in zip(operands.plan.traced.weights, operands.weights, strict=True):
            self.put(name, weight.to(operands.real).contiguous())
        self.put("zeros", torch.zeros(size, dtype=operands.real))

    def put(self, name: str, tensor: Tensor, offset: int = 0) -> Tensor:
        """Note where `tensor` lies, from channel `offset` on.

        [T, B, H]; one dimension fewer for what is alike at all steps, two for what rows share as well.
        """
        size = tensor.element_size()
        strides = [0, 0, *tensor.stride()][-3:-1]
        self.places[name] = [tensor.data_ptr() + offset * size, *(stride * size for stride in strides)]
        self.alive.append(tensor)
        return tensor

    def put_packed(self, i: int, matrix: Tensor) -> Tensor:
        """[N, K] as panels [N / panel, K, panel], the columns beyond N zero."""
        panel = vector_width(self.operands.dtype)
        matrix = F.pad(matrix.to(self.operands.real), (0, 0, 0, -len(matrix) % panel))
        packed = matrix.unflatten(0, (-1, panel)).transpose(1, 2).contiguous()
        self.places[f"packed.{i}"] = [packed.data_ptr(), packed.shape[1], packed.shape[0]]
        self.alive.append(packed)
        return packed

    def put_products(self, keep: bool) -> list[Tensor]:
        """Room for the products: of all steps if they are to be kept, else of one."""
        steps, batch, _ = self.operands.shape
        products = []
        for i, matrix in enumerate(self.operands.matrices):
            packed = self.put_packed(i, matrix)
            wide = packed.shape[0] * packed.shape[2]
            room = torch.empty(steps if keep else 1, batch, wide, dtype=self.operands.real)
            products.append(room)
            self.put_product(i, room if keep else room.expand(steps, -1, -1))
        return products

    def put_product(self, i: int, room: Tensor) -> None:
        self.put(f"product.{i}", room)
        for column, name in enumerate(self.operands.plan.products[i].parts):
            self.put(name, room, column * self.operands.shape[-1])

    def run(self, function: jit.Compiled, names: tuple[str, ...]) -> None:
        steps, batch, size = self.operands.shape
        blocks, block = (1, size) if self.operands.matrices else share_out(batch, size)
        numbers = [steps, size, blocks, block, int(self.operands.reverse)]
        for flags in (self.operands.mask, self.operands.resets):
            numbers += [0, 0, 0] if flags is None else [flags.data_ptr(), *flags.stride()]
        for name in names:
            numbers += self.places[name]
        depth = 1 + sum(len(matrix) for matrix in self.operands.matrices)
        grain = max(1, THREAD_WORTH // (steps * block * depth))
        jit.run(function, batch * blocks, grain, numbers)


def share_out(batch: int, size: int) -> tuple[int, int]:
    """Into how many blocks of how many channels a row is cut: only where there are few rows a thread."""
    threads = torch.get_num_threads()
    if batch >= 4 * threads:
        return 1, size
    block = max(64, -(-size // (2 * threads)))
    block = -(-block // 16) * 16
    return -(-size // block), block
