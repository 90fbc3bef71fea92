"""RG-LRU, the real-gated linear recurrent unit of Griffin: a gated decay, and no nonlinearity on the state.

De, Smith, Fernando et al. (2024), section 2.4:

    r_t = sigmoid(W_a x_t + b_a)                            (1)  recurrence gate
    i_t = sigmoid(W_x x_t + b_x)                            (2)  input gate
    log a_t = -8 r_t softplus(Lambda)                       (3)  Lambda: one number for each channel
    h_t = a_t h_{t-1} + sqrt(1 - a_t^2) (i_t x_t)           (4)

W_a and W_x are block-diagonal, with `heads` blocks. The factor sqrt(1 - a^2) preserves the variance of a
long sequence. In the first step of a sequence there is nothing to add to: the factor is left out,
h_1 = i_1 x_1. The state `started`, 0 before the first step and 1 after it, says which step is the first, so
that a reset, or a call without a state, leaves out the factor as well.

The derivative of the root is bounded: 1 / sqrt(max(4 v, 1e-6)) at v = 1 - a^2, at most 1000.

Differs from the paper, as the authors' code (recurrentgemma) does: the paper mentions neither the first step
nor the bounded derivative; its log a is -8 r softplus(-Lambda), the parameter with the other sign; and it
starts with exp(-8 softplus) between 0.9 and 0.999, the code with exp(-softplus). Differs from both where x
and h differ in size, which they do not allow: x_t in (4) is then a product W_u x_t.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

# c in the paper: how fast a gate that is open lets a channel decay.
DECAY = 8.0
# The range of exp(-softplus(Lambda)) at the start.
LEAST_RADIUS, GREATEST_RADIUS = 0.9, 0.999
# The least 4 v for which the derivative of sqrt(v) is 1 / sqrt(4 v).
LEAST_SLOPE_ARGUMENT = 1e-6


class RGLRUState(NamedTuple):
    h: Tensor
    started: Tensor


class RGLRUCell(Cell):
    """One step of RG-LRU: x_t [B, input_size], (h, started) -> h, (h, started).

    heads   cut x and each gate into this many heads: the matrices are block-diagonal
    """

    State = RGLRUState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        heads: int = 1,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, {"h": hidden_size, "started": hidden_size})
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        names = ("i", "r") if input_size == hidden_size else ("u", "i", "r")
        parts, heads = dict.fromkeys(names, hidden_size), same_heads(heads, projection.pop("input_heads", 1))
        biased = ("i", "r") if bias else False
        self.input = Projection(input_size, parts, biased, input_heads=heads, **where, **projection)
        self.a_param = nn.Parameter(torch.empty(hidden_size, **where))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Matrices of variance 1 / (width of a block), biases 0, radii between 0.9 and 0.999."""
        clear_(self)
        nn.init.normal_(self.input.weight, std=self.input.weight.shape[1] ** -0.5)
        # Drawn in at least float32: in bfloat16, 0.999 is 1.
        wide = torch.promote_types(self.a_param.dtype, torch.float32)
        squared = torch.empty_like(self.a_param, dtype=wide)
        squared.uniform_(LEAST_RADIUS**2 + 1e-8, GREATEST_RADIUS**2 + 1e-8)
        self.a_param.copy_(a_param_of(squared))

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        return {} if "u" in self.input.parts else {"u": x}

    def step(self, i: Tensor, r: Tensor, u: Tensor, h: Tensor, started: Tensor) -> tuple[Tensor, Named]:
        r = torch.sigmoid(r)  # (1)
        i = torch.sigmoid(i)  # (2)
        log_a = -DECAY * r * F.softplus(self.a_param)  # (3)
        # As the authors' code computes it. Close to a = 1, another form would give other digits.
        root = bounded_root(1 - torch.exp(2 * log_a))
        factor = torch.where(started == 0, 1.0, root)
        h = torch.exp(log_a) * h + factor * (i * u)  # (4)
        return h, {"h": h, "started": torch.ones_like(h)}


def same_heads(heads: int, input_heads: int) -> int:
    """The number of heads, of which `input_heads` is the name that all units have."""
    if heads != 1 and input_heads not in (1, heads):
        raise ValueError(
            f"heads and input_heads are two names of one option of RGLRU; got {heads} and {input_heads}"
        )
    return input_heads if heads == 1 else heads


def a_param_of(squared_radius: Tensor) -> Tensor:
    """The parameter with exp(-softplus(a_param)) = sqrt(squared_radius)."""
    return torch.log(torch.expm1(-0.5 * torch.log(squared_radius)))


class BoundedRoot(torch.autograd.Function):
    """sqrt(v), whose derivative is at most 1 / sqrt(LEAST_SLOPE_ARGUMENT)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor) -> Tensor:
        return torch.sqrt(v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        return above / twice_the_root(*ctx.saved_tensors)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent / twice_the_root(*ctx.saved_tensors)


def twice_the_root(v: Tensor) -> Tensor:
    """By which the derivative of a root divides; not smaller than 0.001."""
    return torch.sqrt(torch.clamp(4 * v, min=LEAST_SLOPE_ARGUMENT))


def bounded_root(v: Tensor) -> Tensor:
    return BoundedRoot.apply(v)


class RGLRU(Recurrent, cell=RGLRUCell):
    """The real-gated linear recurrent unit (De et al. 2024)."""
