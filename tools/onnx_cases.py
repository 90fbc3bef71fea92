"""Small ONNX models for tests of the reader, and as seeds of its fuzzing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Shape = Sequence[int | str]
T, B, I, H = 5, 3, 4, 6  # noqa: E741, steps, batch, inputs, hidden
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Weights that leave gates open."""
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, outputs, **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    version: int = 17,
    dtypes: Mapping[str, int] | None = None,
) -> ModelProto:
    """Return a model of floats, except for the inputs in `dtypes`."""
    kinds = dtypes or {}
    ports = [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), list(s)) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), None) for n in outputs]
    tensors = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "case", ports, results, tensors)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def recurrent(
    kind: str,
    direction: str = "forward",
    layout: int = 0,
    lengths: bool = False,
    states: bool = False,
    bias: bool = True,
    peepholes: bool = False,
    **attributes: Any,
) -> ModelProto:
    """One layer with all of its outputs."""
    directions, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    constants = {"w": numbers(directions, gates * H, I), "r": numbers(directions, gates * H, H, seed=1)}
    inputs: dict[str, Shape] = {"x": (B, T, I) if layout else (T, B, I)}
    state = (B, directions, H) if layout else (directions, B, H)
    names = ["x", "w", "r", "", "", "", "", ""]
    if bias:
        names[3], constants["b"] = "b", numbers(directions, 2 * gates * H, seed=2)
    if lengths:
        names[4], constants["lengths"] = "lengths", np.array([5, 2, 3], np.int32)
    for position, name in ((5, "h"), (6, "c"))[: 2 if kind == "LSTM" else 1]:
        if states:
            names[position], inputs[name] = name, state
    if peepholes:
        names[7], constants["p"] = "p", numbers(directions, 3 * H, seed=3)
    outputs = ["y", "hn", "cn"][: 3 if kind == "LSTM" else 2]
    if direction != "forward":
        attributes["direction"] = direction
    if layout:
        attributes["layout"] = 1
    while not names[-1]:
        names.pop()
    return model([node(kind, names, outputs, hidden_size=H, **attributes)], inputs, outputs, constants)


def convolutions() -> ModelProto:
    """Padding of all kinds, strides, groups, a norm and pooling in one and two dimensions."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 2], strides=[2], dilations=[2]),
        node("BatchNormalization", ["a", "s", "b1", "m", "v"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("Conv", ["d", "w2"], ["e"], group=2, auto_pad="SAME_UPPER"),
        node("ConvTranspose", ["e", "w3"], ["f"], strides=[2], pads=[0, 1], output_padding=[1]),
        node("MaxPool", ["f"], ["g"], kernel_shape=[3], strides=[2], pads=[1, 1]),
        node("AveragePool", ["g"], ["y"], kernel_shape=[2], count_include_pad=1, pads=[1, 1]),
        node("GlobalAveragePool", ["g"], ["z"]),
    ]
    constants = {"w1": numbers(4, 3, 3), "b1": numbers(4), "w2": numbers(4, 2, 3), "w3": numbers(4, 2, 4)}
    constants |= {"s": numbers(4, seed=4), "m": numbers(4, seed=5), "v": numbers(4, seed=6) ** 2}
    return model(nodes, {"x": (2, 3, 16)}, ["y", "z"], constants)


def shapes() -> ModelProto:
    """Sizes that are computed from the shape of the input."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"], axis=0),
        node("Concat", ["n", "minus"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["flat"]),
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Slice", ["x", "one", "many", "last", "by"], ["cut"]),
        node("Pad", ["cut", "pads"], ["padded"], mode="reflect"),
        node("Expand", ["row", "s"], ["wide"]),
        node("Transpose", ["wide"], ["turned"], perm=[2, 0, 1]),
        node("Tile", ["flat", "twice"], ["tiled"]),
        node("Split", ["x"], ["left", "right"], axis=2),
        node("Unsqueeze", ["left", "first"], ["up"]),
        node("Squeeze", ["up", "first"], ["down"]),
        node("Range", ["zero", "four", "step"], ["count"]),
        node("Where", ["yes", "x", "zeros"], ["y"]),
    ]
    whole = {"first": [0], "minus": [-1], "one": [-1], "many": [-(2**63)], "last": [2], "by": [-1]}
    whole |= {"pads": [0, 0, 1, 0, 0, 2], "twice": [1, 2]}
    constants = {name: np.array(value, np.int64) for name, value in whole.items()}
    constants |= {name: np.array(v, np.int64) for name, v in {"zero": 0, "four": 4, "step": 1}.items()}
    constants |= {"row": numbers(1, 4), "yes": np.array([True, False, True, True])}
    outputs = ["flat", "padded", "turned", "tiled", "down", "right", "count", "y"]
    return model(nodes, {"x": (2, 3, 4)}, outputs, constants, dtypes={"count": INT64})


