"""Recurrent layers of other packages, and torch's quantised ones, as Linnet's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from linnet.convert.carry import LeftAloneError, carry_hooks
from linnet.deploy.checkpoints import load_foreign
from linnet.layers.torch_twins import OURS, options_of, with_weights
from linnet.units import SRU, LiGRU

# The names of the recurrent layers of torch, by which quantised ones and those in TorchScript are known.
KINDS = {kind.__name__: kind for kind in OURS}


def is_of_package(module: nn.Module) -> bool:
    return is_sru(module) or is_ligru(module) or is_quantised(module) or is_script(module)


def is_sru(module: nn.Module) -> bool:
    return is_of_class(module, "sru.modules", "SRU")


def is_ligru(module: nn.Module) -> bool:
    return is_of_class(module, "speechbrain.nnet.RNN", "LiGRU")


def is_of_class(module: nn.Module, source: str, name: str) -> bool:
    """Whether this is of a class of a package, which need not be installed."""
    return (source, name) in {(each.__module__, each.__qualname__) for each in type(module).__mro__}


def is_quantised(module: nn.Module) -> bool:
    """Whether this is a recurrent layer of torch.ao's dynamic quantisation."""
    return type(module).__module__ == "torch.ao.nn.quantized.dynamic.modules.rnn"


def is_script(module: nn.Module) -> bool:
    """Whether this is a recurrent layer in TorchScript."""
    return isinstance(module, torch.jit.ScriptModule) and module.original_name in KINDS


def package_to_linnet(layer: nn.Module) -> nn.Module:
    if is_script(layer):
        raise LeftAloneError(
            "it is TorchScript, which runs no other modules; convert the model before torch.jit"
        )
    # Building a layer draws weights, which must not change the random numbers of the program.
    with torch.random.fork_rng(devices=[]):
        if is_sru(layer):
            return from_sru(layer)
        return from_ligru(layer) if is_ligru(layer) else from_quantised(layer)


def from_quantised(layer: Any) -> nn.Module:
    """Return the layer in float32 with the rounded weights; int8=True rounds them again, row by row."""
    kind = KINDS.get(type(layer).__name__)
    if kind is None:
        raise LeftAloneError(f"{type(layer).__name__} is not a quantised layer that Linnet knows")
    weights = {name: weight.dequantize() for name, weight in layer.get_weight().items()} | layer.get_bias()
    made = with_weights(OURS[kind], options_of(layer, kind), weights.__getitem__)
    return carry_hooks(layer, made.requires_grad_(False))


def from_sru(layer: Any) -> nn.Module:
    """Return Linnet's SRU with the weights of the package's."""
    cell = layer.rnn_lst[0]
    if layer.bidirectional and not layer.nn_rnn_compatible_return:
        raise LeftAloneError(
            "the states of both directions are in one; build it with nn_rnn_compatible_return=True"
        )
    if layer.rnn_dropout or cell.v1 or layer.input_to_hidden is not None or cell.custom_m is not None:
        raise LeftAloneError("Linnet's SRU has no rnn_dropout, v1, proj_input_to_hidden_first or custom_m")
    made = SRU(
        *(layer.input_size, layer.hidden_size, layer.num_layers),
        bidirectional=layer.bidirectional,
        rank=layer.projection_size,
        activation="tanh" if cell.activation == "tanh" else "identity",
        prenorm="layer" if layer.use_layer_norm else None,
        highway=layer.has_skip_term,
        highway_bias=cell.highway_bias,
        rescale=cell.rescale,
        cell_dropout=layer.dropout,
        cell_dropout_on="gate",
    )
    try:
        load_foreign(made, layer.state_dict(), "sru", normalize_after=cell.normalize_after)
    except ValueError as error:
        raise LeftAloneError(str(error)) from None
    return carry_hooks(layer, made.to(cell.weight))


def from_ligru(layer: Any) -> nn.Module:
    """Return Linnet's LiGRU with the weights of speechbrain's."""
    if layer.bidirectional:
        raise LeftAloneError("its directions share their weights, and those of Linnet's LiGRU do not")
    if layer.reshape:
        raise LeftAloneError("its input has four dimensions, and that of Linnet's LiGRU three")
    made = LiGRU(
        *(int(layer.fea_dim), layer.hidden_size, layer.num_layers),
        batch_first=True,
        normalization="batch" if layer.normalization == "batchnorm" else "layer",
        frames="all",
        activation=layer.nonlinearity if layer.nonlinearity in ("tanh", "sin", "leaky_relu") else "relu",
        cell_dropout=layer.dropout,
    )
    for direction, theirs in zip(made.directions, layer.rnn, strict=True):
        cell: Any = direction.cell
        cell.input.weight, cell.recurrent.weight = theirs.w.weight, theirs.u.weight
        # Their batch norm counts batches, for an average that it does not compute.
        kept = {
            name: each for name, each in theirs.norm.state_dict().items() if name != "num_batches_tracked"
        }
        cell.input.norm.load_state_dict(kept)
    return carry_hooks(layer, made.to(layer.rnn[0].w.weight))
