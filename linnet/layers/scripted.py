"""Layers for torch.jit.script, which cannot compile Linnet's: LSTM, GRU and RNN as torch's own modules.

torch.jit.script asks each module by `__prepare_scriptable__` for another one to compile in its place.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from torch import nn

from linnet.layers.torch_twins import OF_TRAINING, THEIRS, options_for_torch, with_weights
from linnet.recurrent.scripting import cannot_be_scripted


def scriptable(module: Any) -> nn.Module:
    """Return torch's module with the weights of a layer or a cell."""
    kind = next(theirs for ours, theirs in THEIRS.items() if isinstance(module, ours))
    try:
        made = with_weights(kind, options_of_twin(module, kind), partial(getattr, module))
    except ValueError as error:
        raise cannot_be_scripted(module, str(error)) from None
    name = kind.__name__
    warnings.warn(
        f"torch.jit.script compiles linnet's {name} as nn.{name} with the same weights, and leaves that in "
        "the model; to keep linnet's, script a copy: torch.jit.script(copy.deepcopy(model))",
        stacklevel=3,
    )
    return made.train(module.training)


def options_of_twin(module: Any, kind: type[nn.Module]) -> dict[str, Any]:
    """The arguments of torch's class; ValueError if it does not compute the same in the module's mode."""
    noise = [name for name in module.options_shown() if name in OF_TRAINING]
    if module.training and noise:
        raise ValueError(f"torch has no {noise[0]}; for inference, call model.eval() first")
    if getattr(module, "first_cell", module).is_quantised:
        raise ValueError("its products round their inputs to int8")
    return options_for_torch(module, kind, ignored=OF_TRAINING)
