"""GORU, the gated orthogonal recurrent unit: EURNN that can forget.

Jing et al. (2017a), FFT style, as the NRU authors use it for comparison:

    r_t = sigmoid(x_t U_r + h_{t-1} W_r + b_r)
    g_t = sigmoid(x_t U_g + h_{t-1} W_g + b_g)
    c_t = modReLU(x_t U_c + r_t rotation(h_{t-1})),     modReLU(z) = sign(z) ReLU(|z| + 0.001 + b_c)
    h_t = g_t h_{t-1} + (1 - g_t) c_t
"""

from __future__ import annotations

import math
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


class GORUCell(Cell):
    """One step of GORU: x_t [B, input_size], h [B, hidden_size] -> h.

    heads   cut h and the gates into this many heads: W_r and W_g are block-diagonal
    """

    recurrence = {"recurrent": "h", "rotation": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("c", "r", "g"), hidden_size)
        self.input = Projection(input_size, parts, ("r", "g") if bias else False, **where, **projection)
        products = {"r_h": hidden_size, "g_h": hidden_size}
        self.recurrent = Projection(hidden_size, products, input_heads=heads, **where)
        self.rotation = Rotation(hidden_size, **where)
        self.b_c = nn.Parameter(torch.empty(hidden_size, **where)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As in the authors' code; b_g, which it leaves to its framework, starts Xavier-uniform there."""
        clear_(self)
        nn.init.uniform_(self.input.weight, -0.01, 0.01)
        nn.init.uniform_(self.recurrent.weight, -0.01, 0.01)
        self.rotation.reset_parameters()
        if self.b_c is not None:
            bound = math.sqrt(3 / self.hidden_size)
            self.input.bias_of("r").fill_(2.0)
            self.input.bias_of("g").uniform_(-bound, bound)
            nn.init.constant_(self.b_c, 0.01)

    def pays(self, steps: int) -> bool:
        return self.rotation.pays(steps)

    def step(
        self, c: Tensor, r: Tensor, g: Tensor, r_h: Tensor, g_h: Tensor, turned: Tensor, h: Tensor
    ) -> tuple[Tensor, Named]:
        r = torch.sigmoid(r + r_h)
        g = torch.sigmoid(g + g_h)
        c = modrelu(c + r * turned, self.b_c, floor=0.001)
        h = g * h + (1 - g) * c
        return h, {"h": h}


class GORU(Recurrent, cell=GORUCell):
    """The gated orthogonal recurrent unit, in FFT style (Jing et al. 2017a)."""
