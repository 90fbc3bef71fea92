"""torch's LSTM, GRU and RNN in programs of torch.export as Linnet's layers, all layers of a stack at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from linnet.deploy.read.aten import ARGUMENTS, Slot, arguments_of
from linnet.deploy.read.call import Call, operator
from linnet.deploy.read.graph import Node
from linnet.deploy.read.limits import bytes_of
from linnet.recurrent.recurrent import Recurrent
from linnet.units.gru import GRU
from linnet.units.lstm import LSTM
from linnet.units.rnn import RNN

GATES = {"aten.lstm.input": 4, "aten.gru.input": 3, "aten.rnn_tanh.input": 1, "aten.rnn_relu.input": 1}
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def parameter_slots(node: Node) -> list[int]:
    """The numbers of the inputs that are parameters."""
    arguments = node.attributes[ARGUMENTS]
    listed = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], list) else []
    return [each.number for each in listed if isinstance(each, Slot)]


def settings(call: Call, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """x, state, parameters, bias, number of layers, dropout, training, both directions, batch first."""
    arguments, options = arguments_of(call, inputs)
    call.require(len(arguments) == 9 and not options, f"has {len(arguments)} arguments, and needs 9")
    return tuple(arguments)


def make_torch_layer(call: Call, given: Sequence[Tensor | None]) -> Recurrent:
    _, _, parameters, bias, layers, _, _, both, batch_first = settings(call, tuple(given))
    right = all(isinstance(each, Tensor) for each in parameters) and 0 < layers <= len(parameters)
    call.require(right, "has weights that the program computes, and Linnet reads constant ones")
    w, r = parameters[:2]
    directions, gates = 1 + bool(both), GATES[call.node.operator]
    each = len(parameters) // (layers * directions)
    projected = each == (5 if bias else 3)
    right = each * layers * directions == len(parameters) and each - projected == (4 if bias else 2)
    call.require(right and w.dim() == r.dim() == 2 and len(w) % gates == 0, "has weights of no known layer")
    options: dict[str, Any] = {
        "bias": bool(bias),
        "bidirectional": bool(both),
        "batch_first": bool(batch_first),
    }
    options |= {"num_layers": layers, "dtype": w.dtype}
    layer = empty_layer(call, w.shape[1], len(w) // gates, r.shape[1] if projected else 0, options)
    names = (
        [name for name in NAMES if bias or "bias" not in name][:each]
        if projected or bias
        else list(NAMES[:2])
    )
    ends = [f"_l{n}{end}" for n in range(layers) for end in ("", "_reverse")[:directions]]
    load(call, layer, dict(zip([name + end for end in ends for name in names], parameters, strict=True)))
    return layer.eval()


def empty_layer(call: Call, inputs: int, hidden: int, projected: int, options: dict[str, Any]) -> Recurrent:
    kind = call.node.operator
    if kind == "aten.lstm.input":
        return LSTM(inputs, hidden, proj_size=projected, **options)
    call.require(not projected, "has a projection, which only an LSTM has")
    if kind == "aten.gru.input":
        return GRU(inputs, hidden, **options)
    return RNN(inputs, hidden, nonlinearity="relu" if "relu" in kind else "tanh", **options)


def load(call: Call, layer: Recurrent, weights: dict[str, Tensor]) -> None:
    try:
        layer.load_state_dict(weights)
    except RuntimeError as error:
        raise call.wrong(f"has weights that do not fit: {str(error).splitlines()[-1][:200]}") from None


def torch_scan_bytes(call: Call, results: Any, layer: Recurrent, *inputs: Any) -> int:
    x = settings(call, inputs)[0]
    values = math.prod(x.shape[:2]) * (GATES[call.node.operator] + 4) * layer.hidden_size
    return bytes_of([values * layer.num_directions * layer.num_layers], x.dtype, call.node.title)


@operator(*GATES, workspace=torch_scan_bytes)
def run_torch_layer(call: Call, layer: Recurrent, *inputs: Any) -> tuple[Tensor, ...]:
    x, state, *_ = settings(call, inputs)
    y, last = layer(x, tuple(state) if isinstance(state, list) else state)
    return (y, *([last] if isinstance(last, Tensor) else last))
