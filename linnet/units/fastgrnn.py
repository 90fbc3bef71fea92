"""FastGRNN: one matrix of x and one of h for both gate and candidate, for small devices.

Kusupati et al. (2018), section 3.2:

    a_t = W x_t + U h_{t-1}
    z_t = f(a_t + b_z)                                               f is the sigmoid, g tanh,
    c_t = g(a_t + b_c)                                               or piecewise linear functions
    h_t = z_t h_{t-1} + (sigmoid(zeta) (1 - z_t) + sigmoid(nu)) c_t  two numbers for all channels

W and U can be products of two matrices of low rank (section 3.3).

Differs from the paper, where zeta and nu are the weights themselves: in the authors' code they are passed
through a sigmoid, which keeps the weights in (0, 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.recurrent import Recurrent
from linnet.units.fastrnn import NONLINEARITIES, LowRankCell


class FastGRNNCell(LowRankCell):
    """One step of FastGRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    gate             f: "sigmoid", or piecewise linear: "quantSigm", "quantSigm4"; or any that `update` takes
    update           g: "tanh", "sigmoid", "relu", or piecewise linear: "quantTanh", "quantSigm", "quantSigm4"
    rank             W = W2 W1 through `rank` dimensions (0: a full matrix)
    recurrent_rank   U = U2 U1 through `recurrent_rank` dimensions (0: a full matrix)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        gate: str = "sigmoid",
        update: str = "tanh",
        rank: int = 0,
        recurrent_rank: int = 0,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.f = pointwise(gate, NONLINEARITIES, "gate")
        self.g = pointwise(update, NONLINEARITIES, "update")
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.make_products(rank, recurrent_rank, False, where, projection)
        self.b_z, self.b_c = (
            nn.Parameter(torch.empty(hidden_size, **where)) if bias else None for _ in range(2)
        )
        self.zeta = nn.Parameter(torch.empty(1, **where))
        self.nu = nn.Parameter(torch.empty(1, **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.reset_matrices()
        for bias in (self.b_z, self.b_c):
            if bias is not None:
                nn.init.ones_(bias)
        nn.init.constant_(self.zeta, 1.0)
        nn.init.constant_(self.nu, -4.0)

    def step(self, a: Tensor, hU1: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        a = a + self.recurrent_product(hU1)
        z = self.f(a if self.b_z is None else a + self.b_z)
        c = self.g(a if self.b_c is None else a + self.b_c)
        h = z * h + (torch.sigmoid(self.zeta) * (1 - z) + torch.sigmoid(self.nu)) * c
        return h, {"h": h}


class FastGRNN(Recurrent, cell=FastGRNNCell):
    """The gated network with one matrix of x and one of h (Kusupati et al. 2018)."""
