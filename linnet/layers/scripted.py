"""Layers for torch.jit.script, which cannot compile Linnet's: LSTM, GRU and RNN as torch's own modules.

torch.jit.script asks each module by `__prepare_scriptable__` for another one to compile in its place.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from linnet.recurrent.scripting import cannot_be_scripted

# Options that torch's layers and cells have too, besides sizes.
TORCHS = ("num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size", "nonlinearity")
# Those of a layer that act while training, and that torch does not have.
NOISE = ("variational", "input_dropout", "state_dropout", "weight_drop")
# Those of a cell that make no difference once it has weights.
OF_INITIALISATION = ("init", "chrono", "device", "dtype")


def scriptable_layer(layer: Any) -> nn.Module:
    """Return torch's module with the weights of a layer."""
    noise = [name for name in layer.options_shown() if name in NOISE]
    if layer.training and noise:
        raise cannot_be_scripted(layer, f"torch has no {noise[0]}; for inference, call model.eval() first")
    try:
        return torch_module(layer, layer.first_cell.unit_name, layer.torch_state_dict())
    except ValueError as error:
        raise cannot_be_scripted(layer, str(error)) from None


def scriptable_cell(cell: Any) -> nn.Module:
    """Return torch's module with the weights of a cell."""
    known = {"input_size", "hidden_size", "bias", "nonlinearity", *OF_INITIALISATION}
    if not cell.has_torch_layout or not set(cell.options_shown()) <= known:
        raise cannot_be_scripted(cell, "no module of torch computes the same")
    weights = {name: tensor.detach() for name, tensor in cell.torch_tensors().items()}
    try:
        return torch_module(cell, f"{cell.unit_name}Cell", weights)
    except ValueError as error:
        raise cannot_be_scripted(cell, str(error)) from None


def torch_module(module: Any, name: str, weights: dict[str, Tensor]) -> nn.Module:
    if getattr(module, "first_cell", module).is_quantised:
        raise ValueError("its products round their inputs to int8")
    # From its own file: users may have put linnet's class in the place of nn.LSTM.
    kind = getattr(nn.modules.rnn, name)
    options = {name: value for name, value in module.options_shown().items() if name in TORCHS}
    made = kind(module.input_size, module.hidden_size, **options, device="meta")
    made.load_state_dict(weights, assign=True)
    warnings.warn(
        f"torch.jit.script compiles linnet's {name} as nn.{name} with the same weights, and leaves that in "
        "the model; to keep linnet's, script a copy: torch.jit.script(copy.deepcopy(model))",
        stacklevel=3,
    )
    return made.train(module.training)
