"""An orthogonal matrix as a butterfly of plane rotations, the FFT style of EURNN and GORU.

Jing et al. (2017): log2(n) layers; in layer l, channel j is turned in a plane with the channel at
distance n / 2^(l+1), by an angle of its own:

    h_a' = cos(theta) h_a - sin(theta) h_b
    h_b' = cos(theta) h_b + sin(theta) h_a

n log2(n) / 2 angles reach every channel from every other, and no norm ever changes.

Differs from the authors' code, which takes powers of two only: here a layer skips a channel whose partner
would be beyond n, so that any n works. Powers of two give the authors' result.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.program.readable import is_recorded
from linnet.program.unit import ByNature, CannotFuse, Linear

# Numbers of the matrix that a step has to be worth; measured, see docs/log.md.
WORTH_A_MATRIX = 1 << 14


def planes(size: int, layer: int, layers: int) -> list[tuple[int, int]]:
    """The pairs of channels turned in one layer, in the order in which the authors store their angles."""
    distance = 2 ** (layers - 1 - layer)
    first = [channel for channel in range(size - distance) if channel // distance % 2 == 0]
    first.sort(key=lambda channel: (channel % distance, channel // distance))
    return [(channel, channel + distance) for channel in first]


def tables(size: int, layers: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each layer and channel: the partner that it is turned with, by which angle, and which way."""
    partner = [list(range(size)) for _ in range(layers)]
    angle, sign = ([[0] * size for _ in range(layers)] for _ in range(2))
    for layer in range(layers):
        for number, (a, b) in enumerate(planes(size, layer, layers)):
            partner[layer][a], partner[layer][b] = b, a
            angle[layer][a] = angle[layer][b] = number
            sign[layer][a], sign[layer][b] = -1, 1
    where = like.device
    whole = (torch.tensor(table, device=where) for table in (partner, angle))
    return *whole, torch.tensor(sign, dtype=like.dtype, device=where)  # type: ignore[return-value]


class Rotation(nn.Module):
    """h [B, size] -> {"turned": [B, size]}."""

    # For kernels, it is a projection without a bias; see `weight`.
    is_product, bias, heads = True, None, 1

    def __init__(self, size: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.size, self.layers = size, math.ceil(math.log2(size))
        self.parts = {"turned": size}
        self.theta = nn.Parameter(torch.empty(self.layers, size // 2, device=device, dtype=dtype))
        # No buffers: if a module is built on meta and then loaded (Hugging Face's from_pretrained, to_empty),
        # buffers that are in no state dict would have arbitrary values.
        self.tables: tuple[Tensor, Tensor, Tensor] | None = None

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.theta, -3.14, 3.14)

    def own_tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cached until the angles move to another device or dtype; not while operations are recorded."""
        if is_recorded(self.theta):
            return tables(self.size, self.layers, self.theta)
        kept, like = self.tables, (self.theta.device, self.theta.dtype)
        if kept is None or (kept[2].device, kept[2].dtype) != like:
            kept = self.tables = tables(self.size, self.layers, self.theta)
        return kept

    @property
    def weight(self) -> Tensor:
        """The matrix [size, size] that turns h, for kernels."""
        identity = torch.eye(self.size, device=self.theta.device, dtype=self.theta.dtype)
        return self(identity)["turned"].T

    def pays(self, steps: int) -> bool:
        """Whether so many steps are worth making the matrix, which takes size^2 log(size) operations."""
        return steps > 1 and self.size**2 <= WORTH_A_MATRIX * steps

    def biases(self) -> dict[str, Tensor]:
        return {}

    def product(self) -> Linear:
        """For kernels of a single step."""
        raise CannotFuse(ByNature("a single step is not worth making a matrix of its rotation"))

    def used(self) -> Any:
        """For kernels of int8."""
        raise CannotFuse(ByNature("there are no kernels of int8 for rotations"))

    def forward(self, h: Tensor) -> dict[str, Tensor]:
        partners, angle, sign = self.own_tables()
        theta = self.theta.gather(1, angle) * sign
        # Taken apart at once and read by index_select: the gradient of h[..., partner] is many times slower.
        layers = zip(torch.cos(theta).unbind(), torch.sin(theta).unbind(), partners.unbind(), strict=True)
        for cos, sin, partner in layers:
            h = cos * h + sin * h.index_select(-1, partner)
        return {"turned": h}


def modrelu(z: Tensor, bias: Tensor | None, floor: float) -> Tensor:
    """sign(z) ReLU(|z| + floor + b): the ReLU that leaves the direction of z alone."""
    size = z.abs() + floor
    return torch.sign(z) * torch.relu(size if bias is None else size + bias)
