"""sLSTM, the scalar LSTM of xLSTM: an exponential input gate, a normaliser and a stabiliser.

Beck, Pöppel, Spanring et al. (2024), section 2.2:

    i~, f~, z~, o~ = W x_t + R h_{t-1} + b                        (1)  R block-diagonal: `heads` blocks
    m_t = max(i~, log sigmoid(f~) + m_{t-1})                      (2)  i~ alone where n_{t-1} = 0
    i_t = exp(i~ - m_t)                                           (3)
    f_t = exp(log sigmoid(f~) + m_{t-1} - m_t)                    (4)
    c_t = f_t c_{t-1} + i_t tanh(z~)                              (5)
    n_t = f_t n_{t-1} + i_t                                       (6)
    h_t = sigmoid(o~) c_t / n_t                                   (7)

The input gate is exp(i~). The stabiliser m keeps the exponents at or below 0; it cancels in c / n. n is 0
only before the first step of a sequence, since one of i_t and f_t is always 1.

Differs from the authors' code (xlstm), which asks whether n is 0 in the whole batch: (2) asks for each
element, so that a sequence that starts beside others runs as it does alone, where theirs may become NaN.
Differs from the paper, as their code does: the paper also allows the forget gate exp(f~). Their layer has 4
heads by default; here it is 1, which divides any size. With one channel in each head, their biases are NaN;
here the only channel is the first.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_share, choose
from linnet.program import blocks
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

GATES = ("i", "f", "z", "o")
GROUP_NORM_EPS = 1e-5


class SLSTMState(NamedTuple):
    h: Tensor
    c: Tensor
    n: Tensor
    m: Tensor


class SLSTMCell(Cell):
    """One step of sLSTM: x_t [B, input_size], (h, c, n, m) -> h, (h, c, n, m).

    heads            cut h and each gate into this many heads: R is block-diagonal
    forget_bias      how the forget gate starts, the channels j of each head from 0 to 1:
                     "powerlaw": 5 - 12 j^(0.3 + 1.3 depth), "small": 3 + 3 j
    depth            where the layer is, from 0 (the first) to 1 (the last); set by the stack
    recurrent_init   "zeros" or "uniform": R starts at 0 or in U(-1/sqrt(hidden_size), 1/sqrt(hidden_size))
    group_norm       normalise the output, each head for itself; the state h stays as it is
    """

    State = SLSTMState
    recurrence = {"recurrent": "h"}
    # The class of the products with x, which a subclass can change.
    input_class: ClassVar[type[Projection]] = Projection

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        heads: int = 1,
        forget_bias: str = "powerlaw",
        depth: float = 0.0,
        recurrent_init: str = "zeros",
        group_norm: bool = False,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, dict.fromkeys(SLSTMState._fields, hidden_size))
        choose("forget_bias", forget_bias, FORGET_BIASES)
        choose("recurrent_init", recurrent_init, ("zeros", "uniform"))
        check_share("depth", depth)
        self.forget_bias, self.depth, self.recurrent_init = forget_bias, depth, recurrent_init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(GATES, hidden_size)
        self.input = self.input_class(input_size, parts, bias, **where, **projection)
        products = {f"{gate}_h": hidden_size for gate in GATES}
        self.recurrent = Projection(hidden_size, products, input_heads=heads, **where)
        self.norm = HeadNorm(hidden_size, heads, **where) if group_norm else None
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        return {"depth": position["layer"] / max(position["num_layers"] - 1, 1), **options}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The input's matrix of variance 2 / (5 inputs), as in a small Transformer; biases 0 but for f."""
        clear_(self)
        nn.init.normal_(self.input.weight, std=(2 / (5 * self.input.weight.shape[1])) ** 0.5)
        bound = 0.0 if self.recurrent_init == "zeros" else self.hidden_size**-0.5
        nn.init.uniform_(self.recurrent.weight, -bound, bound)
        if self.input.bias is not None:
            within = torch.linspace(0, 1, self.hidden_size // self.recurrent.heads, dtype=torch.float64)
            start = FORGET_BIASES[self.forget_bias](within, self.depth)
            self.input.bias_of("f").copy_(start.repeat(self.recurrent.heads))
        if self.norm is not None:
            self.norm.reset_parameters()

    def step(
        self,
        i: Tensor,
        f: Tensor,
        z: Tensor,
        o: Tensor,
        i_h: Tensor,
        f_h: Tensor,
        z_h: Tensor,
        o_h: Tensor,
        c: Tensor,
        n: Tensor,
        m: Tensor,
    ) -> tuple[Tensor, Named]:
        i, f, z, o = i + i_h, f + f_h, z + z_h, o + o_h  # (1)
        kept = F.logsigmoid(f) + m
        m = torch.where(n == 0, i, torch.maximum(i, kept))  # (2)
        i = torch.exp(i - m)  # (3)
        # Above 0 only where n is 0, and then it is of no consequence unless it overflows.
        f = torch.exp(torch.clamp(kept - m, max=0))  # (4)
        c = f * c + i * torch.tanh(z)  # (5)
        n = f * n + i  # (6)
        h = torch.sigmoid(o) * c / n  # (7)
        return h, {"h": h, "c": c, "n": n, "m": m}

    @property
    def reads_out(self) -> bool:
        return self.norm is not None

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        return y if self.norm is None else self.norm(y)


def powerlaw(within: Tensor, depth: float) -> Tensor:
    return 5 - 12 * within ** (0.3 + 1.3 * depth)


def small(within: Tensor, depth: float) -> Tensor:
    return 3 + 3 * within


FORGET_BIASES = {"powerlaw": powerlaw, "small": small}


class HeadNorm(nn.Module):
    """Layer norm of each head for itself, without a shift; the scale is 1 + weight, which starts at 1."""

    def __init__(self, size: int, heads: int, device: Device = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        by_head = blocks.by_head(x, self.heads)
        centred = by_head - by_head.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + GROUP_NORM_EPS)
        return (centred * scale).flatten(-2) * (1 + self.weight)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, heads={self.heads}"


class SLSTM(Recurrent, cell=SLSTMCell):
    """The scalar LSTM of xLSTM (Beck et al. 2024)."""
