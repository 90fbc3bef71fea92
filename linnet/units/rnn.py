"""The plain recurrent network of Elman (1990), and the starts that make it remember.

    h_t = g(norm(x_t W + h_{t-1} R + b))

g is tanh as in torch.nn.RNN. The NRU authors' RNN-orth and RNN-id are nonlinearity="relu",
layer_norm=True and init="orthogonal" or "identity": without the norm both were unstable.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import choose
from linnet.layers.torch_names import OfInput, OfState, TorchCell, TorchStack
from linnet.layers.torch_twins import twin_of
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.init import INITS, clear_, each_part_, gated_


@twin_of(nn.RNNCell)
class RNNCell(TorchCell):
    """One step of a plain RNN: x_t [B, input_size], h [B, hidden_size] -> h.

    nonlinearity   g: "tanh", "relu" or "sigmoid"
    layer_norm     layer norm inside g
    init           "uniform" (torch's), "xavier", "orthogonal" or "identity" (R = I, else as "orthogonal")
    heads          cut h into this many heads: R is block-diagonal
    second_bias    False: one bias (the NRU authors)
    """

    recurrence = {"recurrent": "h"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        layer_norm: bool = False,
        init: str = "uniform",
        heads: int = 1,
        second_bias: bool = True,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        choose("init", init, (*INITS, "identity"))
        self.g = pointwise(nonlinearity, ("tanh", "relu", "sigmoid"), "nonlinearity")
        self.init = init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = OfInput(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.recurrent = OfState(hidden_size, {"hR": hidden_size}, input_heads=heads, **where)
        if second_bias:
            self.take_torch_layout()
        self.norm = nn.LayerNorm(hidden_size, **where) if layer_norm else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.bind()
        clear_(self)
        how = "orthogonal" if self.init == "identity" else self.init
        gated_(how, [self.input, self.recurrent], self.hidden_size)
        if self.init == "identity":
            each_part_(self.recurrent, nn.init.eye_)

    def step(self, a: Tensor, hR: Tensor) -> tuple[Tensor, Named]:
        h = self.g(self.norm(a + hR))
        return h, {"h": h}


@twin_of(nn.RNN)
class RNN(TorchStack, cell=RNNCell):
    """The plain recurrent network (Elman 1990)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **options: Any,
    ):
        # As in nn.RNN, and only there, another argument comes before the bias.
        super().__init__(input_size, hidden_size, num_layers, *args, nonlinearity=nonlinearity, **options)
        self.nonlinearity = nonlinearity

    @property
    def mode(self) -> str:
        return f"RNN_{self.nonlinearity.upper()}"
