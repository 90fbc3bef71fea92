"""CfC, the closed-form continuous-time unit: a solution of a liquid time-constant network without a solver.

Hasani, Lechner, Amini et al. (2022), equation (10), as in the authors' package ncps:

    v_t = backbone([x_t, h_{t-1}])                     layers of Linear and 1.7159 tanh(0.666 a)
    g_t = sigmoid(T_a v_t ts_t + T_b v_t)              ts: the time since the step before
    h_t = (1 - g_t) tanh(A_1 v_t) + g_t tanh(A_2 v_t)

mode="no_gate" is h = tanh(A_1 v) + g tanh(A_2 v), and mode="pure" the solution itself:

    h_t = a - a exp(-ts_t (|w_tau| + |A_1 v_t|)) (A_1 v_t)

With mixed_memory=True, an LSTM step, whose forget gate has one added, replaces h before the step above: its
state is (h, c). `timespans=` of a call gives ts, [T, B]; without it, ts = 1.

Differs from ncps, whose layer multiplies the times along the wrong axis if the batch is as large as the
hidden size, and whose "pure" form overwrites the starts w_tau = 0, a = 1 by random numbers: here they start
as its constructor says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, orthogonal_, xavier_uniform_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.timespans import WithoutTime, times_of

MODES = {"default": ("a1", "a2", "ta", "tb"), "no_gate": ("a1", "a2", "ta", "tb"), "pure": ("a1",)}


def lecun_tanh(a: Tensor) -> Tensor:
    return 1.7159 * torch.tanh(0.666 * a)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "lecun_tanh": lecun_tanh,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
}


class CfCState(NamedTuple):
    h: Tensor
    c: Tensor


class CfCCell(Cell):
    """One step of CfC: x_t [B, input_size], h [B, hidden_size], timespans [B] -> h.

    mode              "default", "no_gate" or "pure"
    backbone_units    the width of the backbone
    backbone_layers   how many layers it has; 0: v = [x, h]
    activation        of the backbone: "lecun_tanh", "tanh", "relu", "silu" or "gelu"
    mixed_memory      an LSTM step before; the state is then (h, c)
    """

    reads_time = True
    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        mode: str = "default",
        backbone_units: int = 128,
        backbone_layers: int = 1,
        activation: str = "lecun_tanh",
        mixed_memory: bool = False,
        **projection: Any,
    ):
        choose("mode", mode, MODES)
        choose("activation", activation, ACTIVATIONS)
        check_size("backbone_units", backbone_units)
        check_size("backbone_layers", backbone_layers, least=0)
        states = ("h", "c") if mixed_memory else ("h",)
        super().__init__(input_size, hidden_size, dict.fromkeys(states, hidden_size))
        self.mode, self.activation, self.mixed_memory = mode, activation, mixed_memory
        self.backbone_units, self.backbone_layers = backbone_units, backbone_layers
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        heads = dict.fromkeys(MODES[mode], hidden_size)
        first = {"v": backbone_units} if backbone_layers else heads
        gates = dict.fromkeys(("i", "ig", "f", "o"), hidden_size) if mixed_memory else {}
        self.input = WithoutTime(input_size, {**gates, **first}, bias, **where, **projection)
        # What the previous h contributes: to the memory if there is one, which then makes the h that v reads.
        of_h, of_gates = ({f"{n}_h": size for n, size in parts.items()} for parts in (first, gates))
        self.recurrent = Projection(hidden_size, of_gates if mixed_memory else of_h, **where)
        self.inner = Projection(hidden_size, of_h, **where) if mixed_memory else None
        further = [
            Projection(backbone_units, {"v": backbone_units}, bias, **where)
            for _ in range(backbone_layers - 1)
        ]
        self.backbone = nn.ModuleList(further) if further else None
        self.heads = Projection(backbone_units, heads, bias, **where) if backbone_layers else None
        if mode == "pure":
            self.w_tau, self.a = (nn.Parameter(torch.empty(hidden_size, **where)) for _ in range(2))
        if mixed_memory:
            self.State = CfCState  # type: ignore[misc]
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Xavier-uniform matrices and biases of 0; the memory orthogonal, w_tau = 0 and a = 1."""
        clear_(self)
        for module in self.modules():
            if isinstance(module, Projection):
                xavier_uniform_(module)
        if self.mixed_memory:
            orthogonal_(self.recurrent.weight)
        if self.mode == "pure":
            nn.init.zeros_(self.w_tau)
            nn.init.ones_(self.a)

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        return {"ts": times_of(x, self.input_size)}

    def step(self, **known: Tensor) -> tuple[Tensor, Named]:
        ts, h = known["ts"], known["h"]
        memory: Named = {}
        if self.mixed_memory:
            h, memory = self.remember(known)
        values = self.values_of(known, h)
        if self.mode == "pure":
            rate = self.w_tau.abs() + values["a1"].abs()
            h = self.a - self.a * torch.exp(-ts * rate) * values["a1"]
            return h, {"h": h, **memory}
        first, second = torch.tanh(values["a1"]), torch.tanh(values["a2"])
        g = torch.sigmoid(values["ta"] * ts + values["tb"])
        h = (first if self.mode == "no_gate" else first * (1 - g)) + g * second
        return h, {"h": h, **memory}

    def values_of(self, known: Named, h: Tensor) -> Named:
        """What the heads make of x and h."""
        of_h = known if self.inner is None else self.inner(h)
        read = ("v",) if self.backbone_layers else MODES[self.mode]
        sums = {name: known[name] + of_h[f"{name}_h"] for name in read}
        if self.heads is None:
            return sums
        activate = ACTIVATIONS[self.activation]
        v = activate(sums["v"])
        for layer in self.backbone or ():
            v = activate(layer(v)["v"])
        return self.heads(v)

    def remember(self, known: Named) -> tuple[Tensor, Named]:
        """A step of an LSTM: the h that the rest of the step reads, and the new c."""
        i, ig, f, o = (known[name] + known[f"{name}_h"] for name in ("i", "ig", "f", "o"))
        c = known["c"] * torch.sigmoid(f + 1) + torch.tanh(i) * torch.sigmoid(ig)
        return torch.tanh(c) * torch.sigmoid(o), {"c": c}


class CfC(Recurrent, cell=CfCCell):
    """The closed-form continuous-time unit (Hasani et al. 2022)."""
