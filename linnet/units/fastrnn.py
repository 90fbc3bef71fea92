"""FastRNN: a plain recurrent network with a weighted residual connection, for small devices.

Kusupati et al. (2018), section 3.1:

    c_t = g(W x_t + U h_{t-1} + b)                       g is tanh, or a piecewise linear function
    h_t = sigmoid(beta) h_{t-1} + sigmoid(alpha) c_t     two numbers for all channels

W and U can be products of two matrices of low rank (section 3.3).

Differs from the paper, where alpha and beta are the weights themselves: in the authors' code they are
passed through a sigmoid, which keeps the weights in (0, 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

NONLINEARITIES = ("tanh", "sigmoid", "relu", "quantTanh", "quantSigm", "quantSigm4")


class LowRankCell(Cell):
    """What FastRNN and FastGRNN share: W x and U h, with matrices of full or of low rank.

    The product with the state comes from `recur` as hU1, and `recurrent_product` makes U h of it, so that
    kernels and exported models keep the two small matrices of a low-rank U.
    """

    recurrence = {"recurrent": "h"}

    def make_products(
        self, rank: int, recurrent_rank: int, biased: bool, where: dict[str, Any], projection: dict[str, Any]
    ) -> None:
        check_size("recurrent_rank", recurrent_rank, least=0)
        size = self.hidden_size
        self.input = Projection(self.input_size, {"a": size}, biased, rank=rank, **where, **projection)
        self.recurrent = Projection(size, {"hU1": recurrent_rank or size}, **where)
        self.expand = Projection(recurrent_rank, {"hU": size}, **where) if recurrent_rank else None

    def recurrent_product(self, hU1: Tensor) -> Tensor:
        return hU1 if self.expand is None else self.expand(hU1)["hU"]

    def reset_matrices(self) -> None:
        """Normal numbers with a standard deviation of 0.1."""
        clear_(self)
        for module in (self.input, self.recurrent, self.expand):
            for matrix in () if module is None else (module.weight, module.reduce):
                if matrix is not None:
                    nn.init.normal_(matrix, std=0.1)


class FastRNNCell(LowRankCell):
    """One step of FastRNN: x_t [B, input_size], h [B, hidden_size] -> h.

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
        update: str = "tanh",
        rank: int = 0,
        recurrent_rank: int = 0,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.g = pointwise(update, NONLINEARITIES, "update")
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.make_products(rank, recurrent_rank, bias, where, projection)
        self.alpha = nn.Parameter(torch.empty(1, **where))
        self.beta = nn.Parameter(torch.empty(1, **where))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.reset_matrices()
        if self.input.bias is not None:
            nn.init.ones_(self.input.bias)
        nn.init.constant_(self.alpha, -3.0)
        nn.init.constant_(self.beta, 3.0)

    def step(self, a: Tensor, hU1: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        c = self.g(a + self.recurrent_product(hU1))
        h = torch.sigmoid(self.beta) * h + torch.sigmoid(self.alpha) * c
        return h, {"h": h}


class FastRNN(Recurrent, cell=FastRNNCell):
    """The recurrent network with a weighted residual connection (Kusupati et al. 2018)."""
