"""MinimalRNN: the state is an average of embedded inputs, weighted by one gate.

Chen (2017):

    z_t = tanh(W_x x_t + b_z)
    u_t = sigmoid(U_h h_{t-1} + U_z z_t + b_u)
    h_t = u_t h_{t-1} + (1 - u_t) z_t

The input is embedded into the space of the state first, and h moves within the range of these z. The paper's
embedding Phi may be any network; here it is its example, one layer with tanh.

Differs from the paper in what it does not state: the start of the parameters, which is torch's of nn.RNN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import choose
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import INITS, clear_, gated_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class MinimalRNNCell(Cell):
    """One step of MinimalRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h, z and u into this many heads: U_h and U_z are block-diagonal
    """

    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        init: str = "uniform",
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        choose("init", init, INITS)
        self.init = init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"z": hidden_size}, bias, **where, **projection)
        self.recurrent = Projection(hidden_size, {"u_h": hidden_size}, input_heads=heads, **where)
        self.embedded = Projection(hidden_size, {"u_z": hidden_size}, bias, input_heads=heads, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        clear_(self)
        gated_(self.init, [self.input, self.recurrent, self.embedded], self.hidden_size)

    def step(self, z: Tensor, u_h: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        z = torch.tanh(z)
        u = torch.sigmoid(u_h + self.embedded(z)["u_z"])
        h = u * h + (1 - u) * z
        return h, {"h": h}


class MinimalRNN(Recurrent, cell=MinimalRNNCell):
    """The minimal recurrent network (Chen 2017)."""
