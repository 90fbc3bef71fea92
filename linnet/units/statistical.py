"""The statistical recurrent unit: moving averages at several scales, and no gate.

Oliva, Póczos and Schneider (2017), as the NRU authors use it for comparison (they call it SRU):

    r_t   = ReLU(mu_{t-1} W_r + b_r)                     a summary of the statistics
    phi_t = ReLU(x_t W_x + r_t W_p + b_p)                the statistics of this step
    mu_t^a = a mu_{t-1}^a + (1 - a) phi_t                for each scale a
    h_t   = ReLU(mu_t W_o + b_o)                         the output
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class StatisticalRUCell(Cell):
    """One step: x_t [B, input_size], mu [B, len(scales) * statistics_size] -> h [B, hidden_size], mu.

    statistics_size   the size of phi; by default hidden_size
    summary_size      the size of r; by default 0.3 hidden_size (both ratios are those of Oliva et al.)
    scales            how much of each average is kept at a step
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        statistics_size: int | None = None,
        summary_size: int | None = None,
        scales: Sequence[float] = (0.0, 0.5, 0.9, 0.99, 0.999),
        **projection: Any,
    ):
        check_size("hidden_size", hidden_size)
        statistics = hidden_size if statistics_size is None else statistics_size
        summary = max(1, round(0.3 * hidden_size)) if summary_size is None else summary_size
        check_size("statistics_size", statistics)
        check_size("summary_size", summary)
        check_scales(scales)
        super().__init__(input_size, hidden_size, {"mu": len(scales) * statistics})
        self.statistics_size, self.summary_size, self.scales = statistics, summary, tuple(scales)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"phi": statistics}, bias, **where, **projection)
        self.summary = Projection(len(scales) * statistics, {"r": summary}, bias, **where)
        self.recurrent = Projection(summary, {"phi_r": statistics}, **where)
        self.readout = Projection(len(scales) * statistics, {"h": hidden_size}, bias, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform with the gain of ReLU, x and r counted together, biases 0."""
        clear_(self)
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_uniform_(self.summary.weight, gain)
        nn.init.xavier_uniform_(self.readout.weight, gain)
        bound = gain * (6 / (self.input_size + self.summary_size + self.statistics_size)) ** 0.5
        nn.init.uniform_(self.input.weight, -bound, bound)
        nn.init.uniform_(self.recurrent.weight, -bound, bound)

    def recur(self, mu: Tensor) -> Named:
        return {"r": torch.relu(self.summary(mu)["r"])}

    def step(self, phi: Tensor, r: Tensor, mu: Tensor) -> tuple[Tensor, Named]:
        phi = torch.relu(phi + self.recurrent(r)["phi_r"])
        means = mu.unflatten(-1, (len(self.scales), -1))
        a = mu.new_tensor(self.scales)[:, None]
        mu = (a * means + (1 - a) * phi[..., None, :]).flatten(-2)
        h = torch.relu(self.readout(mu)["h"])
        return h, {"mu": mu}


def check_scales(scales: Sequence[float]) -> None:
    expected = f"scales must be a tuple of one or more numbers in [0, 1); got {scales!r}"
    numbers = isinstance(scales, (tuple, list)) and all(isinstance(scale, (int, float)) for scale in scales)
    if not numbers:
        raise TypeError(expected)
    if not scales or not all(0 <= scale < 1 for scale in scales):
        raise ValueError(expected)


class StatisticalRU(Recurrent, cell=StatisticalRUCell):
    """The statistical recurrent unit (Oliva et al. 2017)."""
