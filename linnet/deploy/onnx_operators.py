"""LSTM, GRU and RNN as ONNX's own operators, for which runtimes have kernels.

In a model that torch has exported, each scan is one operation, `linnet::scan`. If its step is that of an ONNX
operator, its input is a plain product and its mask is one of lengths, it becomes that operator. All other
scans become ONNX's Scan.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch.fx import Node

from linnet.deploy.onnx_int8 import ZERO, as_bytes
from linnet.deploy.onnx_nodes import Nodes
from linnet.program.plan import Plan, plan_called
from linnet.units import GRU, LSTM, RNN

aten = torch.ops.aten


class Operator(NamedTuple):
    """An operator of ONNX.

    gates       our names of the inputs of the step, in the order of the operator's rows
    products    the same for the products with the state
    peepholes   our names of the weights with one number per channel that the operator has
    """

    kind: str
    gates: tuple[str, ...]
    products: tuple[str, ...]
    peepholes: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = {}


LSTM_OPERATOR = Operator(
    "LSTM", ("i", "o", "f", "content"), ("i_h", "o_h", "f_h", "content_h"), ("p_i", "p_o", "p_f")
)
GRU_OPERATOR = Operator("GRU", ("z", "r", "n"), ("z_h", "r_h", "n_h"), attributes={"linear_before_reset": 1})
RNN_OPERATOR = Operator("RNN", ("a",), ("hR",))
NONLINEARITIES: dict[str, Literal["tanh", "relu", "sigmoid"]] = {
    "Tanh": "tanh",
    "Relu": "relu",
    "Sigmoid": "sigmoid",
}


@cache
def operators() -> dict[str, Operator]:
    """Return the operators by the text of the plan of the step that each computes."""
    same = [
        (LSTM(1, 1), LSTM_OPERATOR),
        (LSTM(1, 1, peepholes=True), LSTM_OPERATOR),
        (GRU(1, 1), GRU_OPERATOR),
        (GRU(1, 1, bias=False), GRU_OPERATOR),
        *(
            (RNN(1, 1, nonlinearity=ours), RNN_OPERATOR._replace(attributes={"activations": [name]}))
            for name, ours in NONLINEARITIES.items()
        ),
    ]
    return {stack.layer(0)[0].plans_for(())[0].text: operator for stack, operator in same}  # type: ignore[union-attr]


# ------------------------------------------------------------------------ which scans are operators


class Source(NamedTuple):
    """What an operator reads besides the states and the matrices of the step.

    scales   those of the rows of `weight`, if this is int8
    """

    x: Any
    weight: Any
    bias: Any
    lengths: Any
    scales: Any = None


def source_of(plan: str, joint: Any, mask: Any, resets: Any) -> Source | None:
    """Return what the operator reads in place of the projection `joint`, or None if there is no operator."""
    # onnxruntime has no kernels of these operators for float64.
    if plan not in operators() or resets is not None or joint.dtype.name != "FLOAT":
        return None
    lengths = None if mask is None else lengths_of(mask)
    product = recorded(joint)
    if product is None or (mask is not None and lengths is None):
        return None
    if product.target is aten.linear.default:
        (x, weight, bias), scales = (*product.args, None)[:3], None
    elif product.target is torch.ops.linnet.int8_linear.default and product.args[4] == 1:
        x, weight, scales, bias = product.args[:4]
    else:
        return None
    read = {"x": x, "weight": weight, "bias": bias, "scales": scales}
    values = {name: None if node is None else value_read_by(joint, node) for name, node in read.items()}
    return None if values["x"] is None or values["weight"] is None else Source(**values, lengths=lengths)


def recorded(value: Any) -> Node | None:
    """Return the operation of torch from which a value was translated."""
    producer = value.producer()
    return None if producer is None else producer.meta.get("node")


def value_read_by(value: Any, argument: Any) -> Any:
    """Return the value of an argument of the operation from which `value` was translated."""
    operation, found = recorded(value), [value]
    while found:
        each = found.pop()
        if each.name == argument.name:
            return each
        if recorded(each) is operation:
            found += filter(None, each.producer().inputs)
    return None


def lengths_of(mask: Any) -> Any:
    """Return the lengths of a mask `arange(T)[:, None] < lengths`, or None if it is another mask."""
    node = recorded(mask)
    if node is None or node.target is not aten.lt.Tensor:
        return None
    positions, lengths = node.args
    return value_read_by(mask, lengths) if is_column_of_positions(positions) else None


def is_column_of_positions(node: Any) -> bool:
    if node.target is not aten.unsqueeze.default or node.args[1] != 1:
        return False
    row = node.args[0]
    if row.target is aten.slice.Tensor and row.args[1:] == (0, 0, sys.maxsize):
        row = row.args[0]
    return row.target is aten.arange.default


# ------------------------------------------------------------------------------- the translation


def states_of(plan: Plan, others: Sequence[Any]) -> dict[str, Any]:
    first, names = len(plan.traced.weights), plan.traced.states
    return dict(zip(names, others[first : first + len(names)], strict=True))


class OperatorCall(Nodes):
    """The nodes of one operator: its weights in the order that ONNX defines, and the operator."""

    def __init__(self, name: str, plan: str, others: Sequence[Any]):
        """`others`: the operands of the step besides the projection."""
        super().__init__(name)
        self.plan, self.operator = plan_called(plan), operators()[plan]
        self.states = states_of(self.plan, others).values()
        self.weights = dict(zip(self.plan.traced.weights, others, strict=False))
        self.matrices = others[-len(self.plan.products) :]

    def add_operator(self, source: Source, reverse: bool) -> list[Any]:
        """Return the output and the final states."""
        self.products = [part for product in self.plan.products for part in product.parts]
        self.gates = [name for name in self.plan.traced.inputs if name not in self.products]
        self.size = int(source.weight.shape[0]) // len(self.gates)
        kind, inputs = self.kind_and_inputs(source)
        direction = {"direction": "reverse" if reverse else "forward", "hidden_size": self.size}
        count = 1 + len(self.states)
        y, *finals = self.add_many(kind, count, *inputs, **self.operator.attributes, **direction)
        squeezed = [self.add("Squeeze", final, self.constant([0])) for final in finals]
        return [self.add("Squeeze", y, self.constant([1])), *squeezed]

    def kind_and_inputs(self, source: Source) -> tuple[str, list[Any]]:
        x, weight, bias, lengths, _ = source
        inputs = [
            x,
            self.of_input(weight),
            self.of_state(self.matrices),
            None if bias is None else self.biases(bias),
            None if lengths is None else self.as_int32(lengths),
            *(self.add("Unsqueeze", state, self.constant([0])) for state in self.states),
        ]
        if self.operator.peepholes and self.weights:
            inputs.append(self.rows([*self.weights.values()], [*self.weights], self.operator.peepholes))
        return self.operator.kind, inputs

    def of_input(self, tensor: Any) -> Any:
        """The rows of the gates in the order of the operator: [1, rows, ...]."""
        return self.rows([tensor], self.gates, self.operator.gates)

    def of_state(self, tensors: Sequence[Any]) -> Any:
        return self.rows(tensors, self.products, self.operator.products)

    def rows(self, tensors: Sequence[Any], names: Sequence[str], order: Sequence[str]) -> Any:
        """Return parts that lie one below the other in `tensors`, in another order: [1, ...]."""
        starts = [list(names).index(name) * self.size for name in order]
        rows = [row for start in starts for row in range(start, start + self.size)]
        whole = tensors[0] if len(tensors) == 1 else self.add("Concat", *tensors, axis=0)
        return self.add(
            "Unsqueeze", self.add("Gather", whole, self.constant(rows), axis=0), self.constant([0])
        )

    def biases(self, bias: Any) -> Any:
        """Return the biases of the input, and then those of the products."""
        zeros, products = self.constant([0.0] * self.size), self.operator.products
        own = [self.weights.get(f"bias.{name}", zeros) for name in products]
        return self.rows([bias, *own], (*self.gates, *products), (*self.operator.gates, *products))

    def as_int32(self, lengths: Any) -> Any:
        from onnxscript.ir import DataType

        return self.add("Cast", lengths, to=DataType.INT32.value)


class Int8LSTMCall(OperatorCall):
    """onnxruntime's LSTM with int8 matrices, which rounds its inputs and states in its own way."""

    def __init__(self, name: str, plan: str, others: Sequence[Any], scales: Sequence[Any]):
        super().__init__(name, plan, others)
        self.scales = scales

    def kind_and_inputs(self, source: Source) -> tuple[str, list[Any]]:
        _, inputs = super().kind_and_inputs(source)
        for place in (1, 2):
            inputs[place] = as_bytes(self, self.add("Transpose", inputs[place], perm=[0, 2, 1]))
        inputs += [None] * (8 - len(inputs))
        zeros = self.zeros()
        return "DynamicQuantizeLSTM", [
            *inputs,
            *(self.of_input(source.scales), zeros),
            *(self.of_state(self.scales), zeros),
        ]

    def zeros(self) -> Any:
        """The numbers that stand for 0, [1, rows]."""
        from onnxscript.ir import DataType

        return self.constant([[ZERO] * (len(self.gates) * self.size)], DataType.UINT8)
