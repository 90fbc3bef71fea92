"""IndRNN, the independently recurrent network: a ReLU layer whose channels do not read each other.

Li, Li, Cook, Zhu and Gao (2018):

    h_t = g(W x_t + u h_{t-1} + b)

with g = ReLU. Each channel has one recurrent weight, so that the size of u alone says for how long the
channel remembers, and how its gradient grows over T steps: by |u|^T. The paper therefore bounds it,
|u| <= M^(1/T), where T is the length of the sequences and M the factor by which a state may grow over them.

Differs from the paper: u starts in U(0, 1), as in the module of the authors' code. `steps` gives the start of
their networks, U(0, M^(1/T)) and, in the last layer, U(M^(-1/T), M^(1/T)): its state is read after the last
step, and so has to keep the first. They clamp u to [-M^(1/T), M^(1/T)] after each update; `clamp_recurrent`
does this by a parametrization.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.utils import parametrize
from torch.types import Device

from linnet.base.options import check_number, check_size
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

# The slope of the leaky ReLU for which the authors' code scales the input matrices: a small start.
KAIMING_SLOPE = 8


class IndRNNCell(Cell):
    """One step of IndRNN: x_t [B, input_size], h [B, hidden_size] -> h.

    activation    g: "relu" (the paper) or "tanh"
    steps         T, the length of the sequences: u starts in U(0, M^(1/T)); None: in U(0, 1)
    growth        M, the factor by which a state may grow over `steps` steps; 5 in the authors' pixel MNIST
    long_memory   u starts in U(M^(-1/T), M^(1/T)); with `steps`, the stack sets it in its last layer
    """

    # Its authors clamp u instead.
    undecayed_parameters = ("u",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "relu",
        steps: int | None = None,
        growth: float = 5.0,
        long_memory: bool = False,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        self.g = pointwise(activation, ("relu", "tanh"))
        check_start(steps, growth, long_memory)
        self.steps, self.growth, self.long_memory = steps, growth, long_memory
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        self.input = Projection(input_size, {"a": hidden_size}, bias, **where, **projection)
        self.u = nn.Parameter(torch.empty(hidden_size, **where))
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        if options.get("steps") is None:
            return options
        return {"long_memory": position["layer"] == position["num_layers"] - 1, **options}

    @property
    def bound(self) -> float:
        """M^(1/T), the largest |u|; 1 without `steps`, for which no state grows."""
        return 1.0 if self.steps is None else self.growth ** (1 / self.steps)

    def reset_parameters(self) -> None:
        clear_(self)
        nn.init.kaiming_uniform_(self.input.weight, a=KAIMING_SLOPE)
        nn.init.uniform_(self.u, 1 / self.bound if self.long_memory else 0.0, self.bound)

    def step(self, a: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        h = self.g(a + self.u * h)
        return h, {"h": h}


def check_start(steps: int | None, growth: float, long_memory: bool) -> None:
    check_number("growth", growth, least=1)
    if steps is not None:
        check_size("steps", steps)
    elif long_memory:
        raise ValueError("long_memory=True starts u in U(M^(-1/T), M^(1/T)); give steps, the T of it")


class Clamp(Function):
    """Clamp to [-bound, bound]; the gradient passes where a step of descent stays inside or leads back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, bound: float) -> Tensor:
        return u.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.bound = inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        outwards = (u.abs() >= ctx.bound) & (u * gradient < 0)
        return gradient.masked_fill(outwards, 0), None


class Clamped(nn.Module):
    """The parametrization u -> clamp(u, -bound, bound).

    Differs from the gradient of torch.clamp, which is 0 beyond the bounds: a weight that an update has put
    there would never change again. Here, as with a clamp after each update, it can come back.
    """

    def __init__(self, bound: float):
        super().__init__()
        self.bound = bound

    def forward(self, u: Tensor) -> Tensor:
        return Clamp.apply(u, self.bound)

    def right_inverse(self, u: Tensor) -> Tensor:
        return u

    def extra_repr(self) -> str:
        return f"bound={self.bound}"


class IndRNN(Recurrent, cell=IndRNNCell):
    """The independently recurrent network (Li et al. 2018)."""

    def clamp_recurrent(self) -> None:
        """Keep the recurrent weights u of all layers in [-M^(1/T), M^(1/T)], by a parametrization."""
        for cell in self.cells:
            parametrize.register_parametrization(cell, "u", Clamped(cell.bound))
