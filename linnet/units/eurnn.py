"""EURNN, the efficient unitary recurrent network: the state only ever turns.

Jing et al. (2017b), real, FFT style, as the NRU authors use it for comparison:

    z_t = x_t U + rotation(h_{t-1})
    h_t = sign(z_t) ReLU(|z_t| + 0.01 + b)        modReLU

Differs from the paper, which is complex: the NRU authors' run is real (1024 units are 17,418
parameters with their output layer). Any hidden_size works, see rotation.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.rotation import Rotation, modrelu


class EURNNCell(Cell):
    """One step of EURNN: x_t [B, input_size], h [B, hidden_size] -> h. bias=False leaves b out of modReLU."""

    recurrence = {"rotation": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"u": hidden_size}, **where, **projection)
        self.rotation = Rotation(hidden_size, **where)
        self.b = nn.Parameter(torch.empty(hidden_size, **where)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U in U(-0.01, 0.01), angles anywhere on the circle, b just below the floor of modReLU."""
        clear_(self)
        nn.init.uniform_(self.input.weight, -0.01, 0.01)
        self.rotation.reset_parameters()
        if self.b is not None:
            nn.init.constant_(self.b, -0.01)

    def pays(self, steps: int) -> bool:
        return self.rotation.pays(steps)

    def step(self, u: Tensor, turned: Tensor) -> tuple[Tensor, Named]:
        h = modrelu(u + turned, self.b, floor=0.01)
        return h, {"h": h}


class EURNN(Recurrent, cell=EURNNCell):
    """The efficient unitary network, real and in FFT style (Jing et al. 2017b)."""
