"""LEM, the long expressive memory: two states, each of which learns its time step.

Rusch, Mishra, Erichson and Mahoney (2022), section 2, a discretised system of two differential
equations:

    p_t = dt sigmoid(W_p y_{t-1} + V_p x_t + b_p)                      the time step of y
    q_t = dt sigmoid(W_q y_{t-1} + V_q x_t + b_q)                      the time step of z
    z_t = (1 - q_t) z_{t-1} + q_t tanh(W_z y_{t-1} + V_z x_t + b_z)
    y_t = (1 - p_t) y_{t-1} + p_t tanh(W_y z_t + V_y x_t + b_y)        reads the new z

The output is y. The paper's symbols for q and p are Delta t_n and Delta t_n with a bar.

Differs from the paper, as the authors' code does: each b is the sum of two biases, one of the product with
x and one of the product with a state.

Names: the input matrix has the authors' order of rows. They call the third block i_z and the fourth i_y, but
the third is added to the product with z, in the equation of y, and the fourth to the product with y, in that
of z. Here a block has the name of the equation that reads it: p, q, ay, az.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_number
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, linear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class LEMState(NamedTuple):
    y: Tensor
    z: Tensor


class LEMCell(Cell):
    """One step of LEM: x_t [B, input_size], (y, z) -> y, (y, z).

    dt   the longest time step of both states; the papers' tasks take 0.00017 to 1
    """

    State = LEMState
    recurrence = {"recurrent": "y"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        dt: float = 1.0,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, dict.fromkeys(LEMState._fields, hidden_size))
        check_number("dt", dt, least=0)
        self.dt = dt
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("p", "q", "ay", "az"), hidden_size)
        self.input = Projection(input_size, parts, bias, **where, **projection)
        products = dict.fromkeys(("yWp", "yWq", "yWz"), hidden_size)
        self.recurrent = Projection(hidden_size, products, bias, **where)
        self.inner = Projection(hidden_size, {"zWy": hidden_size}, bias, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """U(-1/sqrt(H), 1/sqrt(H)), biases included."""
        clear_(self)
        for projection in (self.input, self.recurrent, self.inner):
            linear_(projection, 1 / math.sqrt(self.hidden_size))

    def step(
        self,
        p: Tensor,
        q: Tensor,
        ay: Tensor,
        az: Tensor,
        yWp: Tensor,
        yWq: Tensor,
        yWz: Tensor,
        y: Tensor,
        z: Tensor,
    ) -> tuple[Tensor, Named]:
        p = self.dt * torch.sigmoid(p + yWp)
        q = self.dt * torch.sigmoid(q + yWq)
        z = (1 - q) * z + q * torch.tanh(az + yWz)
        y = (1 - p) * y + p * torch.tanh(ay + self.inner(z)["zWy"])
        return y, {"y": y, "z": z}


class LEM(Recurrent, cell=LEMCell):
    """The long expressive memory (Rusch et al. 2022)."""
