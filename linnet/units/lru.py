"""LRU, the linear recurrent unit: a diagonal recurrence of complex numbers, without any nonlinearity.

Orvieto, Smith, Gu, Fernando, Gulcehre, Pascanu and De (2023), section 3 and appendix A:

    lambda = exp(-exp(nu) + i exp(theta)),    |lambda| < 1 for every nu
    h_t = lambda h_{t-1} + exp(gamma) (B x_t)
    y_t = Re(C h_t) + D x_t

B and C are complex matrices, D has one number for each channel of x, and h is complex: the state is the
pair (re, im). The absolute value of lambda starts uniformly on the ring between r_min and r_max, its phase in
[0, max_phase], and gamma = log sqrt(1 - |lambda|^2), so that h starts with the variance of its input;
afterwards it is free.

Differs from state space models in which lambdas come in conjugate pairs: there are no such pairs here, and so
no factor 2 in Re(C h). If x and y differ in size, which they do not in the paper, D is a matrix. The paper
trains nu, theta, gamma and B at a lower learning rate and without weight decay: `linnet.parameter_groups`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_size
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.pairs import ComplexState, PairReadout, side_by_side
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class LRUCell(Cell):
    """One step of LRU: x_t [B, input_size], (re, im) [B, hidden_size] -> y_t [B, output_size], (re, im).

    model_size     the size of y; by default hidden_size
    r_min          the least absolute value of lambda at the start
    r_max          the greatest; at most 1
    max_phase      the largest phase at the start; 6.28 is the whole circle
    feedthrough    False: without D x
    """

    State = ComplexState
    # Those that the paper trains at half of the learning rate, and without weight decay.
    slow_parameters = ("nu", "theta", "gamma", "input.weight")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        model_size: int = 0,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 6.28,
        feedthrough: bool = True,
        **projection: Any,
    ):
        check_size("model_size", model_size, least=0)
        super().__init__(input_size, hidden_size, {"re": hidden_size, "im": hidden_size}, model_size)
        check_ring(r_min, r_max)
        check_number("max_phase", max_phase, least=0)
        self.model_size = model_size
        self.r_min, self.r_max, self.max_phase = r_min, r_max, max_phase
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"b_re": hidden_size, "b_im": hidden_size}, **where, **projection)
        self.nu, self.theta, self.gamma = (nn.Parameter(torch.empty(hidden_size, **where)) for _ in range(3))
        self.out = PairReadout(input_size, hidden_size, self.output_size, feedthrough, **where)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        clear_(self)
        nn.init.normal_(self.input.weight, std=(2 * self.input_size) ** -0.5)
        nn.init.normal_(self.out.c.weight, std=self.hidden_size**-0.5)
        self.out.reset_skip()
        starts = self.on_ring(torch.rand_like(self.nu), torch.rand_like(self.theta))
        for parameter, start in zip((self.nu, self.theta, self.gamma), starts, strict=True):
            parameter.copy_(start)

    def on_ring(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """nu, theta and gamma at the start, for u and v in [0, 1)."""
        # The logarithm of a draw of exactly 0 would be infinite.
        u, v = (draw.clamp_min(torch.finfo(draw.dtype).tiny) for draw in (u, v))
        squared = u * (self.r_max**2 - self.r_min**2) + self.r_min**2
        nu = torch.log(-0.5 * torch.log(squared))
        gamma = 0.5 * torch.log(1 - torch.exp(-2 * torch.exp(nu)))
        return nu, torch.log(self.max_phase * v), gamma

    def step(self, b_re: Tensor, b_im: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, Named]:
        size, phase, scale = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta), torch.exp(self.gamma)
        lambda_re, lambda_im = size * torch.cos(phase), size * torch.sin(phase)
        new_re = lambda_re * re - lambda_im * im + scale * b_re
        new_im = lambda_re * im + lambda_im * re + scale * b_im
        return new_re, {"re": new_re, "im": new_im}

    def output(self, y: Tensor, state: Named) -> Tensor:
        return side_by_side(state, "re", "im")

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        return self.out(y, x)


def check_ring(r_min: float, r_max: float) -> None:
    check_number("r_min", r_min, least=0)
    check_number("r_max", r_max, least=0)
    if not r_min < r_max <= 1:
        raise ValueError(
            "lambda starts between the circles of radius r_min and r_max, 0 <= r_min < r_max <= 1; "
            f"got r_min={r_min} and r_max={r_max}"
        )


class LRU(Recurrent, cell=LRUCell):
    """The linear recurrent unit (Orvieto et al. 2023)."""
