"""The check that parameters and input are on the same device."""

from __future__ import annotations

from torch import Tensor, nn
from torch.compiler import is_compiling

from linnet.program.owned import named_tensors
from linnet.run.hooks import has_hooks, hooked_submodule


def check_devices(module: nn.Module, unit: str, x: Tensor) -> None:
    """Check all parameters: torch's own product with a matrix on meta returns arbitrary numbers."""
    if is_compiling():  # the compiler checks devices itself
        return
    elsewhere = {name: p.device for name, p in named_tensors(module) if p.device != x.device}
    # A hook may move the parameters for each call.
    if elsewhere and not has_hooks(module) and hooked_submodule(module) is None:
        name, device = next(iter(elsewhere.items()))
        raise ValueError(
            f"the parameter {name!r} of {unit} is on {device}, but x is on {x.device}; "
            "move the module with .to(device)"
        )
