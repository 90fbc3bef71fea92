"""coRNN, the coupled oscillatory recurrent network: a damped, driven oscillator in each channel.

Rusch and Mishra (2021a), section 2: y'' = tanh(W y + U y' + V x + b) - gamma y - epsilon y', discretised
with z = y':

    z_t = z_{t-1} + dt (tanh(W y_{t-1} + U z_{t-1} + V x_t + b) - gamma y_{t-1} - epsilon z_{t-1})
    y_t = y_{t-1} + dt z_t

The output is y. The paper calls the matrix of z a script W.

Differs from the paper's main equations, in which the damping is implicit (epsilon z_t): the authors' code
computes the explicit variant above, and so does this file.

The authors' code for noisy CIFAR-10 has three products, and that for the other tasks one over x, z and y in
this order. The two compute the same; their initial values differ, and the default here is that of the one
product.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.types import Device

from linnet.base.options import check_number, choose
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_, linear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class CoRNNState(NamedTuple):
    y: Tensor
    z: Tensor


class CoRNNCell(Cell):
    """One step of coRNN: x_t [B, input_size], (y, z) -> y, (y, z).

    dt        the time step (the defaults of all three are those of sequential MNIST)
    gamma     the stiffness of the oscillators: their frequency without damping is sqrt(gamma)
    epsilon   the damping
    init      "joint": U(-1/sqrt(n), 1/sqrt(n)) with n the size of x, z and y together; "separate": the
              number of inputs of each matrix
    """

    State = CoRNNState
    recurrence = {"recurrent": "y", "velocity": "z"}

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
        init: str = "joint",
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, dict.fromkeys(CoRNNState._fields, hidden_size))
        for name, value in (("dt", dt), ("gamma", gamma), ("epsilon", epsilon)):
            check_number(name, value, least=0)
        choose("init", init, ("joint", "separate"))
        self.dt, self.gamma, self.epsilon, self.init = dt, gamma, epsilon, init
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.recurrent = Projection(hidden_size, {"yW": hidden_size}, **where)
        self.velocity = Projection(hidden_size, {"zU": hidden_size}, **where)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """torch's start of a linear layer, biases included."""
        clear_(self)
        matrices = (self.input, self.recurrent, self.velocity)
        together = sum(matrix.weight.shape[1] for matrix in matrices)
        for matrix in matrices:
            inputs = together if self.init == "joint" else matrix.weight.shape[1]
            linear_(matrix, 1 / math.sqrt(inputs))

    def step(self, a: Tensor, yW: Tensor, zU: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Named]:
        force = torch.tanh(a + yW + zU)
        z = z + self.dt * (force - self.gamma * y - self.epsilon * z)
        y = y + self.dt * z
        return y, {"y": y, "z": z}


class CoRNN(Recurrent, cell=CoRNNCell):
    """The coupled oscillatory recurrent network (Rusch and Mishra 2021a)."""
