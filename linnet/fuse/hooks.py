"""Who wants to be called when a module is called.

A kernel does the work of modules without calling them. Where somebody listens to such a module (by a
hook, as pruning and weight norm do, or by a `forward` that was replaced, as accelerate does), the loop
runs instead.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook
from torch.torch_version import TorchVersion

# Before torch 2.13 a compiler cannot look into the attributes of a module.
OLD_COMPILER = TorchVersion(torch.__version__) < TorchVersion("2.13")


def has_hooks(module: nn.Module) -> bool:
    """Whether calling `module` does more than its class says."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or has_replaced_forward(module)
    )


def has_replaced_forward(module: nn.Module) -> bool:
    """Whether the object itself has a `forward` in place of that of its class."""
    return not (OLD_COMPILER and torch.compiler.is_compiling()) and "forward" in module.__dict__


def hooked_submodule(module: nn.Module) -> str | None:
    """The module within `module` that somebody listens to, if there is one."""
    return "every module" if _has_any_global_hook() else hooked_child(module)


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
