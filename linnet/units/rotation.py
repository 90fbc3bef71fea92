"""An orthogonal matrix as a butterfly of plane rotations, the FFT style of EURNN and GORU.

Jing et al. (2017): log2(n) layers; in layer l, channel j is turned in a plane with the channel at
distance n / 2^(l+1), by an angle of its own:

    h_a' = cos(theta) h_a - sin(theta) h_b
    h_b' = cos(theta) h_b + sin(theta) h_a

n log2(n) / 2 angles reach every channel from every other, and no norm ever changes.

Differs from the authors' code, which takes powers of two only: here a channel whose partner would
lie beyond n sits that layer out, so that any n works, with the same result where theirs runs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def planes(size: int, layer: int, layers: int) -> tuple[Tensor, Tensor]:
    """The pairs of channels turned in one layer, in the order in which the authors store their angles."""
    distance = 2 ** (layers - 1 - layer)
    channels = torch.arange(size - distance)
    first = channels[channels // distance % 2 == 0]
    first = first[torch.argsort(first % distance * size + first // distance)]
    return first, first + distance


class Rotation(nn.Module):
    """h [B, size] -> [B, size], turned."""

    partner: Tensor
    angle: Tensor
    sign: Tensor

    def __init__(self, size: int, device=None, dtype=None):
        super().__init__()
        self.layers = math.ceil(math.log2(size))
        self.theta = nn.Parameter(torch.empty(self.layers, size // 2, device=device, dtype=dtype))
        partner = torch.arange(size).repeat(self.layers, 1)
        angle = torch.zeros(self.layers, size, dtype=torch.long)
        sign = torch.zeros(self.layers, size)
        for layer in range(self.layers):
            a, b = planes(size, layer, self.layers)
            partner[layer, a], partner[layer, b] = b, a
            angle[layer, a] = angle[layer, b] = torch.arange(len(a))
            sign[layer, a], sign[layer, b] = -1, 1
        self.register_buffer("partner", partner.to(device), persistent=False)
        self.register_buffer("angle", angle.to(device), persistent=False)
        self.register_buffer("sign", sign.to(device=device, dtype=self.theta.dtype), persistent=False)

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.theta, -3.14, 3.14)

    def forward(self, h: Tensor) -> Tensor:
        theta = self.theta.gather(1, self.angle) * self.sign
        # Taken apart at once and read by index_select: the gradient of h[..., partner] is many times slower.
        layers = zip(torch.cos(theta).unbind(), torch.sin(theta).unbind(), self.partner.unbind(), strict=True)
        for cos, sin, partner in layers:
            h = cos * h + sin * h.index_select(-1, partner)
        return h


def modrelu(z: Tensor, bias: Tensor | None, floor: float) -> Tensor:
    """sign(z) ReLU(|z| + floor + b): the ReLU that leaves the direction of z alone."""
    size = z.abs() + floor
    return torch.sign(z) * torch.relu(size if bias is None else size + bias)
