"""LinOSS, linear oscillators: a network of forced harmonic oscillators, discretised in time.

Rusch and Rus (2025). The state is the speed z and the place y of each oscillator, both complex:

    A = ReLU(a),  s = sigmoid(steps),  u_t = B x_t
    IM     z_t = (z_{t-1} + s (u_t - A y_{t-1})) / (1 + s^2 A)      implicit: dissipates
    IMEX   z_t = z_{t-1} + s (u_t - A y_{t-1})                      implicit-explicit: conserves
           y_t = y_{t-1} + s z_t
    out_t  = Re(C y_t) + D x_t

B and C are complex matrices, D has one number for each channel of x; a and the step size of each oscillator
are learned. If x and the output differ in size, which they do not in the paper, D is a matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.pairs import PairReadout, side_by_side
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class LinOSSState(NamedTuple):
    z_re: Tensor
    z_im: Tensor
    y_re: Tensor
    y_im: Tensor


class LinOSSCell(Cell):
    """One step of LinOSS: x_t [B, input_size], the state -> out_t [B, output_size], the state.

    hidden_size      the number of oscillators
    model_size       the size of the output; by default hidden_size
    discretization   "IM" or "IMEX"
    feedthrough      False: without D x
    """

    State = LinOSSState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        model_size: int = 0,
        discretization: str = "IM",
        feedthrough: bool = True,
        **projection: Any,
    ):
        check_size("model_size", model_size, least=0)
        choose("discretization", discretization, ("IM", "IMEX"))
        states = dict.fromkeys(LinOSSState._fields, hidden_size)
        super().__init__(input_size, hidden_size, states, model_size)
        self.discretization, self.model_size = discretization, model_size
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"u_re": hidden_size, "u_im": hidden_size}, **where, **projection)
        self.a, self.steps = (nn.Parameter(torch.empty(hidden_size, **where)) for _ in range(2))
        self.out = PairReadout(input_size, hidden_size, self.output_size, feedthrough, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        clear_(self)
        nn.init.uniform_(self.a)
        nn.init.uniform_(self.steps)
        for weight, size in ((self.input.weight, self.input_size), (self.out.c.weight, self.hidden_size)):
            nn.init.uniform_(weight, -(size**-0.5), size**-0.5)
        self.out.reset_skip()

    def step(
        self, u_re: Tensor, u_im: Tensor, z_re: Tensor, z_im: Tensor, y_re: Tensor, y_im: Tensor
    ) -> tuple[Tensor, Named]:
        z_re, y_re = self.oscillate(u_re, z_re, y_re)
        z_im, y_im = self.oscillate(u_im, z_im, y_im)
        return y_re, {"z_re": z_re, "z_im": z_im, "y_re": y_re, "y_im": y_im}

    def oscillate(self, u: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """One part of the complex numbers; all coefficients are real."""
        a, s = torch.relu(self.a), torch.sigmoid(self.steps)
        z = z + s * (u - a * y)
        z = z / (1 + s * s * a) if self.discretization == "IM" else z
        return z, y + s * z

    def output(self, y: Tensor, state: Named) -> Tensor:
        return side_by_side(state, "y_re", "y_im")

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(y, x)


class LinOSS(Recurrent, cell=LinOSSCell):
    """Linear oscillators (Rusch and Rus 2025)."""
