"""MinLSTM, the minimal long short-term memory: one state, and gates and candidate that read the input only.

Feng, Tung, Ahmed, Bengio and Hajimirsadeghi (2024), section 3.2:

    f_t = sigmoid(W_f x_t + b_f)
    i_t = sigmoid(W_i x_t + b_i)
    c_t = g(W_c x_t + b_c)
    f'_t, i'_t = f_t / (f_t + i_t), i_t / (f_t + i_t)
    h_t = f'_t h_{t-1} + i'_t c_t

with g as in MinGRU: the identity in section 3, and the positive form of appendix B in all published code. As
there, a step is computed as it is written, without logarithms: a state of 0 is allowed.

Differs from the authors' code, whose configurations do not divide the gates by their sum: normalised=False.
Their forget bias starts 3 higher: forget_bias=3. Which further options give which code: see mingru.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent
from linnet.units.mingru import reset_gates_

# exp(CLOSED) is less than the rounding of 1 in float64, and its square is a normal number of float32.
CLOSED = -40


class MinLSTMCell(Cell):
    """One step of MinLSTM: x_t [B, input_size], h [B, hidden_size] -> h.

    activation      g: "positive" (appendix B) or "identity" (section 3)
    normalised      f and i are divided by f + i (the paper); False: they are not (the authors' code)
    forget_bias     added to the start of b_f (the authors' code: 3); needs bias=True
    learned_start   sequences start from g(start_h), a parameter that starts in N(0, 1), instead of zeros
    """

    # As in the authors' selective copying.
    undecayed_parameters = ("input.weight",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "positive",
        normalised: bool = True,
        forget_bias: float = 0.0,
        learned_start: bool = False,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.g = pointwise(activation, ("positive", "identity"))
        check_number("forget_bias", forget_bias)
        if forget_bias and not bias:
            raise ValueError(f"forget_bias={forget_bias} is added to a bias; it needs bias=True")
        self.normalised, self.forget_bias = normalised, forget_bias
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("c", "f", "i"), hidden_size)
        self.input = Projection(input_size, parts, bias, **where, **projection)
        self.start_h = nn.Parameter(torch.empty(hidden_size, **where)) if learned_start else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """That of nn.Linear, as in the authors' code: all in U(-1/sqrt(d), 1/sqrt(d))."""
        reset_gates_(self.input)
        if self.input.bias is not None:
            self.input.bias_of("f").add_(self.forget_bias)
        if self.start_h is not None:
            nn.init.normal_(self.start_h)

    def start(self) -> Named | None:
        return None if self.start_h is None else {"h": self.g(self.start_h)}

    def step(self, c: Tensor, f: Tensor, i: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        f, i = shares(f, i) if self.normalised else (torch.sigmoid(f), torch.sigmoid(i))
        h = f * h + i * self.g(c)
        return h, {"h": h}


def shares(f: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """sigmoid(f) and sigmoid(i), divided by their sum, which could be 0 in float32.

    Where both are below CLOSED, sigmoid is exp, and the same number added to both does not change the shares.
    """
    shift = (torch.maximum(f, i) - CLOSED).clamp(max=0).detach()
    f, i = torch.sigmoid(f - shift), torch.sigmoid(i - shift)
    return f / (f + i), i / (f + i)


class MinLSTM(Recurrent, cell=MinLSTMCell):
    """The minimal long short-term memory (Feng et al. 2024)."""
