"""LSTM, and the path from it to RAN.

Hochreiter and Schmidhuber (1997), as in torch.nn.LSTM and equation (4) of the RAN paper:

    i_t = sigmoid(W_ix x_t + W_ih h_{t-1} + p_i c_{t-1} + b_i)
    f_t = sigmoid(W_fx x_t + W_fh h_{t-1} + p_f c_{t-1} + b_f)
    content_t = tanh(W_cx x_t + W_ch h_{t-1} + b_c)
    c_t = i_t content_t + f_t c_{t-1}
    o_t = sigmoid(W_ox x_t + W_oh h_{t-1} + p_o c_t + b_o)
    h_t = o_t g(c_t)

The peepholes p are there with peepholes=True (the LSTM of the NRU authors). The RAN paper (section
4.2) takes two steps from here: output_gate=False leaves h_t = g(c_t), and content="linear" leaves
content_t = W_cx x_t; both together are RAN.

The parameters are those of torch.nn.LSTM: two biases a gate, and the rows of the matrices in torch's order of
gates, i, f, content, o. With second_bias=False, and in forms that torch does not have (output_gate=False,
content="linear", heads, norm_on="all"), there is one bias a gate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.layers.torch_names import OfInput, OfOutput, OfState, TorchCell, TorchStack
from linnet.layers.torch_twins import twin_of
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.init import INITS, chrono_, clear_, gated_
from linnet.recurrent.projection import norm_of_state
from linnet.units.janet import check_chrono


class LSTMState(NamedTuple):
    h: Tensor
    c: Tensor


@twin_of(nn.LSTMCell)
class LSTMCell(TorchCell):
    """One step of LSTM: x_t [B, input_size], (h, c) -> (h, c), as nn.LSTMCell.

    peepholes     gates read c, channel by channel
    output_gate   False: h = g(c)
    content       "recurrent" (tanh of x and h) or "linear" (W x alone)
    activation    g: "tanh" or "identity"
    proj_size     project h to `proj_size` dimensions before it recurs, as in nn.LSTM (0: no projection)
    chrono        the longest dependency expected: b_f = log(1 ... chrono), b_i = -b_f; needs bias=True
    init          "uniform" (torch's), "xavier" (the LRN authors) or "orthogonal" (the NRU authors, b_f = 1)
    norm_on       "input": `norm` is over the projected input of all gates together; "all": a norm for each
                  product, of x and of h, and for gates and content separately (the LRN authors)
    heads         cut h and each gate into this many heads: the matrices of h are block-diagonal
    second_bias   False: one bias a gate (the NRU authors, and the LRN authors' language model and tagger)
    """

    State = LSTMState
    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        peepholes: bool = False,
        output_gate: bool = True,
        content: str = "recurrent",
        activation: str = "tanh",
        proj_size: int = 0,
        chrono: int | None = None,
        init: str = "uniform",
        norm_on: str = "input",
        heads: int = 1,
        second_bias: bool = True,
        **projection: Any,
    ):
        choose("content", content, ("recurrent", "linear"))
        choose("init", init, INITS)
        check_size("proj_size", proj_size, least=0)
        read = proj_size or hidden_size
        super().__init__(input_size, hidden_size, {"h": read, "c": hidden_size}, output_size=read)
        self.g = pointwise(activation)
        self.chrono, self.init = check_chrono(chrono, bias), init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        norm = norm_of_state(norm_on, projection.get("norm"))
        like_torch = content == "recurrent" and norm is None
        gates = ("i", "f", "o") if output_gate else ("i", "f")
        names = ("i", "f", "content", "o")[: len(gates) + 1] if like_torch else ("content", *gates)
        recurring = gates if content == "linear" else names
        parts = dict.fromkeys(names, hidden_size)
        groups = None if norm is None else (hidden_size, len(gates) * hidden_size)
        biased = recurring if bias else False
        self.input = OfInput(input_size, parts, biased, norm_groups=groups, **where, **projection)
        products = {f"{gate}_h": hidden_size for gate in recurring}
        of_h = groups if content == "recurrent" else None
        self.recurrent = OfState(read, products, norm=norm, norm_groups=of_h, input_heads=heads, **where)
        if proj_size:
            self.projection = OfOutput(hidden_size, {"y": proj_size}, **where)
        if like_torch and output_gate and second_bias:
            self.take_torch_layout()
        self.p_i, self.p_f, self.p_o = (
            nn.Parameter(torch.empty(hidden_size, **where)) if peepholes and gate in gates else None
            for gate in ("i", "f", "o")
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        self.bind()
        clear_(self)
        gated_(self.init, [self.input, self.recurrent], self.hidden_size)
        if self.init == "orthogonal" and self.input.bias is not None:
            self.input.bias_of("f").fill_(1.0)
        if self.chrono is not None:
            chrono_(self.input.bias_of("f"), self.chrono)
            self.input.bias_of("i").copy_(-self.input.bias_of("f"))
        if self.projection is not None:
            bound = self.hidden_size**-0.5
            nn.init.uniform_(self.projection.weight, -bound, bound)
        for peephole in (self.p_i, self.p_f, self.p_o):
            if peephole is not None:
                nn.init.uniform_(peephole, 0, 1)

    def step(
        self,
        content: Tensor,
        i: Tensor,
        f: Tensor,
        i_h: Tensor,
        f_h: Tensor,
        c: Tensor,
        content_h: Tensor | None = None,
        o: Tensor | None = None,
        o_h: Tensor | None = None,
    ) -> tuple[Tensor, Named]:
        i = torch.sigmoid(peep(i + i_h, self.p_i, c))
        f = torch.sigmoid(peep(f + f_h, self.p_f, c))
        if content_h is not None:
            content = torch.tanh(content + content_h)
        c = i * content + f * c
        h = self.g(c)
        if o is not None and o_h is not None:
            o = torch.sigmoid(peep(o + o_h, self.p_o, c))
            h = o * h
        return h, {"h": h, "c": c}


def peep(a: Tensor, p: Tensor | None, c: Tensor) -> Tensor:
    return a if p is None else a + p * c


@twin_of(nn.LSTM)
class LSTM(TorchStack, cell=LSTMCell):
    """The long short-term memory (Hochreiter and Schmidhuber 1997)."""

    # Those of RNNBase take one state.
    check_forward_args = nn.LSTM.check_forward_args  # type: ignore[assignment]
    permute_hidden = nn.LSTM.permute_hidden  # type: ignore[assignment]
    get_expected_cell_size = nn.LSTM.get_expected_cell_size
