"""What the models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

# Replaces the layers of a module, as linnet.convert does, or does nothing.
Convert = Callable[[nn.Module], Any]
