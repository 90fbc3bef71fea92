"""Random numbers that are drawn again."""

from __future__ import annotations

from typing import Any

import torch


class RandomState:
    """The state of torch's generator for a device."""

    def __init__(self, device: torch.device):
        self.generator: Any = torch if device.type == "cpu" else torch.get_device_module(device)
        self.state = self.generator.get_rng_state()

    def restore(self) -> None:
        self.generator.set_rng_state(self.state)
