"""SCRN, the structurally constrained recurrent network: a slow context and a quick hidden state.

Kabdolov, Assylbekov and Takhanov (2018), after Mikolov et al. (2015):

    s_t = (1 - alpha) x_t B + alpha s_{t-1}               (1)
    h_t = sigmoid(x_t A + s_t P + h_{t-1} R + b)          (2)
    y_t = [s_t; h_t]                                      (7)

The context s is a running mean of the projected input: it remembers for about 1 / (1 - alpha)
steps and needs no gate. h alone has a bias, as in the authors' code.

Differs from the Lua code of Mikolov et al., in which h_t reads the previous s_{t-1} (in spite of its
comment) and nothing has a bias: hidden_reads="previous", bias=False.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_number, check_share, check_size, choose
from linnet.program.padding import only_selects
from linnet.program.unit import Named, Stage
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, uniform_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class SCRNState(NamedTuple):
    s: Tensor
    h: Tensor


class SCRNCell(Cell):
    """One step of SCRN: x_t [B, input_size], (s, h) -> [s; h], (s, h).

    context_size        the size of s; by default a sixth of hidden_size, the ratio the paper found good
    alpha               how much of s is kept at each step (the paper: 0.9 stacked, 0.95 for one layer)
    context_in_output   False: the output is h alone; in a stack this is said of the last layer (Table 5)
    hidden_reads        the "new" s_t (the paper) or the "previous" s_{t-1} (the original Lua code)
    init_scale          all parameters start in U(-init_scale, init_scale)
    heads               cut h into this many heads: R is block-diagonal
    """

    State = SCRNState
    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        context_size: int | None = None,
        alpha: float = 0.9,
        context_in_output: bool = True,
        hidden_reads: str = "new",
        init_scale: float = 0.3,
        heads: int = 1,
        **projection: Any,
    ):
        check_size("hidden_size", hidden_size)
        context_size = max(1, round(hidden_size / 6)) if context_size is None else context_size
        check_size("context_size", context_size)
        choose("hidden_reads", hidden_reads, ("new", "previous"))
        check_share("alpha", alpha)
        check_number("init_scale", init_scale, least=0)
        output_size = hidden_size + context_size if context_in_output else hidden_size
        super().__init__(input_size, hidden_size, {"s": context_size, "h": hidden_size}, output_size)
        self.alpha, self.hidden_reads = alpha, hidden_reads
        if hidden_reads == "previous":
            self.recurrence = {"recurrent": "h", "context": "s"}
        self.context_size, self.context_in_output = context_size, context_in_output
        self.init_scale = init_scale
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = {"b": context_size, "a": hidden_size}
        self.input = Projection(input_size, parts, ("a",) if bias else False, **where, **projection)
        self.context = Projection(context_size, {"sP": hidden_size}, **where)
        self.recurrent = Projection(hidden_size, {"hR": hidden_size}, input_heads=heads, **where)
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        last = position["layer"] == position["num_layers"] - 1
        return options if last else {**options, "context_in_output": True}

    def reset_parameters(self) -> None:
        uniform_(self, self.init_scale)
        norms = [self.input.norm, self.input.prenorm]
        for norm in norms:
            clear_(norm)

    def stages(self) -> tuple[Stage, ...]:
        """s does not depend on h: it is computed for the whole sequence first, and s P is one product."""
        reads_new_state = {"context": "s"} if self.hidden_reads == "new" else {}
        return (
            Stage("context_step", ("s",)),
            Stage("hidden_step", ("h",), self.recurrence, reads_new_state),
        )

    def context_step(self, b: Tensor, s: Tensor) -> tuple[Tensor, Named]:
        s = (1 - self.alpha) * b + self.alpha * s  # (1)
        return s, {"s": s}

    def hidden_step(self, a: Tensor, sP: Tensor, hR: Tensor) -> tuple[Tensor, Named]:
        h = torch.sigmoid(a + sP + hR)  # (2)
        return h, {"h": h}

    @only_selects
    def output(self, y: Tensor, state: Named) -> Tensor:
        return torch.cat([state["s"], state["h"]], -1) if self.context_in_output else state["h"]  # (7)


class SCRN(Recurrent, cell=SCRNCell):
    """The structurally constrained recurrent network (Mikolov et al. 2015, Kabdolov et al. 2018)."""
