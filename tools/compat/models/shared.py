"""What the models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

import linnet

# Replaces the layers of a module, as linnet.convert does, or does nothing.
Convert = Callable[[nn.Module], Any]


def unchanged(module: nn.Module) -> nn.Module:
    return module


# For a model that linnet.read_model reads: it has Linnet's layers from the start.
READ: dict[str, Convert] = {"float32": unchanged, "int8": linnet.quantize}
