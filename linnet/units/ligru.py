"""LiGRU, the light GRU: one gate, a ReLU, and batch norm of what the input contributes.

Ravanelli, Brakel, Omologo and Bengio (2018), for speech recognition, as in speechbrain:

    [a_t, z_t] = norm(W x_t) + U h_{t-1}
    h_t = z_t h_{t-1} + (1 - z_t) ReLU(a_t),    z_t through a sigmoid

norm is batch norm over all frames of the batch, whose bias is the only one. stable=True is SLi-GRU (Moumen
and Parcollet 2023), which has a layer norm without weights of U h, too, so that h cannot explode.

Differs from speechbrain, where padded steps are frames of zeros in the statistics (frames="all"), and where
both directions of a layer share W, U and norm: here each has its own. speechbrain has no form without a norm;
here it is normalization=None, with a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, choose
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.frame_norm import FrameNorm
from linnet.recurrent.init import clear_, orthogonal_
from linnet.recurrent.masks import keep_mask, over_time
from linnet.recurrent.projection import Projection, norm_layer
from linnet.recurrent.recurrent import Recurrent

# Those of the source.
MOMENTUM, EPS = 0.05, 1e-5
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "tanh": torch.tanh,
    "sin": torch.sin,
}


class LiGRUCell(Cell):
    """One step of LiGRU: x_t [B, input_size], h [B, hidden_size] -> h.

    normalization   of W x: "batch", "layer", "rms" or None (with a bias instead)
    frames          which steps batch norm counts: "real", or "all" with padding as zeros
    stable          a layer norm of U h, without weights (SLi-GRU)
    activation      of a: "relu", "leaky_relu", "tanh" or "sin"
    cell_dropout    one mask over time on the activation of a
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
        normalization: str | None = "batch",
        frames: str = "real",
        stable: bool = False,
        activation: str = "relu",
        cell_dropout: float = 0.0,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        choose("normalization", normalization, ("batch", "layer", "rms", None))
        choose("frames", frames, ("real", "all"))
        choose("activation", activation, ACTIVATIONS)
        check_rate("cell_dropout", cell_dropout)
        self.normalization, self.frames, self.stable = normalization, frames, stable
        self.activation, self.cell_dropout = activation, cell_dropout
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        # `norm`, which every unit takes, is in the place of this one.
        normalization = None if projection.get("norm") is not None else normalization
        parts, biased = {"a": hidden_size, "z": hidden_size}, bias and normalization is None
        self.input = Projection(input_size, parts, biased, **where, **projection)
        if normalization == "batch":
            self.input.norm = FrameNorm(2 * hidden_size, EPS, MOMENTUM, frames, **where)
        elif normalization is not None:
            self.input.norm = norm_layer("normalization", normalization, 2 * hidden_size, EPS, **where)
        self.recurrent = Projection(hidden_size, {"a_h": hidden_size, "z_h": hidden_size}, **where)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """W as torch's Linear, U orthogonal."""
        clear_(self)
        bound = self.input.weight.shape[1] ** -0.5
        nn.init.uniform_(self.input.weight, -bound, bound)
        orthogonal_(self.recurrent.weight)

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        if not (self.training and self.cell_dropout):
            return {}
        mask = keep_mask(over_time(x, self.hidden_size), self.cell_dropout, like=x)
        return {"m": mask.expand(*x.shape[:-1], -1)}

    def step(
        self, a: Tensor, z: Tensor, a_h: Tensor, z_h: Tensor, h: Tensor, m: Tensor | None = None
    ) -> tuple[Tensor, Named]:
        if self.stable:
            of_h = torch.cat([a_h, z_h], -1)
            a_h, z_h = F.layer_norm(of_h, of_h.shape[-1:]).chunk(2, -1)
        z, a = torch.sigmoid(z + z_h), ACTIVATIONS[self.activation](a + a_h)
        h = z * h + (1 - z) * (a if m is None else m * a)
        return h, {"h": h}


class LiGRU(Recurrent, cell=LiGRUCell):
    """The light GRU (Ravanelli et al. 2018)."""
