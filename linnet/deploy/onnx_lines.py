"""An elementwise step as ONNX nodes: the list of operations that kernels are compiled from too."""

from __future__ import annotations

from typing import Any

from linnet.deploy.onnx_body import Body
from linnet.program.trace import Operand


class LineBody(Body):
    """Values are [B, size]; those that depend on weights only, and numbers, are broadcast."""

    def step(self, states: dict[str, Any]) -> list[Any]:
        values = {**self.weights, **self.of_states(states), **self.extras, **states}
        values |= self.split(self.joint, self.operands.plan.projected)
        for line in self.traced.forward.lines:
            operands = [self.value(operand, values) for operand in line.operands]
            values[line.result] = self.compute(line.op, operands)
        return [self.expanded(result, values) for result in self.results]

    def of_states(self, states: dict[str, Any]) -> dict[str, Any]:
        """The products with the states."""
        parts: dict[str, Any] = {}
        for i, product in enumerate(self.operands.plan.products):
            parts |= self.split(self.multiplied(states[product.state], i), product.parts)
        return parts

    def value(self, operand: Operand, values: dict[str, Any]) -> Any:
        if not isinstance(operand, str):
            return self.number(operand)
        if operand not in values:
            self.multiply(operand, values)
        return values[operand]

    def multiply(self, part: str, values: dict[str, Any]) -> None:
        """The inner product that makes `part`."""
        outputs, first = dict(self.traced.forward.outputs), len(self.operands.plan.products)
        for i, (_, parts, _) in enumerate(self.traced.inner):
            if part in parts:
                read = self.value(outputs[f"inner.{i}"], values)
                values |= self.split(self.multiplied(read, first + i), parts)

    def expanded(self, operand: Operand, values: dict[str, Any]) -> Any:
        """Return a value as [B, H], even if it is a number or depends on weights only."""
        value = self.value(operand, values)
        if operand in self.batched():
            return value
        return self.add("Expand", value, self.add("Shape", self.first_state))

    def batched(self) -> set[Operand]:
        """Return the names of all values that depend on an input or a state."""
        names: set[Operand] = {*self.traced.inputs, *self.traced.states}
        for line in self.traced.forward.lines:
            if names & set(line.operands):
                names.add(line.result)
        return names
