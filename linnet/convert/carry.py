"""What a layer has besides its computation, carried over to the layer that takes its place."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization


class LeftAloneError(Exception):
    """Why a layer is not replaced."""


# torch keeps the hooks of a module in dictionaries. A handle refers to its dictionary, so a module that gets
# the dictionaries themselves leaves the `remove()` of all handles working.
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


def check_carries(layer: nn.Module, names: set[str]) -> None:
    """Raise an error if `layer` has what another module could not take over; `names`: its parameters."""
    own = {*own_parameters(layer), *parametrizations_of(layer), *layer._buffers}
    if own != names:
        raise LeftAloneError(
            f"its parameters are not those of its class ({', '.join(sorted(own ^ names))}), as with prune or "
            "the weight_norm that uses hooks; remove these first"
        )
    # The one kind of hook that torch lets hold the module for which it was registered.
    if any(getattr(hook, "with_module", False) for hook in layer._load_state_dict_pre_hooks.values()):
        raise LeftAloneError("a hook that reads its state dict refers to it; remove that first")
    kinds = {(parameter.dtype, parameter.device) for parameter in layer.parameters()}
    if len(kinds) > 1:
        raise LeftAloneError("its parameters differ in dtype or device")


def own_parameters(layer: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of the layer itself, also those that it has twice."""
    return dict(layer.named_parameters(recurse=False, remove_duplicate=False))


def parametrizations_of(layer: Any) -> dict[str, nn.Module]:
    """What computes the parametrized parameters of a layer, by their names."""
    return dict(layer.parametrizations.items()) if is_parametrized(layer) else {}


def plain_class(layer: nn.Module) -> type[nn.Module]:
    """The class of a layer; torch gives a parametrized one a subclass with a property for each parameter."""
    return type(layer).__bases__[0] if is_parametrized(layer) else type(layer)


def check_not_parametrized(layer: nn.Module) -> None:
    if which := ", ".join(parametrizations_of(layer)):
        raise LeftAloneError(
            f"{which} is parametrized; call torch.nn.utils.parametrize.remove_parametrizations"
        )


def share_parameters(old: nn.Module, new: Any) -> None:
    """Give `new` the parameters and parametrizations of `old` themselves.

    Since they are the same objects, optimisers and ties of weights stay valid.
    """
    for name, parameter in own_parameters(old).items():
        setattr(new, name, parameter)
    for name, parametrization in parametrizations_of(old).items():
        # Makes the property of the class; what it computes with is then that of the old layer.
        register_parametrization(new, name, nn.Identity())
        new.parametrizations[name] = parametrization


def carry(old: nn.Module, new: nn.Module, fresh: nn.Module) -> nn.Module:
    """Give `new` the mode and the hooks of `old`, and what was set on it; `fresh` is another of its class."""
    for name, value in vars(old).items():
        # What the class has under this name is a cache of its own.
        if name not in vars(fresh) and not name.startswith("_") and not hasattr(type(old), name):
            setattr(new, name, value)
    return carry_hooks(old, new)


def carry_hooks(old: nn.Module, new: nn.Module) -> nn.Module:
    """Give `new` the mode and the hooks of `old`."""
    new.train(old.training)
    for hooks in HOOKS:
        setattr(new, hooks, getattr(old, hooks))
    return new
