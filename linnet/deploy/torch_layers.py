"""torch's recurrent layers in a model that is exported: as Linnet's, each of which is one operation.

torch.export writes the loop of nn.GRU step by step, for the length of the example.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from linnet.layers.torch_twins import OURS, is_torchs, options_of, torch_class, with_weights
from linnet.program.substitute import with_modules


def with_linnet_layers(model: nn.Module, made: dict[nn.Module, nn.Module] | None = None) -> nn.Module:
    """Return the model with Linnet's layers in the place of torch's, as a copy that shares everything else.

    made   what has become of modules already, so that a shared one stays shared
    """
    made = {} if made is None else made
    if model not in made:
        kind = class_of_layer(model)
        made[model] = with_linnet_children(model, made) if kind is None else linnet_layer(model, kind)
    return made[model]


def with_linnet_children(model: nn.Module, made: dict[nn.Module, nn.Module]) -> nn.Module:
    given = {name: child for name, child in model._modules.items() if child is not None}
    children = {name: with_linnet_layers(child, made) for name, child in given.items()}
    changed = {name: child for name, child in children.items() if child is not given[name]}
    return with_modules(model, changed) if changed else model


def class_of_layer(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of torch whose computation this is: a parametrized layer is of a derived class."""
    kind = torch_class(module) if isinstance(module, nn.RNNBase) else None
    return kind if kind is not None and type(module).forward is kind.forward else None


def linnet_layer(layer: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Return Linnet's layer with the weights of torch's, for inference."""
    options = {**options_of(layer, kind), "dropout": 0.0}
    # By getattr, because a weight may be computed by a parametrization.
    return with_weights(OURS[kind], options, partial(getattr, layer)).eval()


def is_torchs_layer(module: nn.Module) -> bool:
    """Whether this is a layer of torch that runs over time, or of a class derived from one."""
    return isinstance(module, nn.RNNBase) and is_torchs(module)
