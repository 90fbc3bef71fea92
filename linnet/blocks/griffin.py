"""The recurrent block of Griffin and Hawk (De et al. 2024, section 2.3).

    c = causal convolution of W_x x + b_x      over the last 4 steps, each channel for itself
    y = W_out (RG-LRU(c) gelu(W_y x + b_y)) + b_out

Neither the convolution nor RG-LRU reads across a reset. gelu is its approximation by tanh, as in the
authors' code (recurrentgemma).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.calls import like
from linnet.base.options import check_size
from linnet.blocks.checks import check_call, check_state
from linnet.layers.convolution import CausalConvolution
from linnet.units import RGLRU

# The variance of the filters at the start, times their width.
FILTER_VARIANCE = 0.01


class GriffinState(NamedTuple):
    """window [conv - 1, B, lru_width]: the last inputs of the convolution; h, started [B, lru_width]."""

    window: Tensor
    h: Tensor
    started: Tensor


torch.serialization.add_safe_globals([GriffinState])


class GriffinBlock(nn.Module):
    """x [T, B, width], state -> y [T, B, width], state.

    lru_width   the channels of RG-LRU and of the convolution; by default `width`
    heads       cut the gates of RG-LRU into this many heads; it must divide lru_width
    conv        steps that the convolution reads
    """

    def __init__(
        self,
        width: int,
        lru_width: int | None = None,
        heads: int = 1,
        conv: int = 4,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("width", width)
        lru_width = width if lru_width is None else lru_width
        check_size("lru_width", lru_width)
        check_size("conv", conv)
        self.width, self.lru_width = width, lru_width
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.linear_x = nn.Linear(width, lru_width, **where)
        self.linear_y = nn.Linear(width, lru_width, **where)
        self.linear_out = nn.Linear(lru_width, width, **where)
        self.convolution = CausalConvolution(lru_width, conv, **where)
        self.rnn = RGLRU(lru_width, lru_width, heads=heads, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Matrices of variance 1 / inputs, biases 0, as in the authors' code."""
        for linear in (self.linear_x, self.linear_y, self.linear_out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        nn.init.normal_(self.convolution.weight, std=(FILTER_VARIANCE / self.convolution.width) ** 0.5)
        nn.init.zeros_(self.convolution.bias)
        self.rnn.reset_parameters()

    def forward(
        self, x: Tensor, state: GriffinState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, GriffinState]:
        """state: as returned (default: zeros). resets [T, B]: True where a new sequence starts."""
        check_call(self, x, self.width, resets)
        state = self.initial_state(x) if state is None else self.checked_state(state, x)
        c, window = self.convolution(self.linear_x(x), state.window, resets)
        h, final = self.rnn(c, (state.h[None], state.started[None]), resets=resets)
        y = self.linear_out(h * F.gelu(self.linear_y(x), approximate="tanh"))
        return y, GriffinState(window, final.h[0], final.started[0])

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

    def initial_state(self, x: Tensor) -> GriffinState:
        zeros = x.new_zeros(x.shape[1], self.lru_width)
        return GriffinState(zeros.new_zeros(self.convolution.width - 1, *zeros.shape), zeros, zeros)

    def checked_state(self, state: Any, x: Tensor) -> GriffinState:
        return GriffinState(*check_state(self, state, self.initial_state(x)))

    def extra_repr(self) -> str:
        return f"{self.width}, {self.lru_width}"
