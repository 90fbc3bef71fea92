"""Operators of torch that programs of torch.export may call. No other function of a file is looked up.

A node has its arguments in order, as values or as `Slot`s: the numbers of its inputs in a graph.
"""

from __future__ import annotations

import operator as python
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.deploy.read.call import OPERATORS, Call, Operator, operator

ARGUMENTS, OPTIONS = "arguments", "options"
# Names with their overloads; none of them writes to its arguments, reads files or draws random numbers.
NAMES = [
    "abs.default",
    "add.Scalar",
    "add.Tensor",
    "addmm.default",
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "alias.default",
    "amax.default",
    "amin.default",
    "argmax.default",
    "avg_pool1d.default",
    "avg_pool2d.default",
    "batch_norm.default",
    "bmm.default",
    "cat.default",
    "ceil.default",
    "chunk.default",
    "clamp.default",
    "clamp.Tensor",
    "clamp_max.default",
    "clamp_min.default",
    "clone.default",
    "constant_pad_nd.default",
    "contiguous.default",
    "conv1d.default",
    "conv2d.default",
    "conv_transpose1d.default",
    "conv_transpose2d.default",
    "cos.default",
    "cumsum.default",
    "detach.default",
    "div.Scalar",
    "div.Tensor",
    "dropout.default",
    "elu.default",
    "embedding.default",
    "eq.Scalar",
    "eq.Tensor",
    "erf.default",
    "exp.default",
    "expand.default",
    "expm1.default",
    "flatten.using_ints",
    "flip.default",
    "floor.default",
    "gather.default",
    "ge.Scalar",
    "ge.Tensor",
    "gelu.default",
    "group_norm.default",
    "gru_cell.default",
    "gt.Scalar",
    "gt.Tensor",
    "hardsigmoid.default",
    "hardswish.default",
    "hardtanh.default",
    "index_select.default",
    "layer_norm.default",
    "le.Scalar",
    "le.Tensor",
    "leaky_relu.default",
    "linear.default",
    "log.default",
    "log1p.default",
    "log_softmax.int",
    "logical_and.default",
    "logical_not.default",
    "logical_or.default",
    "lstm_cell.default",
    "lt.Scalar",
    "lt.Tensor",
    "masked_fill.Scalar",
    "matmul.default",
    "max.dim",
    "max_pool1d.default",
    "max_pool2d.default",
    "maximum.default",
    "mean.default",
    "mean.dim",
    "min.dim",
    "minimum.default",
    "mish.default",
    "mm.default",
    "mul.Scalar",
    "mul.Tensor",
    "mv.default",
    "narrow.default",
    "ne.Scalar",
    "ne.Tensor",
    "neg.default",
    "ones_like.default",
    "pad.default",
    "permute.default",
    "pow.Scalar",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "prelu.default",
    "reciprocal.default",
    "relu.default",
    "relu6.default",
    "repeat.default",
    "reshape.default",
    "rms_norm.default",
    "rnn_relu_cell.default",
    "rnn_tanh_cell.default",
    "round.default",
    "rsqrt.default",
    "rsub.Scalar",
    "select.int",
    "selu.default",
    "sigmoid.default",
    "sign.default",
    "silu.default",
    "sin.default",
    "slice.Tensor",
    "softmax.int",
    "softplus.default",
    "split.Tensor",
    "split_with_sizes.default",
    "sqrt.default",
    "square.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "stack.default",
    "std.correction",
    "sub.Scalar",
    "sub.Tensor",
    "sum.default",
    "sum.dim_IntList",
    "t.default",
    "tanh.default",
    "to.dtype",
    "transpose.int",
    "tril.default",
    "triu.default",
    "unbind.int",
    "unflatten.int",
    "unfold.default",
    "unsqueeze.default",
    "unsafe_split.Tensor",
    "var.correction",
    "view.default",
    "where.ScalarOther",
    "where.ScalarSelf",
    "where.self",
    "zeros_like.default",
]
TRAINING = {"batch_norm": 5, "dropout": 2}
# Make tensors from numbers alone; where they make them is chosen here.
FACTORIES = (
    *("arange.default", "arange.start", "arange.start_step"),
    *("full.default", "ones.default", "zeros.default"),
)
# On sizes, which are numbers of Python.
SIZE_NAMES = ("add", "sub", "mul", "floordiv", "mod", "neg", "ge", "le", "gt", "lt", "eq", "ne")
OF_SIZES = {name: getattr(python, name) for name in SIZE_NAMES}
# Checks of sizes, which have no result.
DROPPED = (
    "torch.ops.aten._assert_scalar.default",
    "torch.ops.aten._assert_tensor_metadata.default",
    "torch.ops.aten.sym_constrain_range_for_size.default",
    "torch.ops.aten.sym_constrain_range.default",
)


@dataclass(frozen=True)
class Slot:
    """An argument that is the input of this number."""

    number: int


def filled(template: Any, inputs: tuple[Any, ...]) -> Any:
    if isinstance(template, Slot):
        return inputs[template.number]
    return [filled(each, inputs) for each in template] if isinstance(template, list) else template


def arguments_of(call: Call, inputs: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    attributes = call.node.attributes
    options = {name: filled(value, inputs) for name, value in attributes[OPTIONS].items()}
    return filled(attributes[ARGUMENTS], inputs), options


def run_aten(call: Call, *inputs: Any) -> Any:
    arguments, options = arguments_of(call, inputs)
    _, name, overload = call.node.operator.split(".")
    # Position of the argument that says whether the model is being trained.
    trains = TRAINING.get(name)
    untrained = trains is None or (len(arguments) > trains and arguments[trains] is False and not options)
    call.require(untrained, "is in training mode; export the model after model.eval()")
    if f"{name}.{overload}" in FACTORIES:
        options["device"] = torch.get_default_device()
    return getattr(getattr(torch.ops.aten, name), overload)(*arguments, **options)


def run_sizes(call: Call, *inputs: Any) -> Tensor:
    arguments, _ = arguments_of(call, inputs)
    call.require(all(isinstance(each, (int, float)) for each in arguments), "has sizes that are not numbers")
    return torch.tensor(OF_SIZES[call.node.operator.removeprefix("size.")](*arguments))


@operator("aten.sym_size.int", of_shapes=True)
def size_of_axis(call: Call, *inputs: Any) -> Tensor:
    (x, axis), _ = arguments_of(call, inputs)
    return torch.tensor(x.shape[axis])


for _name in (*NAMES, *FACTORIES):
    OPERATORS[f"aten.{_name}"] = Operator(run_aten, frozenset(), False, None)
for _name in OF_SIZES:
    OPERATORS[f"size.{_name}"] = Operator(run_sizes, frozenset(), False, None)
