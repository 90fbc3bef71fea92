"""The sLSTM layer of xLSTM (Beck et al. 2024, figure 9): a convolution, the unit, and a norm of its heads.

    x' = SiLU(causal convolution of x)                 over the last 4 steps, each channel for itself
    i~, f~ = W_i x', W_f x';  z~, o~ = W_z x, W_o x    block-diagonal matrices
    y = group norm of sLSTM(i~, f~, z~, o~)            each head for itself, scaled by 1 + w

The biases are those of sLSTM. In the authors' code (xlstm) two names are swapped: `fgate` is the matrix of
the input gate, and `igate` that of the forget gate; linnet.load_foreign(block, ..., "xlstm") knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.calls import like
from linnet.base.options import check_size
from linnet.blocks.checks import check_call, check_state
from linnet.layers.convolution import CausalConvolution
from linnet.program import blocks
from linnet.program.unit import CannotFuse, Operation
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent
from linnet.units.slstm import HeadNorm, SLSTMCell


class OfBoth(Projection):
    """[x', x] side by side -> the gates: the first half of the parts reads x', the other x."""

    def __init__(
        self, input_size: int, parts: Mapping[str, int], biased: Sequence[str] | bool, **options: Any
    ):
        super().__init__(input_size // 2, parts, biased, **options)

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        halves = zip(x.chunk(2, -1), self.weight.chunk(2), strict=True)
        count = len(self.parts) // 2
        made = torch.cat([blocks.linear(read, rows, None, self.heads, count) for read, rows in halves], -1)
        return made if bias is None else made + bias

    @property
    def is_plain(self) -> bool:
        return False

    def operations(self) -> list[Operation]:
        raise CannotFuse("its input projection reads two tensors")


class SLSTMOfBothCell(SLSTMCell):
    """sLSTM of [x', x] side by side."""

    input_class = OfBoth


class SLSTMOfBoth(Recurrent, cell=SLSTMOfBothCell):
    """The unit within an SLSTMBlock."""


class SLSTMBlockState(NamedTuple):
    """window [conv - 1, B, size]: the last inputs of the convolution; h, c, n, m [B, size]."""

    window: Tensor
    h: Tensor
    c: Tensor
    n: Tensor
    m: Tensor


torch.serialization.add_safe_globals([SLSTMBlockState])


class SLSTMBlock(nn.Module):
    """x [T, B, size], state -> y [T, B, size], state.

    heads   cut x, h and each gate into this many heads; it must divide `size`
    conv    steps that the convolution reads; 0: no convolution, x' = x

    forget_bias, depth, recurrent_init   as in SLSTM; depth is where the block is in a model, from 0 to 1
    """

    def __init__(
        self,
        size: int,
        heads: int = 4,
        conv: int = 4,
        *,
        forget_bias: str = "powerlaw",
        depth: float = 0.0,
        recurrent_init: str = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_size("size", size)
        check_size("conv", conv, least=0)
        self.size = size
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.convolution = CausalConvolution(size, conv, **where) if conv else None
        starts: dict[str, Any] = {
            "forget_bias": forget_bias,
            "depth": depth,
            "recurrent_init": recurrent_init,
        }
        self.rnn = SLSTMOfBoth(2 * size, size, heads=heads, input_heads=heads, **where, **starts)
        self.norm = HeadNorm(size, heads, **where)

    def reset_parameters(self) -> None:
        if self.convolution is not None:
            self.convolution.reset_parameters()
        self.rnn.reset_parameters()
        self.norm.reset_parameters()

    def forward(
        self, x: Tensor, state: SLSTMBlockState | None = None, resets: Tensor | None = None
    ) -> tuple[Tensor, SLSTMBlockState]:
        """state: as returned (default: zeros). resets [T, B]: True where a new sequence starts."""
        check_call(self, x, self.size, resets)
        state = self.initial_state(x) if state is None else self.checked_state(state, x)
        convolved, window = x, state.window
        if self.convolution is not None:
            made, window = self.convolution(x, state.window, resets)
            convolved = F.silu(made)
        states = tuple(s[None] for s in state[1:])
        h, final = self.rnn(torch.cat([convolved, x], -1), states, resets=resets)
        return self.norm(h), SLSTMBlockState(window, *(s[0] for s in final))

    if TYPE_CHECKING:

        @like(forward)
        def __call__(self, *inputs: Any, **named: Any) -> Any: ...

    def initial_state(self, x: Tensor) -> SLSTMBlockState:
        zeros = torch.zeros_like(x[0])
        before = 0 if self.convolution is None else self.convolution.width - 1
        return SLSTMBlockState(zeros.new_zeros(before, *zeros.shape), zeros, zeros, zeros, zeros)

    def checked_state(self, state: Any, x: Tensor) -> SLSTMBlockState:
        return SLSTMBlockState(*check_state(self, state, self.initial_state(x)))

    def extra_repr(self) -> str:
        return f"{self.size}"
