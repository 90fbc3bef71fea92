"""oLRN: LRN with an output gate, the variant that won on translation.

Zhang and Sennrich (2019), section 6.3, with i_t and f_t as in LRN:

    c_t = i_t v_t + f_t h_{t-1}       (11)
    o_t = sigmoid(x_t W_o - c_t)      (12)
    h_t = o_t c_t                     (13)

Differs from the authors' README, which puts g around c_t; neither the paper nor their code does,
and activation="identity" is the default here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.types import Device

from linnet.program.unit import Named
from linnet.recurrent.recurrent import Recurrent
from linnet.units.lrn import LRNCell


class OLRNCell(LRNCell):
    """One step of oLRN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation   g around (11): "identity" (the paper) or "tanh"
    """

    parts = ("k", "q", "v", "o")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "identity",
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, bias, device, dtype, activation=activation, **projection)

    def step(self, k: Tensor, q: Tensor, v: Tensor, o: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        c, _ = super().step(k, q, v, h)  # (11): LRN's (2), (3) and (4)
        o = torch.sigmoid(o - c)  # (12)
        h = o * c  # (13)
        return h, {"h": h}


class OLRN(Recurrent, cell=OLRNCell):
    """LRN with an output gate (Zhang and Sennrich 2019, section 6.3)."""
