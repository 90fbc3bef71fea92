"""UnICORNN, the undamped independent controlled oscillatory network: no matrix reads the state.

Rusch and Mishra (2021b), section 2: y'' = -sigmoid(c)^2 (tanh(w y + V x + b) + alpha y), an oscillator in
each channel, discretised with a time step of dt sigmoid(c):

    s   = dt sigmoid(c)                                        one number per channel
    z_t = z_{t-1} - s (tanh(w y_{t-1} + V x_t + b) + alpha y_{t-1})
    y_t = y_{t-1} + s z_t

The output is y. w and c are vectors, dt and alpha constants; dt may differ between the layers of a stack.

Differs from the authors' code in giving gradients of the initial states, too. Theirs rebuilds the states
backwards in time to save memory, and has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class UnICORNNState(NamedTuple):
    y: Tensor
    z: Tensor


class UnICORNNCell(Cell):
    """One step of UnICORNN: x_t [B, input_size], (y, z) -> y, (y, z).

    dt      the longest time step; in a stack, a number for all layers or a sequence of one number per layer
            (the defaults of both are those of permuted sequential MNIST)
    alpha   the restoring force: without input an oscillator turns by about s sqrt(alpha + w) per step
    """

    State = UnICORNNState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        dt: float | Sequence[float] = 0.19,
        alpha: float = 30.65,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, dict.fromkeys(UnICORNNState._fields, hidden_size))
        self.dt, self.alpha = dt_of_layer(dt), alpha
        check_number("dt", self.dt, least=0)
        check_number("alpha", alpha, least=0)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.w = nn.Parameter(torch.empty(hidden_size, **where))
        self.c = nn.Parameter(torch.empty(hidden_size, **where))
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        if "dt" not in options:
            return options
        return {**options, "dt": dt_of_layer(options["dt"], position["layer"], position["num_layers"])}

    def reset_parameters(self) -> None:
        clear_(self)
        nn.init.kaiming_uniform_(self.input.weight, a=8)
        nn.init.uniform_(self.w, 0, 1)
        nn.init.uniform_(self.c, -0.1, 0.1)

    def step(self, a: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Named]:
        s = self.dt * torch.sigmoid(self.c)
        z = z - s * (torch.tanh(self.w * y + a) + self.alpha * y)
        y = y + s * z
        return y, {"y": y, "z": z}


def dt_of_layer(dt: Any, layer: int = 0, num_layers: int = 1) -> Any:
    """The number of a layer, if `dt` has one per layer."""
    if not isinstance(dt, (tuple, list)):
        return dt
    if len(dt) != num_layers:
        raise ValueError(
            f"dt must be a number or a sequence of one number per layer, of which there are {num_layers}; "
            f"got {dt!r}"
        )
    return dt[layer]


class UnICORNN(Recurrent, cell=UnICORNNCell):
    """The undamped independent controlled oscillatory network (Rusch and Mishra 2021b)."""
