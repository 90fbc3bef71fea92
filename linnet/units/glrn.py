"""gLRN: LRN whose input gate is what the forget gate leaves.

Zhang and Sennrich (2019), section 6.7, an ablation:

    f_t = sigmoid(q_t - h_{t-1})
    i_t = 1 - f_t                        (14)
    h_t = g(i_t v_t + f_t h_{t-1})       (4)

No code of the authors exists for this variant: the paper's equations are the source.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.program.unit import Named
from linnet.recurrent.recurrent import Recurrent
from linnet.units.lrn import LRNCell


class GLRNCell(LRNCell):
    """One step of gLRN: x_t [B, input_size], h [B, hidden_size] -> h."""

    parts = ("q", "v")

    def step(self, q: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        f = torch.sigmoid(q - h)
        i = 1 - f  # (14)
        h = self.g(i * v + f * h)  # (4)
        return h, {"h": h}


class GLRN(Recurrent, cell=GLRNCell):
    """LRN with one gate for both (Zhang and Sennrich 2019, section 6.7)."""
