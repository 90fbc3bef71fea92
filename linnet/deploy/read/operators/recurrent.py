"""ONNX's LSTM, GRU and RNN as Linnet's layers.

ONNX has the gates in another order (i, o, f, c and z, r, h), both biases in one tensor, and outputs with a
dimension of directions: [time, directions, batch, hidden].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linnet.deploy.read.call import Call, operator
from linnet.deploy.read.graph import Node
from linnet.deploy.read.limits import bytes_of
from linnet.recurrent.recurrent import Recurrent
from linnet.units.gru import GRU
from linnet.units.lstm import LSTM
from linnet.units.rnn import RNN

# The rows of a matrix of Linnet, as numbers of ONNX's gates.
ORDERS = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
NONLINEARITIES = ("tanh", "relu", "sigmoid")
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
# Positions of inputs: the weights become parameters of the layer.
WEIGHT, RECURRENT, BIAS, PEEPHOLES = 1, 2, 3, 7
QUANTISED = "com.microsoft.DynamicQuantizeLSTM"
RECURRENT_OPERATORS = ("LSTM", "GRU", "RNN", QUANTISED)


def weight_positions(node: Node) -> list[int]:
    """Positions of the inputs that become parameters of the layer."""
    scales = range(8, 12) if node.operator == QUANTISED else ()
    return [
        position for position in (WEIGHT, RECURRENT, BIAS, PEEPHOLES, *scales) if position < len(node.inputs)
    ]


def kind_of(call: Call) -> str:
    return "LSTM" if call.node.operator == QUANTISED else call.node.operator


def direction_of(call: Call) -> str:
    direction = call.text("direction", "forward")
    call.require(direction in DIRECTIONS, f"has direction = {direction[:40]!r}")
    return direction


# ----------------------------------------------------------------------------------- making a layer


def make_layer(call: Call, given: Sequence[Tensor | None]) -> Recurrent:
    """Return the layer of a recurrent node; `given` are the inputs of the node that are constant."""
    check_attributes(call)
    tensors = [*given, *[None] * (12 - len(given))]
    weights = dequantised(call, tensors) if call.node.operator == QUANTISED else tensors
    w, r, b, p = (weights[position] for position in (WEIGHT, RECURRENT, BIAS, PEEPHOLES))
    if w is None or r is None:
        raise call.wrong("has weights that the model computes from its input, and Linnet reads constant ones")
    check_weights(call, w, r, b, p)
    layer = empty_layer(call, w, r, b is not None, p is not None)
    with torch.no_grad():
        for index in range(len(w)):
            fill(call, layer, index, [each if each is None else each[index] for each in (w, r, b, p)])
    return layer.eval()


def check_attributes(call: Call) -> None:
    call.require("clip" not in call.node.attributes, "has clip, which Linnet does not read")
    call.unless("input_forget", 0)
    call.require(call.integer("layout", 0) in (0, 1), "has a layout that is neither 0 nor 1")
    for name in ("activation_alpha", "activation_beta"):
        call.require(not call.node.attributes.get(name), f"has {name}, which Linnet does not read")
    given = [name.lower() for name in call.texts("activations")]
    count = DIRECTIONS[direction_of(call)]
    kind = kind_of(call)
    if not given:
        return
    allowed = [USUAL[kind] * count] if kind in USUAL else [(each,) * count for each in NONLINEARITIES]
    call.require(
        tuple(given) in allowed, f"has the activations {given[:6]}, which Linnet's {kind} does not have"
    )


def check_weights(call: Call, w: Tensor, r: Tensor, b: Tensor | None, p: Tensor | None) -> None:
    """Raise unless the shapes are those of one layer."""
    call.require(r.dim() == w.dim() == 3 and w.dtype == r.dtype, "has weights without three dimensions")
    directions, gates, hidden = DIRECTIONS[direction_of(call)], len(ORDERS[kind_of(call)]), r.shape[2]
    known = call.integer("hidden_size", hidden)
    right = (
        w.shape[:2] == r.shape[:2] == (directions, gates * hidden)
        and known == hidden
        and hidden > 0
        and w.shape[2] > 0
        and (b is None or (b.shape == (directions, 2 * gates * hidden) and b.dtype == w.dtype))
        and (p is None or (p.shape == (directions, 3 * hidden) and p.dtype == w.dtype))
    )
    shapes = [None if each is None else tuple(each.shape) for each in (w, r, b, p)]
    call.require(right, f"has weights of the shapes {shapes}, which are not those of one layer")
    call.require(w.dtype in (torch.float32, torch.float64, torch.float16), f"has weights of {w.dtype}")


def empty_layer(call: Call, w: Tensor, r: Tensor, bias: bool, peepholes: bool) -> Recurrent:
    kind = kind_of(call)
    options: dict[str, Any] = {"bias": bias, "bidirectional": len(w) == 2, "dtype": w.dtype}
    if kind == "LSTM":
        return LSTM(w.shape[2], r.shape[2], peepholes=peepholes, **options)
    if kind == "GRU":
        form = "after" if call.integer("linear_before_reset", 0) else "before"
        return GRU(w.shape[2], r.shape[2], form=form, **options)
    names = call.texts("activations") or ["tanh"]
    return RNN(w.shape[2], r.shape[2], nonlinearity=names[0].lower(), **options)


def fill(call: Call, layer: Recurrent, index: int, given: Sequence[Tensor | None]) -> None:
    """Copy the weights of one direction into the layer."""
    order = ORDERS[kind_of(call)]
    w, r, b, p = given
    assert w is not None
    assert r is not None
    matrices = [reordered(each, order) for each in (w, r)]
    biases = [] if b is None else [reordered(half, order) for half in b.chunk(2)]
    cell = layer.cells[index]
    if isinstance(layer, GRU) and cell.form == "before":
        fill_before(cell, matrices, biases)
    else:
        suffix = "_l0_reverse" if index else "_l0"
        names = [name + suffix for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        layer.load_state_dict(dict(zip(names, [*matrices, *biases], strict=False)), strict=False)
    if p is not None:
        for name, part in zip(("p_i", "p_o", "p_f"), p.chunk(3), strict=True):
            getattr(cell, name).copy_(part)


def fill_before(cell: Any, matrices: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
    """GRU whose reset gate acts before the product has two matrices of h, and one bias."""
    w, r = matrices
    hidden = r.shape[1]
    cell.input.weight.copy_(w)
    cell.recurrent.weight.copy_(r[: 2 * hidden])
    cell.candidate.weight.copy_(r[2 * hidden :])
    if biases:
        cell.input.bias.copy_(biases[0] + biases[1])


def reordered(rows: Tensor, order: Sequence[int]) -> Tensor:
    parts = rows.chunk(len(order))
    return torch.cat([parts[gate] for gate in order])


def dequantised(call: Call, given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The weights of onnxruntime's LSTM of eight bits: transposed, with a scale and a zero point each."""
    weights = list(given)
    for position, scale_at in ((WEIGHT, 8), (RECURRENT, 10)):
        values, scale, zero = weights[position], weights[scale_at], weights[scale_at + 1]
        if values is None or scale is None or zero is None:
            raise call.wrong("has weights or scales that the model computes from its input")
        right = values.dim() == 3 and scale.shape == zero.shape and scale.dim() in (1, 2)
        call.require(right and len(scale) == len(values), "has scales that do not fit its weights")
        fit = [each.reshape(len(values), 1, -1).to(torch.float32) for each in (zero, scale)]
        call.require(fit[0].shape[-1] in (1, values.shape[-1]), "has scales that do not fit its weights")
        weights[position] = ((values.to(torch.float32) - fit[0]) * fit[1]).transpose(1, 2)
    return weights


