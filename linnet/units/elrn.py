"""eLRN: the extreme LRN, whose only gate reads nothing but the state.

Zhang and Sennrich (2019), section 6.7, an ablation:

    f_t = sigmoid(-h_{t-1})
    i_t = 1 - f_t                        (15)
    h_t = g(i_t v_t + f_t h_{t-1})       (4)

No code of the authors exists for this variant: the paper's equations are the source.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.program.unit import Named
from linnet.recurrent.recurrent import Recurrent
from linnet.units.lrn import LRNCell


class ELRNCell(LRNCell):
    """One step of eLRN: x_t [B, input_size], h [B, hidden_size] -> h."""

    parts = ("v",)

    def step(self, v: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        f = torch.sigmoid(-h)
        i = 1 - f  # (15)
        h = self.g(i * v + f * h)  # (4)
        return h, {"h": h}


class ELRN(Recurrent, cell=ELRNCell):
    """LRN with a gate of the state alone (Zhang and Sennrich 2019, section 6.7)."""
