"""`linnet.convert` and `linnet.restore`: layers of a model become Linnet's, or torch's again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from linnet.convert.carry import LeftAloneError, check_not_parametrized
from linnet.convert.example import Example
from linnet.convert.measure import measure
from linnet.convert.packages import is_of_package, package_to_linnet
from linnet.convert.report import Layer, Report, described
from linnet.convert.torch_layers import to_linnet, to_torch
from linnet.convert.tree import Slot, Swap, find
from linnet.deploy.quantize import quantize
from linnet.layers.torch_twins import is_torchs
from linnet.recurrent.cell import Cell
from linnet.recurrent.recurrent import Recurrent


def convert(model: nn.Module, example: Any = None, int8: bool = False) -> Report:
    """Replace every recurrent layer of torch in a model by Linnet's, with the same weights.

        report = linnet.convert(model, example=x)
        print(report)

    model     any module; its layers are replaced in place. If it is such a layer itself, `report.model` is
              the new one
    example   a tensor, a tuple of the model's arguments, or a dict of its named arguments: the report then
              has differences and times on it. The model runs in evaluation mode, without gradients
    int8      also round the matrices of the replaced layers to int8, for inference (see linnet.quantize)

    nn.LSTM, nn.GRU, nn.RNN, their cells, those of torch's dynamic quantisation, the `sru` package's SRU and
    speechbrain's LiGRU are replaced. A layer that cannot be replaced is left alone; the report says why.
    """
    check_module(model)
    if int8 and model.training:
        raise ValueError("int8=True is for inference, and the model is in training mode; call model.eval()")
    replacement = to_int8 if int8 else any_to_linnet
    return replaced(model, lambda module: is_torchs(module) or is_of_package(module), replacement, example)


def restore(model: nn.Module, example: Any = None) -> Report:
    """Replace every LSTM, GRU and RNN of Linnet and their cells in a model by torch's: `convert`, undone.

    The state dict of the model can then be loaded without Linnet. A unit or an option that torch does not
    have is left alone, and the report says why. The arguments are those of `convert`.
    """
    check_module(model)
    return replaced(model, lambda module: isinstance(module, (Recurrent, Cell)), to_torch, example)


def check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"expected an nn.Module, the model whose layers are replaced; got {type(model).__name__}"
        )


def any_to_linnet(layer: nn.Module) -> nn.Module:
    return package_to_linnet(layer) if is_of_package(layer) else to_linnet(layer)


def to_int8(layer: nn.Module) -> nn.Module:
    check_not_parametrized(layer)
    made = any_to_linnet(layer)
    try:
        return quantize(made)
    except (TypeError, ValueError) as error:
        raise LeftAloneError(str(error)) from None


def replaced(
    model: nn.Module,
    is_layer: Callable[[nn.Module], bool],
    replacement: Callable[[nn.Module], nn.Module],
    example: Any,
) -> Report:
    """Replace layers, and say what was done."""
    given = None if example is None else Example(example)
    slots = find(model, is_layer)
    layers = [replaced_layer(slot, replacement) for slot in slots]
    pairs = [(slot, layer) for slot, layer in zip(slots, layers, strict=True) if layer.module is not None]
    swap = Swap(model, [slot for slot, _ in pairs], [layer.module for _, layer in pairs])  # type: ignore[misc]
    report = Report(model, layers)
    if given is not None:
        measure(report, swap, dict(pairs), given)
    report.model = swap.replaced()
    return report


def replaced_layer(slot: Slot, replacement: Callable[[nn.Module], nn.Module]) -> Layer:
    line = Layer(slot.path, described(slot.layer))
    try:
        line.module = replacement(slot.layer)
    except LeftAloneError as reason:
        line.why = str(reason)
    return line
