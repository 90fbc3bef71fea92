"""LSTM and GRU in inference engines, in torch and in Linnet: the same weights, the same input.

Extra `bench`: ONNX Runtime, OpenVINO and LiteRT, which has an operator for one direction of LSTM.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from linnet.bench.layers import Shape
from linnet.bench.litert import lstm_file
from linnet.bench.timing import Call
from linnet.deploy.onnx import export_onnx
from linnet.deploy.quantize import quantize
from linnet.recurrent.freeze import freeze
from linnet.units import UNITS

TORCH: dict[str, Callable[..., Any]] = {"lstm": nn.LSTM, "gru": nn.GRU}
LINNET, FROZEN, INT8 = "Linnet", "Linnet frozen", "Linnet int8"
ONNX_RUNTIME, OPENVINO, LITERT, TORCH_INT8 = "ONNX Runtime", "OpenVINO", "LiteRT", "torch int8"
# What each of Linnet's is compared with.
RIVALS = {
    LINNET: ("torch", ONNX_RUNTIME, OPENVINO, LITERT),
    FROZEN: ("torch", ONNX_RUNTIME, OPENVINO, LITERT),
    INT8: (TORCH_INT8,),
}


def entrants(unit: str, shape: Shape, both: bool, threads: int) -> dict[str, Callable[[], Call]]:
    """What builds the call of each, by name. All return the output as the last thing that they do.

    both   in both directions
    """
    layer, x = torch_layer(unit, shape.d, both), torch.randn(shape)
    made: dict[str, Callable[[], Call]] = {
        LINNET: lambda: module_call(linnet_layer(unit, layer), x),
        FROZEN: lambda: module_call(freeze(linnet_layer(unit, layer)), x),
        INT8: lambda: module_call(quantize(linnet_layer(unit, layer)), x),
        "torch": lambda: module_call(layer, x),
        TORCH_INT8: lambda: module_call(torch_int8(layer), x),
        ONNX_RUNTIME: lambda: onnxruntime_call(onnx_file(unit, shape.d, both), x, threads),
        OPENVINO: lambda: openvino_call(onnx_file(unit, shape.d, both), x, threads),
    }
    if unit == "lstm" and not both and shape.B == 1:
        made[LITERT] = lambda: litert_call(lstm_file(layer, shape.L), x, threads)
    return made


def torch_layer(unit: str, size: int, both: bool) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TORCH[unit](size, size, bidirectional=both).eval()


def linnet_layer(unit: str, like: nn.RNNBase) -> Any:
    layer = UNITS[unit](like.input_size, like.hidden_size, bidirectional=like.bidirectional).eval()
    layer.load_state_dict(like.state_dict())
    return layer


def module_call(layer: Any, x: Tensor) -> Call:
    @torch.inference_mode()
    def call() -> Tensor:
        return layer(x)[0]

    return call


def torch_int8(layer: nn.Module) -> Any:
    """torch quantises what is inside of a module, not the module itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated in favour of another package
        quantised = torch.ao.quantization.quantize_dynamic(
            nn.ModuleList([layer]), {type(layer)}, dtype=torch.qint8
        )
    return quantised[0]


@cache  # a few models, which take seconds to export
def onnx_file(unit: str, size: int, both: bool) -> bytes:
    """With ONNX's own operator, for sequences of any length."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export_onnx(linnet_layer(unit, torch_layer(unit, size, both)), path)
        return path.read_bytes()


def onnxruntime_call(model: bytes, x: Tensor, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options)
    inputs = {"x": x.numpy()}
    return lambda: session.run(None, inputs)[0]


def openvino_call(model: bytes, x: Tensor, threads: int) -> Call:
    import openvino

    core = openvino.Core()
    network = core.read_model(model)
    # It is faster if the shape is fixed.
    network.reshape({"x": list(x.shape)})
    precise = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(network, "CPU", {"INFERENCE_NUM_THREADS": threads, **precise})
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x.numpy()))
    output = compiled.output(0)
    return lambda: request.infer()[output]


def litert_call(model: bytes, x: Tensor, threads: int) -> Call:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model, num_threads=threads)
    interpreter.allocate_tensors()
    given, made = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def call() -> Any:
        interpreter.reset_all_variables()  # the state, which it keeps
        interpreter.set_tensor(given["index"], x.numpy())
        interpreter.invoke()
        return interpreter.get_tensor(made["index"])

    return call
