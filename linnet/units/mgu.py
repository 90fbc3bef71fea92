"""MGU, the minimal gated unit: a GRU with one gate, which forgets and resets.

Zhou, Wu, Zhang and Zhou (2016):

    f_t = sigmoid(W_f x_t + U_f h_{t-1} + b_f)
    c_t = tanh(W_c x_t + U_c (f_t h_{t-1}) + b_c)
    h_t = (1 - f_t) h_{t-1} + f_t c_t

f is the share of the new: an open gate forgets, although the paper calls it the forget gate.

Differs from the paper in what it does not state: the start of the parameters, which is torch's of nn.GRU.
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


class MGUCell(Cell):
    """One step of MGU: x_t [B, input_size], h [B, hidden_size] -> h.

    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h and each gate into this many heads: U_f and U_c are block-diagonal
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
        self.input = Projection(input_size, {"f": hidden_size, "c": hidden_size}, bias, **where, **projection)
        self.recurrent = Projection(hidden_size, {"f_h": hidden_size}, input_heads=heads, **where)
        self.candidate = Projection(hidden_size, {"c_h": hidden_size}, input_heads=heads, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        clear_(self)
        gated_(self.init, [self.input, self.recurrent, self.candidate], self.hidden_size)

    def step(self, f: Tensor, c: Tensor, f_h: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        f = torch.sigmoid(f + f_h)
        c = torch.tanh(c + self.candidate(f * h)["c_h"])
        h = (1 - f) * h + f * c
        return h, {"h": h}


class MGU(Recurrent, cell=MGUCell):
    """The minimal gated unit (Zhou et al. 2016)."""
