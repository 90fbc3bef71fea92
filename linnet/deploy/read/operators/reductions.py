"""Sums, means and extremes over axes, and norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.deploy.read.call import Call, axis_of, operator, scalar


def log_sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.log(torch.sum(x, axes, keep))


def product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in axes:
        x = torch.prod(x, axis, keepdim=True).to(x.dtype)
    return x if keep else x.squeeze(tuple(axes))


REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceL1": lambda x, axes, keep: torch.sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sum(x * x, axes, keep).sqrt(),
    "ReduceLogSum": log_sum,
    "ReduceLogSumExp": torch.logsumexp,
    "ReduceMax": torch.amax,
    "ReduceMean": torch.mean,
    "ReduceMin": torch.amin,
    "ReduceProd": product,
    "ReduceSum": torch.sum,
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keep),
}


@operator(*REDUCTIONS, host=(1,))
def reduction(call: Call, x: Tensor, axes: list[int] | None = None) -> Tensor:
    axes = call.integers("axes", []) if axes is None else axes
    if not axes:
        if call.integer("noop_with_empty_axes", 0):
            return x
        axes = list(range(x.dim()))
    keep = bool(call.integer("keepdims", 1))
    axes = [axis_of(call, axis, x.dim()) for axis in axes]
    if not axes:
        return x
    return REDUCTIONS[call.node.operator](x, axes, keep).to(x.dtype)


@operator("ArgMax", "ArgMin")
def argument(call: Call, x: Tensor) -> Tensor:
    call.unless("select_last_index", 0)
    axis = axis_of(call, call.integer("axis", 0), x.dim())
    function = torch.argmax if call.node.operator == "ArgMax" else torch.argmin
    return function(x, axis, bool(call.integer("keepdims", 1)))


@operator("TopK", host=(1,))
def top_k(call: Call, x: Tensor, count: Any) -> Any:
    axis = axis_of(call, call.integer("axis", -1), x.dim())
    return x.topk(int(scalar(count)), axis, bool(call.integer("largest", 1)))


# ------------------------------------------------------------------------------------------- norms


@operator("BatchNormalization")
def batch_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    call.unless("training_mode", 0)
    channels = x.shape[1] if x.dim() > 1 else 1
    right = all(each.shape == (channels,) for each in (scale, shift, mean, var))
    call.require(right, f"has weights that do not fit {channels} channels")
    return F.batch_norm(x, mean, var, scale, shift, training=False, eps=call.number("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    call.unless("stash_type", 1)
    call.require(len(call.node.outputs) == 1, "returns mean and deviation, which Linnet does not compute")
    axis = axis_of(call, call.integer("axis", -1), x.dim())
    eps = call.number("epsilon", 1e-5)
    if scale.shape == x.shape[axis:] and (shift is None or shift.shape == scale.shape):
        return F.layer_norm(x, x.shape[axis:], scale, shift, eps)
    y = F.layer_norm(x, x.shape[axis:], eps=eps) * scale
    return y if shift is None else y + shift


@operator("InstanceNormalization")
def instance_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    call.require(x.dim() > 2 and scale.shape == shift.shape == x.shape[1:2], "has weights that do not fit")
    return F.instance_norm(x, weight=scale, bias=shift, eps=call.number("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    groups = call.integer("num_groups", 1)
    right = x.dim() > 1 and groups > 0 and x.shape[1] % groups == 0
    call.require(right and call.version >= 21, "has groups that do not fit, or is of a version before 21")
    return F.group_norm(x, groups, scale, shift, call.number("epsilon", 1e-5))


@operator("LpNormalization")
def lp_norm(call: Call, x: Tensor) -> Tensor:
    axis = axis_of(call, call.integer("axis", -1), x.dim())
    return F.normalize(x, p=call.integer("p", 2), dim=axis)
