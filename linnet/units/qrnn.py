"""QRNN, the quasi-recurrent network: convolutions over time, then a pooling without weights.

Bradbury, Merity, Xiong and Socher (2017), section 2:

    z_t = tanh(W_z [x_{t-1}; x_t])        f_t = sigmoid(W_f [x_{t-1}; x_t])     ... o_t and i_t alike
    f-pooling     h_t = f_t h_{t-1} + (1 - f_t) z_t
    fo-pooling    c_t = f_t c_{t-1} + (1 - f_t) z_t,     h_t = o_t c_t
    ifo-pooling   c_t = f_t c_{t-1} + i_t z_t,           h_t = o_t c_t

A window of 1 leaves x_{t-1} out. With a window of 2, what x_{t-1} adds to each gate is a state of
its own, so that a sequence can be cut anywhere.

Differs from the authors' code, whose f is 1 - f of the paper: negate its rows of W_f and b_f to load
them here. Zoneout keeps c_t at c_{t-1} before the output reads it, as their mask on the gate does.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_rate, choose
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

GATES = {"f": ("z", "f"), "fo": ("z", "f", "o"), "ifo": ("z", "f", "o", "i")}


class QRNNStateF(NamedTuple):
    c: Tensor
    z_before: Tensor
    f_before: Tensor


class QRNNStateFO(NamedTuple):
    c: Tensor
    z_before: Tensor
    f_before: Tensor
    o_before: Tensor


class QRNNStateIFO(NamedTuple):
    c: Tensor
    z_before: Tensor
    f_before: Tensor
    o_before: Tensor
    i_before: Tensor


STATES = {"f": QRNNStateF, "fo": QRNNStateFO, "ifo": QRNNStateIFO}
torch.serialization.add_safe_globals(list(STATES.values()))


class QRNNCell(Cell):
    """One step of QRNN: x_t [B, input_size], c [B, hidden_size] -> h [B, hidden_size], c.

    window    how many inputs a gate reads, 1 or 2 (then the state is a named tuple)
    pooling   "f", "fo" or "ifo"
    zoneout   the probability that a channel of c keeps its value for a step
    highway   h_t = o_t c_t + (1 - o_t) x_t, as the SRU paper compares with ("fo" or "ifo")
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        window: int = 1,
        pooling: str = "fo",
        zoneout: float = 0.0,
        highway: bool = False,
        **projection: Any,
    ):
        choose("window", window, (1, 2))
        choose("pooling", pooling, GATES)
        check_rate("zoneout", zoneout)
        if highway and pooling == "f":
            raise ValueError("highway=True needs an output gate: pooling must be 'fo' or 'ifo'; got 'f'")
        gates = GATES[pooling]
        states = ("c", *(f"{gate}_before" for gate in gates)) if window == 2 else ("c",)
        super().__init__(input_size, hidden_size, dict.fromkeys(states, hidden_size))
        if window == 2:
            self.State = STATES[pooling]  # type: ignore[misc]
        self.zoneout, self.highway = zoneout, highway
        skip = ("skip",) if highway and input_size != hidden_size else ()
        after = tuple(f"{gate}_next" for gate in gates) if window == 2 else ()
        parts = dict.fromkeys((*skip, *after, *gates), hidden_size)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, parts, gates if bias else False, **where, **projection)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """torch's start of a linear layer, weights and biases."""
        clear_(self)
        bound = 1 / math.sqrt(self.input_size)
        for weight in (self.input.weight, self.input.bias):
            if weight is not None:
                nn.init.uniform_(weight, -bound, bound)

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        parts = {}
        if self.highway and "skip" not in self.input.parts:
            parts["skip"] = x
        if self.training and self.zoneout:
            parts["update"] = x.new_empty(*x.shape[:-1], self.hidden_size).bernoulli_(1 - self.zoneout)
        return parts

    def step(
        self,
        c: Tensor,
        z: Tensor,
        f: Tensor,
        o: Tensor | None = None,
        i: Tensor | None = None,
        z_before: Tensor | None = None,
        f_before: Tensor | None = None,
        o_before: Tensor | None = None,
        i_before: Tensor | None = None,
        z_next: Tensor | None = None,
        f_next: Tensor | None = None,
        o_next: Tensor | None = None,
        i_next: Tensor | None = None,
        skip: Tensor | None = None,
        update: Tensor | None = None,
    ) -> tuple[Tensor, Named]:
        z = torch.tanh(z if z_before is None else z + z_before)
        f = torch.sigmoid(f if f_before is None else f + f_before)
        if i is not None:
            i = torch.sigmoid(i if i_before is None else i + i_before)
        pooled = f * c + (1 - f if i is None else i) * z
        c = self.zone(pooled, c, update)
        after = {"z_before": z_next, "f_before": f_next, "o_before": o_next, "i_before": i_next}
        state = {"c": c, **{name: kept for name, kept in after.items() if kept is not None}}
        if o is None:
            return c, state
        o = torch.sigmoid(o if o_before is None else o + o_before)
        h = o * c if skip is None else o * c + (1 - o) * skip
        return h, state

    def zone(self, pooled: Tensor, c: Tensor, update: Tensor | None) -> Tensor:
        """Keep c where a channel is zoned out; outside training, mix by the probability."""
        if not self.zoneout:
            return pooled
        share = 1 - self.zoneout if update is None else update
        return share * pooled + (1 - share) * c


class QRNN(Recurrent, cell=QRNNCell):
    """The quasi-recurrent network (Bradbury et al. 2017)."""
