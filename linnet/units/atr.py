"""ATR, the addition-subtraction twin-gated recurrent network, from which LRN was derived.

Zhang, Xiong, Su, Lin and Zhang (2018), as the LRN authors use it for comparison:

    p_t = x_t W + b
    q_t = h_{t-1} U + b'
    i_t = sigmoid(p_t + q_t)
    f_t = sigmoid(p_t - q_t)
    h_t = g(i_t p_t + f_t h_{t-1})

Differs between the LRN authors' own models: g is tanh in their language model and the identity in
their tagger, as in the paper of ATR. tanh is the default here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, xavier_uniform_
from linnet.recurrent.projection import Projection, norm_of_state
from linnet.recurrent.recurrent import Recurrent


class ATRCell(Cell):
    """One step of ATR: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g: "tanh" or "identity"
    norm_on      "input": `norm` is over the projected input; "all": over the product with h too (the LRN
                 authors)
    heads        cut h and q into this many heads: U is block-diagonal
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
        activation: str = "tanh",
        norm_on: str = "input",
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.g = pointwise(activation)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        norm = norm_of_state(norm_on, projection.get("norm"))
        self.input = Projection(input_size, {"p": hidden_size}, bias, **where, **projection)
        self.recurrent = Projection(
            hidden_size, {"q": hidden_size}, bias, norm=norm, input_heads=heads, **where
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, biases 0."""
        clear_(self)
        xavier_uniform_(self.input)
        xavier_uniform_(self.recurrent)

    def step(self, p: Tensor, q: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        i = torch.sigmoid(p + q)
        f = torch.sigmoid(p - q)
        h = self.g(i * p + f * h)
        return h, {"h": h}


class ATR(Recurrent, cell=ATRCell):
    """The twin-gated recurrent network (Zhang et al. 2018)."""
