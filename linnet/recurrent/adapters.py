"""Modules that peft puts around the matrices of a cell.

peft replaces a module by another one that holds it as `base_layer`, and adds LoRA's product to its weight
while it calls it. Kernels call no modules. So the kernel runs inside these calls: `Projection.forward` calls
what it is given as `inside` instead of computing its own product.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from linnet.program.substitute import with_modules


def adapters_of(cell: nn.Module) -> dict[str, Any]:
    """The modules of a cell that hold the module that was there before."""
    children = cell._modules.items()
    return {name: child for name, child in children if child is not None and "base_layer" in child._modules}


def unwrapped(module: Any) -> Any:
    """The module that an adapter holds, or `module` itself."""
    return module.get_base_layer() if "base_layer" in module._modules else module


def run_inside(adapters: dict[str, Any], x: Tensor, run: Callable[[], Any]) -> Any:
    """Call `run` while all adapters are at work."""
    for adapter in adapters.values():
        run = partial(adapter, x, inside=run)
    return run()


def without_adapters(cell: nn.Module, adapters: dict[str, Any]) -> Any:
    """A copy of the cell with the modules that were there before, whose weights the adapters change."""
    return with_modules(cell, {name: unwrapped(adapter) for name, adapter in adapters.items()})
