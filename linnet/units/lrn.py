"""LRN, the lightweight recurrent network: two gates and no recurrent matrix.

Zhang and Sennrich (2019), section 3:

    k_t, q_t, v_t = x_t W_k, x_t W_q, x_t W_v    (1)  project: all time steps at once
    i_t = sigmoid(k_t + h_{t-1})                 (2)  step: what to write
    f_t = sigmoid(q_t - h_{t-1})                 (3)  step: what to keep
    h_t = g(i_t v_t + f_t h_{t-1})               (4)  step: g is tanh or the identity

The same h opens one gate as it closes the other, so it needs no weights of its own and the loop
over time is elementwise: every channel of every sequence can run on its own.

Differs from the paper: the projection has a bias, as in the authors' code (their translation model
has none: bias=False). "Layer norm" in their classifiers is the norm by root mean square over all
gates jointly (norm="rms"); in their translation model it is standard layer norm (norm="layer").
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
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class LRNCell(Cell):
    """One step of LRN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g in (4): "tanh" (the default, stable) or "identity"
    """

    parts: tuple[str, ...] = ("k", "q", "v")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "tanh",
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, states={"h": hidden_size})
        self.g = pointwise(activation)
        sizes = dict.fromkeys(self.parts, hidden_size)
        self.input = Projection(input_size, sizes, bias, device=device, dtype=dtype, **projection)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform over the matrix of all gates, biases 0."""
        clear_(self)
        xavier_uniform_(self.input)

    def step(self, k: Tensor, q: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        i = torch.sigmoid(k + h)  # (2)
        f = torch.sigmoid(q - h)  # (3)
        h = self.g(i * v + f * h)  # (4)
        return h, {"h": h}


class LRN(Recurrent, cell=LRNCell):
    """The lightweight recurrent network (Zhang and Sennrich 2019)."""
