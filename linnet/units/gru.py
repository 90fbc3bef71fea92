"""GRU, in the three forms that torch and the papers use.

Cho et al. (2014):

    form="before"   r_t = sigmoid(W_rx x_t + W_rh h_{t-1} + b_r)
                    z_t = sigmoid(W_zx x_t + W_zh h_{t-1} + b_z)
                    n_t = tanh(W_nx x_t + W_nh (r_t h_{t-1}) + b_n)
                    h_t = (1 - z_t) n_t + z_t h_{t-1}

    form="after"    n_t = tanh(W_nx x_t + b_n + r_t (W_nh h_{t-1} + b'_n)), as torch.nn.GRU does

    form="ran"      equation (6) of the RAN paper, with a cell c besides h; z is its input gate i and
                    r its output gate o, and both read c:
                    n_t = tanh(W_nx x_t + W_nh h_{t-1} + b_n)
                    c_t = i_t n_t + (1 - i_t) c_{t-1}
                    h_t = o_t c_t                          the output is c_t

Differs between the sources: in equation (5) of the RAN paper z is the share of the new; here, as in
torch and in the LRN and NRU authors' code, it is the share of the old. The RAN paper calls (6)
equivalent to (5). It is not quite: in (5) the gate that meets h_{t-1} reads x_t, in (6) x_{t-1}.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import choose
from linnet.layers.torch_names import OfInput, OfState, TorchCell, TorchStack
from linnet.layers.torch_twins import twin_of
from linnet.program.unit import Named
from linnet.recurrent.init import INITS, clear_, gated_
from linnet.recurrent.projection import norm_of_state


class GRUState(NamedTuple):
    c: Tensor
    h: Tensor


torch.serialization.add_safe_globals([GRUState])


@twin_of(nn.GRUCell)
class GRUCell(TorchCell):
    """One step of GRU: x_t [B, input_size], h [B, hidden_size] -> h, as nn.GRUCell.

    With form="ran" the state is (c, h), and a call returns c and the state.

    form      where the reset gate acts: "after" the product (torch's), "before" it (the papers'), or "ran"
    init      "uniform" (torch's), "xavier" (the LRN authors) or "orthogonal" (the NRU authors)
    norm_on   "input": `norm` is over the projected input of all gates together; "all": a norm for each
              product, of x and of h, and for gates and candidate separately (the LRN authors)
    heads     cut h and each gate into this many heads: the matrices of h are block-diagonal

    second_bias   False: one bias for r and z, and with form="after" two for n. Only form="after" has others
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        form: str = "after",
        init: str = "uniform",
        norm_on: str = "input",
        heads: int = 1,
        second_bias: bool = True,
        **projection: Any,
    ):
        choose("form", form, ("after", "before", "ran"))
        choose("init", init, INITS)
        states = ("c", "h") if form == "ran" else ("h",)
        super().__init__(input_size, hidden_size, dict.fromkeys(states, hidden_size))
        self.form, self.init = form, init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("r", "z", "n"), hidden_size)
        norm = norm_of_state(norm_on, projection.get("norm"))
        groups = None if norm is None else (2 * hidden_size, hidden_size)
        self.input = OfInput(input_size, parts, bias, norm_groups=groups, **where, **projection)
        like_torch = form == "after" and norm is None
        gates, candidate = {"r_h": hidden_size, "z_h": hidden_size}, {"n_h": hidden_size}
        biased = ("n_h",) if bias and form == "after" else ()
        of_h = {"input_heads": heads, **where}
        if like_torch:
            self.recurrent = OfState(hidden_size, {**gates, **candidate}, biased, **of_h)
            self.recurrence = {"recurrent": "h"}
            if second_bias:
                self.take_torch_layout(apart=("n_h",))
        else:
            self.recurrent = OfState(hidden_size, gates, norm=norm, **of_h)
            self.candidate = OfState(hidden_size, candidate, biased, norm=norm, **of_h)
            self.recurrence = {"recurrent": "h", **({} if form == "before" else {"candidate": "h"})}
        if form == "ran":
            self.State = GRUState  # type: ignore[misc]
            self.recurrence = {"recurrent": "c", "candidate": "h"}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.bind()
        clear_(self)
        matrices = [self.recurrent, self.candidate] if "candidate" in self._modules else [self.recurrent]
        gated_(self.init, [self.input, *matrices], self.hidden_size)

    def step(
        self,
        r: Tensor,
        z: Tensor,
        n: Tensor,
        r_h: Tensor,
        z_h: Tensor,
        h: Tensor,
        n_h: Tensor | None = None,
        c: Tensor | None = None,
    ) -> tuple[Tensor, Named]:
        r = torch.sigmoid(r + r_h)
        z = torch.sigmoid(z + z_h)
        if c is not None and n_h is not None:
            i, o = z, r
            n = torch.tanh(n + n_h)
            c = i * n + (1 - i) * c
            h = o * c
            return c, {"c": c, "h": h}
        n = torch.tanh(n + (self.candidate(r * h)["n_h"] if n_h is None else r * n_h))
        h = (1 - z) * n + z * h
        return h, {"h": h}

    def returned(self, y: Tensor, state: Any) -> Any:
        return (y, state) if self.form == "ran" else state


@twin_of(nn.GRU)
class GRU(TorchStack, cell=GRUCell):
    """The gated recurrent unit (Cho et al. 2014)."""
