"""nn.LSTM as a LiteRT model of one operator.

The package `ai-edge-litert` runs models and has the schema of their files, but it takes TensorFlow or JAX to
make one, so this writes the file itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

# The inputs of UNIDIRECTIONAL_SEQUENCE_LSTM, and where its states are among them.
INPUTS, STATES = 24, (18, 19)
WEIGHTS, RECURRENT, BIASES = 1, 5, 12
NONE = -1


class Model:
    """A model with one input, whose tensors and operators are added in turn; `S` is the schema."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.S: Any = schema
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.graph.tensors, self.graph.operators = [], []

    def tensor(self, shape: tuple[int, ...], numbers: Tensor | None = None, is_state: bool = False) -> int:
        """Add a tensor, a constant if its numbers are given; return its index."""
        tensor, buffer = self.S.TensorT(), self.S.BufferT()
        if numbers is not None:
            buffer.data = np.frombuffer(numbers.detach().contiguous().numpy().tobytes(), np.uint8)
        tensor.shape, tensor.type, tensor.isVariable = list(shape), self.S.TensorType.FLOAT32, is_state
        tensor.buffer, tensor.name = len(self.model.buffers), f"tensor{len(self.graph.tensors)}".encode()
        self.model.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(self, code: int, inputs: list[int], output: int, kind: str, options: dict[str, Any]) -> None:
        declared, made = self.S.OperatorCodeT(), self.S.OperatorT()
        declared.builtinCode = declared.deprecatedBuiltinCode = code
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes), inputs, [output]
        made.builtinOptionsType = getattr(self.S.BuiltinOptions, kind)
        made.builtinOptions = getattr(self.S, f"{kind}T")()
        for name, value in options.items():
            setattr(made.builtinOptions, name, value)
        self.model.operatorCodes.append(declared)
        self.graph.operators.append(made)

    def file(self, x: int, y: int) -> bytes:
        import flatbuffers

        self.graph.inputs, self.graph.outputs = [x], [y]
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def lstm_file(lstm: Any, steps: int) -> bytes:
    """The model of an nn.LSTM of one layer in one direction, for one sequence of this length."""
    model, size = Model(), lstm.hidden_size
    x, y = model.tensor((steps, 1, lstm.input_size)), model.tensor((steps, 1, size))
    inputs = [x] + [NONE] * (INPUTS - 1)
    matrices = (WEIGHTS, lstm.weight_ih_l0), (RECURRENT, lstm.weight_hh_l0)
    for first, joint in (*matrices, (BIASES, lstm.bias_ih_l0 + lstm.bias_hh_l0)):
        for gate, numbers in enumerate(joint.chunk(4)):
            inputs[first + gate] = model.tensor(tuple(numbers.shape), numbers)
    for place in STATES:
        inputs[place] = model.tensor((1, size), is_state=True)
    tanh = model.S.ActivationFunctionType.TANH
    options = {"fusedActivationFunction": tanh, "timeMajor": True}
    code = model.S.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM
    model.operator(code, inputs, y, "UnidirectionalSequenceLSTMOptions", options)
    return model.file(x, y)
