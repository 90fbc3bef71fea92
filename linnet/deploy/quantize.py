"""Models in int8."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, overload

import torch
from torch import nn

from linnet.base.suggest import no_such
from linnet.layers.embedding import WordEmbedding
from linnet.layers.int8_modules import (
    Int8Embedding,
    Int8FullSoftmax,
    Int8Linear,
    Int8MixtureSoftmax,
    Int8Projection,
    Int8WordEmbedding,
    Quantised,
)
from linnet.layers.softmax import FullSoftmax, MixtureSoftmax
from linnet.layers.torch_names import OfInput, OfOutput, OfState, TorchOwner
from linnet.recurrent.cell import Cell
from linnet.recurrent.pretrained import CHANGES, Pretrained
from linnet.recurrent.projection import Projection

# Modules of these classes themselves: a subclass may compute something else.
REPLACEMENTS: dict[type[nn.Module], Callable[..., Quantised]] = {
    nn.Linear: Int8Linear,
    nn.Embedding: Int8Embedding,
    WordEmbedding: Int8WordEmbedding,
    **dict.fromkeys((Projection, OfInput, OfState, OfOutput), Int8Projection),
    FullSoftmax: Int8FullSoftmax,
    MixtureSoftmax: Int8MixtureSoftmax,
}
Rounded = nn.Linear | nn.Embedding | WordEmbedding | Projection | FullSoftmax | MixtureSoftmax
Model = TypeVar("Model", bound=nn.Module)


@overload
def quantize(model: Rounded, skip: Sequence[str] = (), activations: bool = True) -> Quantised: ...


@overload
def quantize(model: Model, skip: Sequence[str] = (), activations: bool = True) -> Model: ...


def quantize(model: nn.Module, skip: Sequence[str] = (), activations: bool = True) -> nn.Module:
    """Return a copy of `model` with int8 matrices, for inference: about a quarter of the size, and faster.

        small = linnet.quantize(model, skip=["softmax"])

    skip          names of modules, as of `model.named_modules()`, that stay in float32 with all they contain
    activations   round the input of each product to int8 too. False: only the weights are rounded, and
                  products are those of float32, which is more precise, and as slow as before

    The matrices of Linnet's units, nn.Linear, nn.Embedding and the softmaxes of language models are rounded,
    with one scale for each row. Biases and norms, which are small, stay in float32.
    """
    check_model(model)
    skip = [skip] if isinstance(skip, str) else skip
    skipped = names_to_skip(model, skip)
    made = copy.deepcopy(model).eval()
    with torch.inference_mode(False):  # torch does not count the changes of inference tensors
        for name, module in list(made.named_modules()):
            kind = REPLACEMENTS.get(type(module))
            if kind is not None and name not in skipped:
                made = put(made, name, kind(module, activations))
    for module in made.modules():
        if isinstance(module, Cell) and isinstance(module.input, Quantised):
            module.is_quantised = activations
            # Its matrices refuse an input with gradients, such as what a layer makes of a learned start.
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(False)
        if isinstance(module, TorchOwner):
            module.release()
    if isinstance(made, Pretrained):
        made.changes = {
            **made.__dict__.get("changes", {}),
            "int8": {"skip": [*skip], "activations": activations},
        }
    if not any(isinstance(module, Quantised) for module in made.modules()):
        but_skipped = " except those in skip" if skip else ""
        raise ValueError(f"{type(model).__name__} has no matrix that quantize could round{but_skipped}")
    return made


CHANGES["int8"] = quantize


def in_int8(model: nn.Module) -> nn.Module:
    """`quantize(model)`, or the model itself if it is quantised already."""
    done = any(isinstance(module, Quantised) for module in model.modules())
    return model if done else quantize(model)


def int8_size(model: nn.Module) -> int:
    """Return the bytes of the tensors of the model in int8."""
    return sum(each.numel() * each.element_size() for each in in_int8(model).state_dict().values())


def put(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    """Replace the module called `name`; "" is the model itself."""
    if not name:
        return module
    parent, _, own = name.rpartition(".")
    model.get_submodule(parent).add_module(own, module)
    return model


def names_to_skip(model: nn.Module, skip: Sequence[str]) -> set[str]:
    names = [name for name, _ in model.named_modules()]
    skipped: set[str] = set()
    for given in skip:
        if given not in names or not given:
            raise ValueError(f"skip: {type(model).__name__} has {no_such('module', given, names[1:])}")
        skipped |= {name for name in names if name == given or name.startswith(f"{given}.")}
    for name, module in model.named_modules():
        if isinstance(module, Cell):
            check_whole(name, module, skipped)
    return skipped


def check_whole(name: str, cell: Cell, skipped: set[str]) -> None:
    """The matrices of a cell are all in int8, or none of them."""
    inside = [
        f"{name}.{child}".lstrip(".") for child, each in cell.named_modules() if isinstance(each, Projection)
    ]
    some = [each for each in inside if each in skipped]
    if some and len(some) < len(inside):
        raise ValueError(
            f"skip names {some[0]!r}, a part of a cell, and the matrices of a cell are all in int8 or all in "
            f"float32; skip {name!r}"
        )


def check_model(model: nn.Module) -> None:
    if any(isinstance(module, Quantised) for module in model.modules()):
        raise ValueError(f"this {type(model).__name__} is quantised already")
    for name, tensor in tensors_of(model):
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise TypeError(
                f"quantize takes models in float32, and {name} is {tensor.dtype}; convert it with .float()"
            )
        if tensor.is_meta:
            raise ValueError(f"{name} is on meta, without values; load them first")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{name} has a value that is NaN or infinite; int8 has no such number")


def tensors_of(model: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