# ---------------------------------------------------------------------------------- running a layer


def scan_bytes(call: Call, results: Any, layer: Recurrent, x: Tensor, *rest: Any) -> int:
    """Bytes of the projected input, the outputs and the states."""
    gates = len(ORDERS[kind_of(call)])
    values = math.prod(x.shape[:2]) * (gates + 4) * layer.hidden_size * layer.num_directions
    return bytes_of([values], x.dtype, call.node.title)


@operator(*RECURRENT_OPERATORS, workspace=scan_bytes)
def run_layer(
    call: Call,
    layer: Recurrent,
    x: Tensor,
    w: None = None,
    r: None = None,
    b: None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    *rest: None,
) -> tuple[Tensor, ...]:
    """Return Y, Y_h and, of an LSTM, Y_c."""
    by_batch = call.integer("layout", 0) == 1
    x = x.transpose(0, 1) if by_batch else x
    state = initial_state(call, layer, x, [each for each in (h, c) if each is not None], by_batch)
    lengths = None if lengths is None else checked_lengths(call, lengths, x)
    backwards = direction_of(call) == "reverse"
    x = turned(x, lengths) if backwards else x
    y, last = layer(x, state, lengths=lengths)
    y = turned(y, lengths) if backwards else y
    y = y.unflatten(-1, (layer.num_directions, -1)).transpose(1, 2)
    states = [last] if isinstance(last, Tensor) else list(last)
    if by_batch:
        return (y.permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in states))
    return (y, *states)


def initial_state(call: Call, layer: Recurrent, x: Tensor, given: list[Tensor], by_batch: bool) -> Any:
    call.require(x.dim() == 3 and x.shape[2] == layer.input_size, f"reads x of the shape {tuple(x.shape)}")
    call.require(x.shape[0] > 0 and x.shape[1] > 0, f"reads x of the shape {tuple(x.shape)}, which is empty")
    count = 2 if isinstance(layer, LSTM) else 1
    states = [each.transpose(0, 1) if by_batch else each for each in given]
    shape = (layer.num_directions, x.shape[1], layer.hidden_size)
    call.require(all(each.shape == shape for each in states), f"has a state that is not of the shape {shape}")
    if not states:
        return None
    call.require(len(states) == count, f"has {len(states)} initial states, and Linnet reads {count} or none")
    return tuple(states) if count == 2 else states[0]


def checked_lengths(call: Call, lengths: Tensor, x: Tensor) -> Tensor:
    call.require(lengths.shape == x.shape[1:2], f"has lengths of the shape {tuple(lengths.shape)}")
    inside = bool(((lengths > 0) & (lengths <= len(x))).all())
    call.require(inside, f"has lengths that are not between 1 and {len(x)}")
    return lengths.long()


def turned(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return sequences from their last real step to their first; padding stays where it is."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(len(x))[:, None]
    order = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, order[:, :, None].expand_as(x))
