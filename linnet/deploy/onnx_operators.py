"""LSTM, GRU and RNN as ONNX's own operators, for which runtimes have kernels.

In a model that torch has exported, each scan is one operation, `linnet::scan`. If its step is that of an ONNX
operator, its input is a plain product and its mask is one of lengths, it becomes that operator. All other
scans become ONNX's Scan.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.fx import Node

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


@cache
def operators() -> dict[str, Operator]:
    """Return the operators by the text of the plan of the step that each computes."""
    same = [
        (LSTM(1, 1), LSTM_OPERATOR),
        (LSTM(1, 1, peepholes=True), LSTM_OPERATOR),
        (GRU(1, 1), GRU_OPERATOR),
        (GRU(1, 1, bias=False), GRU_OPERATOR),
        *(
            (RNN(1, 1, nonlinearity=name.lower()), RNN_OPERATOR._replace(attributes={"activations": [name]}))
            for name in ("Tanh", "Relu", "Sigmoid")
        ),
    ]
    return {stack.layer(0)[0].plans_for(())[0].text: operator for stack, operator in same}  # type: ignore[union-attr]


# ------------------------------------------------------------------------ which scans are operators


class Source(NamedTuple):
    """What an operator reads besides the states and the matrices of the step."""

    x: Any
    weight: Any
    bias: Any
    lengths: Any


def source_of(plan: str, joint: Any, mask: Any, resets: Any) -> Source | None:
    """Return what the operator reads in place of the projection `joint`, or None if there is no operator."""
    # onnxruntime has no kernels of these operators for float64.
    if plan not in operators() or resets is not None or joint.dtype.name != "FLOAT":
        return None
    lengths = None if mask is None else lengths_of(mask)
    linear = recorded(joint)
    if (mask is not None and lengths is None) or linear is None or linear.target is not aten.linear.default:
        return None
    x, weight, bias = (*linear.args, None)[:3]
    read = [value_read_by(joint, node) for node in (x, weight)]
    return None if None in read else Source(*read, bias and value_read_by(joint, bias), lengths)


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
        x, weight, bias, lengths = source
        products = [part for product in self.plan.products for part in product.parts]
        gates = [name for name in self.plan.traced.inputs if name not in products]
        self.size = int(weight.shape[0]) // len(gates)
        order = self.operator
        inputs = [
            x,
            self.rows([weight], gates, order.gates),
            self.rows(self.matrices, products, order.products),
            None if bias is None else self.biases(bias, gates),
            None if lengths is None else self.as_int32(lengths),
            *(self.add("Unsqueeze", state, self.constant([0])) for state in self.states),
        ]
        if order.peepholes and self.weights:
            inputs.append(self.rows(list(self.weights.values()), list(self.weights), order.peepholes))
        direction = {"direction": "reverse" if reverse else "forward", "hidden_size": self.size}
        count = 1 + len(self.states)
        y, *finals = self.add_many(order.kind, count, *inputs, **order.attributes, **direction)
        squeezed = [self.add("Squeeze", final, self.constant([0])) for final in finals]
        return [self.add("Squeeze", y, self.constant([1])), *squeezed]

    def rows(self, tensors: Sequence[Any], names: Sequence[str], order: Sequence[str]) -> Any:
        """Return parts that lie one below the other in `tensors`, in another order: [1, ...]."""
        starts = [list(names).index(name) * self.size for name in order]
        rows = [row for start in starts for row in range(start, start + self.size)]
        whole = tensors[0] if len(tensors) == 1 else self.add("Concat", *tensors, axis=0)
        return self.add(
            "Unsqueeze", self.add("Gather", whole, self.constant(rows), axis=0), self.constant([0])
        )

    def biases(self, bias: Any, gates: Sequence[str]) -> Any:
        """Return the biases of the input, and then those of the products."""
        zeros, products = self.constant([0.0] * self.size), self.operator.products
        own = [self.weights.get(f"bias.{name}", zeros) for name in products]
        return self.rows([bias, *own], (*gates, *products), (*self.operator.gates, *products))

    def as_int32(self, lengths: Any) -> Any:
        from onnxscript.ir import DataType

        return self.add("Cast", lengths, to=DataType.INT32.value)
