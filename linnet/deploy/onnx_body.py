"""One time step as the body of an ONNX Scan: its inputs, masks and resets; subclasses compute the step.

Weights are values of the outer graph, which the body may read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from linnet.deploy.onnx_nodes import Blocks, Nodes, size_of
from linnet.program.operands import Operands


class Body(Nodes):
    """One time step: its inputs, and the nodes that compute the new states and the output.

    outer   the nodes before the Scan, for what is the same at all time steps
    """

    def __init__(self, name: str, operands: Operands, outer: Nodes):
        from onnxscript.ir import DataType

        super().__init__(name, operands.joint.dtype)
        self.operands, self.traced, self.outer = operands, operands.plan.traced, outer
        self.inputs: list[Any] = []
        # In the order in which Scan passes them.
        self.before = {state: self.take(state, self.dtype) for state in self.traced.states}
        self.joint = self.take("joint", self.dtype)
        extras = {name: self.take(f"extra{i}", self.dtype) for i, name in enumerate(operands.plan.extras)}
        self.mask = None if operands.mask is None else self.take("mask", DataType.BOOL)
        self.resets = None if operands.resets is None else self.take("resets", DataType.BOOL)
        self.extras, self.weights = extras, dict(zip(self.traced.weights, operands.weights, strict=True))
        self.shapes = shapes_of(operands)
        pairs = zip(operands.matrices, self.shapes, strict=True)
        self.matrices = [outer.transposed(matrix, shape) for matrix, shape in pairs]

    def take(self, name: str, dtype: Any) -> Any:
        from onnxscript import ir

        value = ir.Value(name=f"{self.name}.{name}", type=ir.TensorType(dtype))
        self.inputs.append(value)
        return value

    @abstractmethod
    def step(self, states: dict[str, Any]) -> list[Any]:
        """The output and the new states, [B, size], given the states before the step."""

    def graph(self) -> Any:
        from onnxscript import ir

        states = self.start()
        y, *new = self.step(states)
        if self.mask is not None:
            new = [self.add("Where", self.mask, *pair) for pair in zip(new, states.values(), strict=True)]
            y = self.add("Where", self.mask, y, self.number(0.0))
        outputs: list[Any] = []
        for value in (*new, y):
            outputs.append(self.distinct(value, outputs))
            # onnxruntime up to 1.23 needs both where it cannot infer them.
            outputs[-1].type, outputs[-1].shape = self.first_state.type, ir.Shape([None, None])
        return ir.Graph(self.inputs, outputs, nodes=self.nodes, name=self.name)

    @property
    def first_state(self) -> Any:
        return next(iter(self.before.values()))

    def start(self) -> dict[str, Any]:
        """Return the states at the start of the step: zeros at a reset."""
        if self.resets is None:
            return self.before
        zero = self.number(0.0)
        return {name: self.add("Where", self.resets, zero, state) for name, state in self.before.items()}

    def multiplied(self, x: Any, number: int) -> Any:
        """x [B, inputs] times a matrix of the plan."""
        return self.product(x, self.matrices[number], self.shapes[number])

    @property
    def results(self) -> list[Any]:
        """The output and the new states, as the traced step names them."""
        made = dict(self.traced.forward.outputs)
        return [made[name] for name in ("y", *(f"new.{state}" for state in self.traced.states))]

    def distinct(self, value: Any, others: list[Any]) -> Any:
        """Return a value that is the result of a node of the body and no other output, as these must be."""
        own = value.producer() in self.nodes and value not in others
        return value if own else self.add("Identity", value)


def shapes_of(operands: Operands) -> list[Blocks]:
    plan, found = operands.plan, []
    for (_, parts), heads, matrix in zip(plan.matrices, plan.heads, operands.matrices, strict=True):
        rows, depth = (int(size_of(matrix, axis)) for axis in range(2))
        found.append(Blocks(len(parts), heads, rows // (len(parts) * heads), depth))
    return found
