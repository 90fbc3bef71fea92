"""Modules whose call does more than the `forward` of their class.

A kernel computes what the modules inside a cell would, without calling them. If one of them has a hook (of
pruning or weight norm, for example) or a `forward` that was replaced (as accelerate does), the reference loop
runs instead.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.torch_version import TorchVersion

from linnet.base.torch_private import has_any_global_hook

# Before torch 2.13, torch.compile cannot trace access to the `__dict__` of a module.
OLD_COMPILER = TorchVersion(torch.__version__) < TorchVersion("2.13")


def has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or has_replaced_forward(module)
    )


def has_replaced_forward(module: nn.Module) -> bool:
    """Whether the object itself has a `forward` that replaces that of its class."""
    return not (OLD_COMPILER and torch.compiler.is_compiling()) and "forward" in module.__dict__


def hook_obstacle(module: nn.Module) -> str | None:
    """Why a kernel, which does not call modules, cannot do the work of those in `module`, or None."""
    name = hooked_submodule(module)
    return None if name is None else f"{name} has a hook, and kernels do not call modules"


def hooked_submodule(module: nn.Module) -> str | None:
    """The name of a module inside `module` that has a hook, or None."""
    return "every module" if has_any_global_hook() else hooked_child(module)


def hooked_child(module: nn.Module) -> str | None:
    for name, child in module._modules.items():
        if child is None:
            continue
        if has_hooks(child):
            return name
        inner = hooked_child(child) if child._modules else None
        if inner is not None:
            return f"{name}.{inner}"
    return None
