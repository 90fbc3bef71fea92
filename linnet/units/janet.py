"""JANET: just another network, an LSTM with nothing left but its forget gate.

van der Westhuizen and Lasenby (2018), as the NRU authors use it for comparison:

    f_t = sigmoid(W_f x_t + U_f h_{t-1} + b_f)
    j_t = tanh(W_j x_t + U_j h_{t-1} + b_j)
    h_t = f_t h_{t-1} + (1 - f_t) j_t

Differs from JANET's own code, where the factor of j_t is 1 - sigmoid(a_t - beta) with beta = 1 and the
argument a_t of the sigmoid of f_t: beta=1.0 gives that, 0.0 the NRU authors' form.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_number, check_size, choose
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import INITS, chrono_, clear_, gated_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class JANETCell(Cell):
    """One step of JANET: x_t [B, input_size], h [B, hidden_size] -> h.

    beta     subtracted inside the gate that writes: 0 (the NRU authors) or 1 (JANET's own code)
    chrono   the longest dependency expected: b_f starts at log(1 ... chrono); needs bias=True
    init     "orthogonal" (the NRU authors), "uniform" (torch's) or "xavier"
    heads    cut h and each gate into this many heads: U_f and U_j are block-diagonal
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
        beta: float = 0.0,
        chrono: int | None = None,
        init: str = "orthogonal",
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        choose("init", init, INITS)
        check_number("beta", beta)
        self.beta, self.chrono, self.init = beta, check_chrono(chrono, bias), init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"f": hidden_size, "j": hidden_size}, bias, **where, **projection)
        products = {"fh": hidden_size, "jh": hidden_size}
        self.recurrent = Projection(hidden_size, products, input_heads=heads, **where)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        clear_(self)
        gated_(self.init, [self.input, self.recurrent], self.hidden_size)
        if self.chrono is not None:
            chrono_(self.input.bias_of("f"), self.chrono)
        elif self.init == "orthogonal" and self.input.bias is not None:
            self.input.bias_of("f").fill_(1.0)

    def step(self, f: Tensor, j: Tensor, fh: Tensor, jh: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        a = f + fh
        f = torch.sigmoid(a)
        i = 1 - (torch.sigmoid(a - self.beta) if self.beta else f)
        j = torch.tanh(j + jh)
        h = f * h + i * j
        return h, {"h": h}


def check_chrono(chrono: int | None, bias: bool) -> int | None:
    if chrono is not None:
        check_size("chrono", chrono)
        if not bias:
            raise ValueError("chrono sets the biases of gates; it needs bias=True")
    return chrono


class JANET(Recurrent, cell=JANETCell):
    """The forget-gate-only network (van der Westhuizen and Lasenby 2018)."""
