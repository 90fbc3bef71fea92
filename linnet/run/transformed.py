"""The registered operations under torch.func: `grad`, `vmap` and their like.

torch.func transforms an autograd function whose rules it knows. In a batch of calls (`vmap`), the mapped
dimension becomes part of the batch, so that one kernel runs for all of them. A weight of which each call has
its own, or needs its own gradient, is not part of the batch: then the kernel runs once for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.program.operands import Operands
from linnet.program.plan import Fusible
from linnet.program.unit import Flags
from linnet.run.ops import scan_backward_op, scan_op

# The dimension of the batch in each of some tensors; None for one that has none.
Axes = Sequence[int | None]


def transformed_scan(fusible: Fusible, tensors: Sequence[Tensor], flags: Flags) -> tuple[Tensor, ...]:
    """Return the output and the final states."""
    mask, resets, reverse = flags
    results = TransformedScan.apply(Call(fusible, reverse), mask, resets, *tensors)
    return results[: 1 + len(fusible.plan.traced.states)]


class Call(NamedTuple):
    """What a scan is besides its tensors."""

    fusible: Fusible
    reverse: bool

    @property
    def states(self) -> int:
        return len(self.fusible.plan.traced.states)

    @property
    def axes(self) -> list[int | None]:
        """Of the tensors that the operation takes."""
        plan, states = self.fusible.plan, self.states
        sequences, weights = [1] * (1 + len(plan.extras)), [None] * len(plan.traced.weights)
        return [*sequences, *weights, *[0] * states, *[None] * len(plan.matrices)]

    @property
    def result_axes(self) -> list[int | None]:
        """Of the output, the final states, the states of all steps and the products."""
        plan = self.fusible.plan
        return [1, *[0] * self.states, *[1] * (self.states + len(plan.matrices) + len(plan.traced.inner))]


class TransformedScan(torch.autograd.Function):
    """linnet::scan: a Call, the mask, the resets and the tensors of the operation -> its results."""

    @staticmethod
    def forward(call: Call, mask: Tensor | None, resets: Tensor | None, *tensors: Tensor) -> Any:
        return tuple(scan_op(call.fusible.plan.text, list(tensors), mask, resets, call.reverse))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, mask, resets, *tensors = inputs
        kept = output[1 + ctx.call.states :]
        ctx.count = len(tensors)
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(mask, resets, *output[: 1 + ctx.call.states], *tensors, *kept)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        mask, resets, *saved = ctx.saved_tensors
        count, needed = 1 + ctx.call.states, tuple(ctx.needs_input_grad[3:])
        results, saved = saved[:count], saved[count:]
        above = [
            torch.zeros_like(result) if gradient is None else gradient
            for result, gradient in zip(results, gradients[:count], strict=True)
        ]
        found = iter(Gradients.apply(ctx.call, needed, mask, resets, *saved, *above) if any(needed) else ())
        return None, None, None, *(next(found) if need else None for need in needed)

    @staticmethod
    def vmap(info: Any, dims: Any, call: Call, *tensors: Tensor | None) -> Any:
        axes = [1, 1, *call.axes]
        batch = Batch(info.batch_size, list(dims[1:]), axes)
        return batch.run(partial(TransformedScan.apply, call), tensors, call.result_axes)


class Gradients(torch.autograd.Function):
    """linnet::scan_backward: its arguments -> the gradients of those tensors that need one."""

    @staticmethod
    def forward(
        call: Call, needed: tuple[bool, ...], mask: Tensor | None, resets: Tensor | None, *others: Tensor
    ) -> Any:
        tensors, kept, above = parted(call, len(needed), others)
        text, flags = call.fusible.plan.text, (mask, resets, call.reverse)
        return tuple(scan_backward_op(text, tensors, kept, above, needed, *flags))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call, ctx.needed, mask, resets, *others = inputs
        ctx.save_for_backward(mask, resets, *others)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        """By the reference, as a function of the tensors and of the gradients of the results."""
        mask, resets, *others = ctx.saved_tensors
        tensors, kept, above = parted(ctx.call, len(ctx.needed), others)
        function = partial(reference_gradients, ctx.call, ctx.needed, (mask, resets, ctx.call.reverse))
        pull = torch.func.vjp(function, tuple(tensors), tuple(above))[1]
        of_tensors, of_above = pull(tuple(outer))
        return None, None, None, None, *of_tensors, *[None] * len(kept), *of_above

    @staticmethod
    def vmap(info: Any, dims: Any, call: Call, needed: tuple[bool, ...], *tensors: Tensor | None) -> Any:
        kept, above = call.result_axes[1 + call.states :], call.result_axes[: 1 + call.states]
        batch = Batch(info.batch_size, list(dims[2:]), [1, 1, *call.axes, *kept, *above])
        made = [axis for axis, need in zip(call.axes, needed, strict=True) if need]
        return batch.run(partial(Gradients.apply, call, needed), tensors, made)


def parted(
    call: Call, count: int, others: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """The tensors of a scan, what it has kept, and the gradients of its results."""
    last = len(others) - 1 - call.states
    return list(others[:count]), list(others[count:last]), list(others[last:])


def reference_gradients(
    call: Call, needed: Sequence[bool], flags: Flags, tensors: tuple[Tensor, ...], above: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    # Imported when first needed: it needs llvmlite.
    from linnet.run.scan import reference_scan

    def scan(*given: Tensor) -> tuple[Tensor, ...]:
        y, finals = reference_scan(call.fusible.step, Operands(call.fusible.plan, given[0], given[1:], flags))
        return y, *(finals[name] for name in call.fusible.plan.traced.states)

    pull = torch.func.vjp(scan, *tensors)[1]
    return tuple(gradient for gradient, need in zip(pull(above), needed, strict=True) if need)


class Batch:
    """A batch of calls, as torch.func.vmap has it.

    dims   the mapped dimension of each argument; None if all calls share it
    axes   the dimension of the batch of each argument, in one call
    """

    def __init__(self, count: int, dims: Sequence[int | None], axes: Axes):
        self.count, self.dims, self.axes = count, dims, axes

    def run(
        self, function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor | None], made: Axes
    ) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
        """The results of all calls, and the mapped dimension of each; `made` are the axes of the results."""
        weights = [dim for dim, axis in zip(self.dims, self.axes, strict=True) if axis is None]
        if None in made or any(dim is not None for dim in weights):
            samples = [function(*self.sample(tensors, i)) for i in range(self.count)]
            return tuple(map(torch.stack, zip(*samples, strict=True))), (0,) * len(made)
        results = function(*map(self.joined, tensors, self.dims, self.axes))
        parts = [r.unflatten(axis, (self.count, -1)) for r, axis in zip(results, made, strict=True)]
        return tuple(parts), tuple(made)

    def sample(self, tensors: Sequence[Tensor | None], i: int) -> list[Tensor | None]:
        pairs = zip(tensors, self.dims, strict=True)
        return [t if t is None or dim is None else t.select(dim, i) for t, dim in pairs]

    def joined(self, tensor: Tensor | None, dim: int | None, axis: int | None) -> Tensor | None:
        """The rows of all calls in one batch."""
        if tensor is None or axis is None:
            return tensor
        if dim is None:
            shape = tensor.shape
            return (
                tensor.unsqueeze(axis)
                .expand(*shape[:axis], self.count, *shape[axis:])
                .flatten(axis, axis + 1)
            )
        return tensor.movedim(dim, axis).flatten(axis, axis + 1)
