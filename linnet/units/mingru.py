"""MinGRU, the minimal gated recurrent unit: a GRU whose gate and candidate read the input only.

Feng, Tung, Ahmed, Bengio and Hajimirsadeghi (2024), section 3.1:

    z_t = sigmoid(W_z x_t + b_z)
    c_t = g(W_c x_t + b_c)
    h_t = (1 - z_t) h_{t-1} + z_t c_t

with g the identity in section 3, and in appendix B, which all published code follows,

    g(c) = c + 0.5 if c >= 0 else sigmoid(c)

which keeps h positive, so that a parallel scan can work with logarithms. Here a step is computed as it is
written, in one loop over time. It needs no logarithm: a state of exactly 0 is allowed, and float32 loses
nothing over long sequences, where the cumulative sums of logarithms do.

PufferLib's form has a third product and a highway (highway=True):

    p_t = sigmoid(W_p x_t + b_p)
    y_t = p_t h_t + (1 - p_t) x_t

Differs from the code in logarithms at c = 0 exactly (an input of zeros, without a bias): the slope of g is 1
there, that of its c + 0.5; log(relu(c) + 0.5) has the slope 0.

Which options give which code: the authors' modules are learned_start=True, proj_size=input_size; lucidrains'
minGRU-pytorch is bias=False (and proj_size with an expansion); PufferLib's is bias=False, highway=True.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, uniform_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class MinGRUCell(Cell):
    """One step of MinGRU: x_t [B, input_size], h [B, hidden_size] -> h (with highway: y), h.

    activation      g: "positive" (appendix B) or "identity" (section 3)
    highway         y = p h + (1 - p) x with a third product p; needs input_size == hidden_size
    learned_start   sequences start from g(start_h), a parameter that starts in N(0, 1), instead of zeros
    skip_from       where in x the highway starts; set by the stack for bidirectional layers
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
        highway: bool = False,
        learned_start: bool = False,
        skip_from: int | None = None,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.g = pointwise(activation, ("positive", "identity"))
        self.skip_from = checked_skip(input_size, hidden_size, skip_from) if highway else None
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("c", "z", "p") if highway else ("c", "z"), hidden_size)
        self.input = Projection(input_size, parts, bias, **where, **projection)
        self.start_h = nn.Parameter(torch.empty(hidden_size, **where)) if learned_start else None
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        """Each of two directions takes the highway with half of x, if x is as wide as both together."""
        if position["input_size"] != position["num_directions"] * position["hidden_size"]:
            return options
        return {"skip_from": position["direction"] * position["hidden_size"], **options}

    def reset_parameters(self) -> None:
        """That of nn.Linear, as in the authors' code: all in U(-1/sqrt(d), 1/sqrt(d))."""
        reset_gates_(self.input)
        if self.start_h is not None:
            nn.init.normal_(self.start_h)

    def start(self) -> Named | None:
        return None if self.start_h is None else {"h": self.g(self.start_h)}

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        if self.skip_from is None:
            return {}
        return {"skip": x[..., self.skip_from : self.skip_from + self.hidden_size]}

    def step(
        self, c: Tensor, z: Tensor, h: Tensor, p: Tensor | None = None, skip: Tensor | None = None
    ) -> tuple[Tensor, Named]:
        z = torch.sigmoid(z)
        h = (1 - z) * h + z * self.g(c)
        if p is None or skip is None:
            return h, {"h": h}
        p = torch.sigmoid(p)
        return p * h + (1 - p) * skip, {"h": h}


def checked_skip(input_size: int, hidden_size: int, skip_from: int | None) -> int:
    """Return the first channel of x that the highway reads."""
    if skip_from is None and input_size != hidden_size:
        raise ValueError(
            f"highway=True adds x to h, so it needs input_size == hidden_size; got {input_size} and "
            f"{hidden_size}. Project x to {hidden_size} channels before it, or set highway=False"
        )
    if skip_from is not None and not 0 <= skip_from <= input_size - hidden_size:
        raise ValueError(
            f"skip_from={skip_from} leaves no {hidden_size} channels of the {input_size} of x for the highway"
        )
    return skip_from or 0


def reset_gates_(projection: Projection) -> None:
    """Weights and biases as those of nn.Linear, and norms at their start."""
    uniform_(projection, projection.weight.shape[1] ** -0.5)
    clear_(projection.norm)
    clear_(projection.prenorm)


class MinGRU(Recurrent, cell=MinGRUCell):
    """The minimal gated recurrent unit (Feng et al. 2024)."""