def branches(fixed: bool = False) -> ModelProto:
    """A condition on the input `rate`, as in models for two sampling rates, and one on a shape."""
    branch = []
    for name, weight in (("then", "w1"), ("else", "w2")):
        made = node("MatMul", ["x", weight], ["m"])
        result = helper.make_tensor_value_info("m", FLOAT, None)
        branch.append(helper.make_graph([made], name, [], [result]))
    nodes = [
        node("Equal", ["rate", "wanted"], ["same"]),
        helper.make_node("If", ["same"], ["a"], then_branch=branch[0], else_branch=branch[1]),
        node("Size", ["x"], ["n"]),
        node("Equal", ["n", "twelve"], ["small"]),
        helper.make_node("If", ["small"], ["b"], then_branch=branch[1], else_branch=branch[0]),
        node("Add", ["a", "b"], ["y"]),
    ]
    constants = {"w1": numbers(4, 5), "w2": numbers(4, 5, seed=1)}
    constants |= {"wanted": np.array(16000, np.int64), "twelve": np.array(12, np.int64)}
    return model(nodes, {"x": (3, 4), "rate": ()}, ["y"], constants, dtypes={"rate": INT64})


def quantised() -> ModelProto:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("MatMulInteger", ["q", "w", "zero"], ["p"]),
        node("ConvInteger", ["qx", "k", "z8"], ["c"], pads=[1, 1]),
        node("QuantizeLinear", ["x", "s", "z8"], ["qs"]),
        node("DequantizeLinear", ["qs", "s", "z8"], ["d"]),
        node("Cast", ["p"], ["y"], to=FLOAT),
        node("Cast", ["c"], ["v"], to=FLOAT),
        node("Reshape", ["q", "three"], ["qx"]),
    ]
    nodes.insert(2, nodes.pop())
    chance = np.random.default_rng(0)
    constants = {"w": chance.integers(-128, 128, (6, 5)).astype(np.int8)}
    constants |= {"k": chance.integers(-128, 128, (4, 1, 3)).astype(np.int8), "z8": np.array(7, np.uint8)}
    constants |= {"s": np.array(0.02, np.float32), "three": np.array([4, 1, 6], np.int64)}
    return model(nodes, {"x": (4, 6)}, ["y", "v", "d"], constants)


def arithmetic(version: int = 17) -> ModelProto:
    """A chain through elementwise operators, reductions and norms."""
    nodes = [
        node("Gemm", ["x", "w", "b"], ["a"], transB=1, alpha=0.5),
        node("LayerNormalization", ["a", "s", "b"], ["c"]),
        node("Softmax", ["c"], ["d"], axis=1),
        node("ReduceMean", ["d"], ["e"], axes=[1]),
        node("Pow", ["d", "two"], ["f"]),
        node("Sub", ["f", "e"], ["g"]),
        node("Clip", ["g", "low", "high"], ["h"]),
        node("HardSigmoid", ["h"], ["i"], alpha=0.3),
        node("Erf", ["i"], ["j"]),
        node("Max", ["j", "c", "two"], ["k"]),
        node("ArgMax", ["k"], ["best"], axis=1, keepdims=0),
        node("Gather", ["table", "best"], ["y"]),
        node("Gelu" if version >= 20 else "Softplus", ["k"], ["z"]),
    ]
    constants = {"w": numbers(5, 4), "b": numbers(5, seed=1), "s": numbers(5, seed=2), "table": numbers(5, 3)}
    constants |= {name: np.array(v, np.float32) for name, v in {"two": 2, "low": -0.1, "high": 0.2}.items()}
    return model(nodes, {"x": (3, 4)}, ["y", "z"], constants, version=version)


CASES: dict[str, Callable[[], ModelProto]] = {
    **{kind.lower(): partial(recurrent, kind) for kind in GATES},
    "lstm_both": partial(recurrent, "LSTM", "bidirectional", lengths=True, states=True),
    "lstm_peepholes": partial(recurrent, "LSTM", "reverse", lengths=True, peepholes=True, states=True),
    "lstm_by_batch": partial(recurrent, "LSTM", "bidirectional", layout=1, states=True),
    "gru_after": partial(recurrent, "GRU", "bidirectional", linear_before_reset=1, states=True),
    "gru_before": partial(recurrent, "GRU", "reverse", states=True, lengths=True),
    "gru_without_bias": partial(recurrent, "GRU", bias=False),
    "rnn_relu": partial(recurrent, "RNN", "bidirectional", states=True, activations=["Relu", "Relu"]),
    "convolutions": convolutions,
    "shapes": shapes,
    "branches": branches,
    "quantised": quantised,
    "arithmetic": arithmetic,
}
