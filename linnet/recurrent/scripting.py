"""The answer to torch.jit.script, which cannot compile Linnet's layers and cells."""

from __future__ import annotations

from torch import nn


def cannot_be_scripted(module: nn.Module, reason: str) -> TypeError:
    return TypeError(
        f"torch.jit.script cannot compile linnet's {type(module).__name__}: {reason}. Use torch.jit.trace or "
        "torch.export instead; linnet.export_c and linnet.export_onnx write models that need no Python"
    )


class NotScriptable:
    """A module that torch.jit.script refuses with an answer."""

    def __prepare_scriptable__(self) -> nn.Module:
        raise cannot_be_scripted(self, "its calls choose kernels at run time")  # type: ignore[arg-type]
