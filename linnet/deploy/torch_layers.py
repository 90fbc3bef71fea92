"""torch's recurrent layers in a model that is exported: as Linnet's, each of which is one operation.

torch.export writes the loop of nn.GRU step by step, for the length of the example.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import rnn

from linnet.program.substitute import with_modules
from linnet.units import GRU, LSTM, RNN

# From their own file: users may have put Linnet's classes in the place of nn.LSTM.
UNITS: dict[type[nn.Module], type[nn.Module]] = {rnn.LSTM: LSTM, rnn.GRU: GRU, rnn.RNN: RNN}
OPTIONS = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional")
FURTHER = {rnn.LSTM: ("proj_size",), rnn.RNN: ("nonlinearity",)}


def with_linnet_layers(model: nn.Module, made: dict[nn.Module, nn.Module] | None = None) -> nn.Module:
    """Return the model with Linnet's layers in the place of torch's, as a copy that shares everything else.

    made   what has become of modules already, so that a shared one stays shared
    """
    made = {} if made is None else made
    if model not in made:
        kind = torch_class(model)
        made[model] = with_linnet_children(model, made) if kind is None else linnet_layer(model, kind)
    return made[model]


def with_linnet_children(model: nn.Module, made: dict[nn.Module, nn.Module]) -> nn.Module:
    given = {name: child for name, child in model._modules.items() if child is not None}
    children = {name: with_linnet_layers(child, made) for name, child in given.items()}
    changed = {name: child for name, child in children.items() if child is not given[name]}
    return with_modules(model, changed) if changed else model


def torch_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of torch whose computation this is: a parametrized layer is of a derived class."""
    return next((k for k in UNITS if isinstance(module, k) and type(module).forward is k.forward), None)


def linnet_layer(layer: Any, kind: type[nn.Module]) -> nn.Module:
    """Return Linnet's layer with the weights of torch's, for inference."""
    options = {name: getattr(layer, name) for name in (*OPTIONS, *FURTHER.get(kind, ()))}
    # A weight may be computed by a parametrization.
    weights = {name: getattr(layer, name).detach() for name in kind(**options, device="meta").state_dict()}
    made = UNITS[kind](**options, device="meta")
    made.load_state_dict(weights, assign=True)
    return made.eval()


def is_torchs(module: nn.Module) -> bool:
    """Whether this is a layer of torch, or of a class derived from one."""
    return isinstance(module, rnn.RNNBase) and not isinstance(module, tuple(UNITS.values()))
