"""SGU, the simple gated unit: a gate that multiplies, and DSGU, its deep form.

Gao and Glowacka (2016):

    g_t = W_g x_t + b_g
    a_t = tanh(W_a (g_t h_{t-1}))
    o_t = softplus(a_t h_{t-1})               SGU
    o_t = sigmoid(W_o (a_t h_{t-1}))          DSGU, deep=True
    z_t = hard_sigmoid(W_z x_t + U_z h_{t-1} + b_z)
    h_t = (1 - z_t) h_{t-1} + z_t o_t

hard_sigmoid(v) = clip(0.2 v + 0.5, 0, 1), as in the frameworks of the time; torch's of the same name has the
slope 1/6.

Differs from the paper in what it does not state: the start of the parameters, which is torch's of nn.GRU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.types import Device

from linnet.base.options import choose
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import INITS, clear_, gated_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


def hard_sigmoid(v: Tensor) -> Tensor:
    return torch.clamp(0.2 * v + 0.5, 0, 1)


class SGUCell(Cell):
    """One step of SGU: x_t [B, input_size], h [B, hidden_size] -> h.

    deep    True: DSGU, in which o has a matrix of its own
    init    "uniform" (torch's), "xavier" or "orthogonal"
    heads   cut h and each gate into this many heads: W_a, U_z and W_o are block-diagonal
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
        deep: bool = False,
        init: str = "uniform",
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        choose("init", init, INITS)
        self.deep, self.init = deep, init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"g": hidden_size, "z": hidden_size}, bias, **where, **projection)
        of_h: dict[str, Any] = {"input_heads": heads, **where}
        self.recurrent = Projection(hidden_size, {"z_h": hidden_size}, **of_h)
        self.gate = Projection(hidden_size, {"a": hidden_size}, **of_h)
        self.deepening = Projection(hidden_size, {"o": hidden_size}, **of_h) if deep else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        clear_(self)
        of_h = [self.recurrent, self.gate, *([] if self.deepening is None else [self.deepening])]
        gated_(self.init, [self.input, *of_h], self.hidden_size)

    def step(self, g: Tensor, z: Tensor, z_h: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        a = torch.tanh(self.gate(g * h)["a"])
        o = F.softplus(a * h) if self.deepening is None else torch.sigmoid(self.deepening(a * h)["o"])
        z = hard_sigmoid(z + z_h)
        h = (1 - z) * h + z * o
        return h, {"h": h}


class SGU(Recurrent, cell=SGUCell):
    """The simple gated unit (Gao and Glowacka 2016)."""
