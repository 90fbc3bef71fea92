"""RAN, the recurrent additive network: the state is a gated sum of its inputs and nothing else.

Lee, Levy and Zettlemoyer (2017), section 2.1:

    content_t = W_cx x_t
    i_t = sigmoid(W_ih h_{t-1} + W_ix x_t + b_i)
    f_t = sigmoid(W_fh h_{t-1} + W_fx x_t + b_f)         (1)
    c_t = i_t content_t + f_t c_{t-1}
    h_t = g(c_t)

and the reduced form (2), in which the content is x_t itself and g the identity.

With proj_size, h_t = g(c_t) W_p + b_p, and it is the projected h that recurs into the gates, as in
the authors' model of the billion-word benchmark. The state is (h, c), in the order of nn.LSTM; the
authors' code has (c, h).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_size
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, xavier_uniform_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class RANState(NamedTuple):
    h: Tensor
    c: Tensor


class RANCell(Cell):
    """One step of RAN: x_t [B, input_size], (h, c) -> h [B, hidden_size], (h, c).

    activation   g: "tanh" (the paper's best) or "identity"
    reduced      the reduced form (2): no content layer and g the identity; input_size must equal hidden_size
    proj_size    project h to `proj_size` dimensions before it recurs (0: no projection)
    heads        cut h and each gate into this many heads: W_ih and W_fh are block-diagonal
    """

    State = RANState
    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str | None = None,
        reduced: bool = False,
        proj_size: int = 0,
        heads: int = 1,
        **projection: Any,
    ):
        check_size("proj_size", proj_size, least=0)
        read = proj_size or hidden_size
        super().__init__(input_size, hidden_size, {"h": read, "c": hidden_size}, output_size=read)
        if reduced and (input_size != hidden_size or activation not in (None, "identity")):
            raise ValueError(
                "reduced=True is equation (2): it needs input_size == hidden_size and activation='identity'; "
                f"got input_size={input_size}, hidden_size={hidden_size}, activation={activation!r}"
            )
        self.reduced = reduced
        self.g = pointwise(activation or ("identity" if reduced else "tanh"))
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys(("i", "f") if reduced else ("content", "i", "f"), hidden_size)
        self.input = Projection(input_size, parts, ("i", "f") if bias else False, **where, **projection)
        products = {"ih": hidden_size, "fh": hidden_size}
        self.recurrent = Projection(read, products, input_heads=heads, **where)
        if proj_size:
            self.projection = Projection(hidden_size, {"y": proj_size}, bias, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform weights, biases 0: the default of the authors' framework.

        Their Penn Treebank and text8 scripts draw all weights from U(-0.05, 0.05) or so instead.
        """
        clear_(self)
        for module in self.modules():
            if isinstance(module, Projection):
                xavier_uniform_(module)

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        return {"content": x} if self.reduced else {}

    def step(
        self, content: Tensor, i: Tensor, f: Tensor, ih: Tensor, fh: Tensor, c: Tensor
    ) -> tuple[Tensor, Named]:
        i = torch.sigmoid(ih + i)
        f = torch.sigmoid(fh + f)
        c = i * content + f * c
        h = self.g(c)
        return h, {"h": h, "c": c}


class RAN(Recurrent, cell=RANCell):
    """The recurrent additive network (Lee et al. 2017)."""
