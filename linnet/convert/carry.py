"""What a layer has besides its computation, carried over to the layer that takes its place."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import is_parametrized


class LeftAloneError(Exception):
    """Why a layer is not replaced."""


# torch keeps the hooks of a module in dictionaries. A handle refers to its dictionary, so a module that gets
# the dictionaries themselves leaves the `remove()` of all handles working.
HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook"),
)
# Hooks of state dicts may hold the module for which they were registered.
HOOKS_OF_STATE_DICTS = (
    *("_state_dict_hooks", "_state_dict_pre_hooks"),
    *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)


def check_carries(layer: nn.Module, names: set[str]) -> None:
    """Raise an error if `layer` has what another module could not take over; `names`: its parameters."""
    own = dict(layer.named_parameters()) | dict(layer.named_buffers())
    if own.keys() != names:
        different = ", ".join(sorted(own.keys() ^ names))
        raise LeftAloneError(
            f"its parameters are not those of its class ({different}), as with weight_norm, spectral_norm or "
            "prune; remove these first"
        )
    if any(getattr(layer, hooks) for hooks in HOOKS_OF_STATE_DICTS):
        raise LeftAloneError("it has hooks of its state dict, which may refer to it; remove them first")
    kinds = {(tensor.dtype, tensor.device) for tensor in own.values()}
    if len(kinds) > 1:
        raise LeftAloneError("its parameters differ in dtype or device")


def check_not_parametrized(layer: nn.Module) -> None:
    if is_parametrized(layer):
        which = ", ".join(layer.parametrizations)  # type: ignore[arg-type]
        raise LeftAloneError(
            f"{which} is parametrized; call torch.nn.utils.parametrize.remove_parametrizations"
        )


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
