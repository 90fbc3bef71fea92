"""What units with complex states share: a state as a pair of real ones, and how an output is made of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.program.unit import Named
from linnet.recurrent.projection import Projection


class ComplexState(NamedTuple):
    re: Tensor
    im: Tensor


class PairReadout(nn.Module):
    """Re(C h) + D x, for [Re h, Im h] side by side.

    C is held as one real matrix: its real part, and its imaginary part with the other sign. D has one number
    for each channel, or is a matrix if x and the output differ in size.
    """

    def __init__(self, input_size: int, hidden_size: int, output_size: int, feedthrough: bool, **where: Any):
        super().__init__()
        self.c = Projection(2 * hidden_size, {"y": output_size}, **where)
        self.d: nn.Parameter | None = None
        self.skip: Projection | None = None
        if feedthrough and input_size == output_size:
            self.d = nn.Parameter(torch.empty(output_size, **where))
        elif feedthrough:
            self.skip = Projection(input_size, {"y": output_size}, **where)

    def reset_skip(self) -> None:
        """D from N(0, 1); a matrix keeps the variance of x."""
        if self.d is not None:
            nn.init.normal_(self.d)
        if self.skip is not None:
            nn.init.normal_(self.skip.weight, std=self.skip.weight.shape[1] ** -0.5)

    def forward(self, pair: Tensor, x: Tensor) -> Tensor:
        y = self.c(pair)["y"]
        if self.d is not None:
            return y + self.d * x
        return y if self.skip is None else y + self.skip(x)["y"]


def side_by_side(state: Named, re: str, im: str) -> Tensor:
    return torch.cat([state[re], state[im]], -1)
