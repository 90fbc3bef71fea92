"""NRU, the non-saturating recurrent unit: an additive memory with neither tanh nor sigmoid.

Chandar, Sankar, Vorontsov, Kahou and Bengio (2019), "Model":

    h_t = ReLU(W_h h_{t-1} + W_i x_t + W_c m_{t-1})                    (9)
    m_t = m_{t-1} + sum_i alpha_i v_i^w - sum_i beta_i v_i^e           (10)
    alpha, beta = linear functions of h_t, m_{t-1}                     (11, 12)
    v^w, v^e    = linear functions of h_t, m_{t-1}, normalised by L5   (13, 14)

Each of the k write and k erase heads has a direction v in R^m. To save parameters, v is the outer
product of two short vectors (15-17): with directions="joint" two vectors of sqrt(k m) make all k
directions at once, as the authors do; "per-head" is two vectors of sqrt(m) for each head, and
"full" produces each v as it is (13, 14).

Differs from the paper, as the authors' code does: x_t is not an input of the heads (heads_read_input=True
is the paper's reading), and (10) takes the mean over the heads (head_reduction="sum" is the paper's).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_size, choose
from linnet.program.unit import Named
from linnet.recurrent.activations import identity
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class NRUState(NamedTuple):
    h: Tensor
    m: Tensor


def whole_root(size: int, what: str) -> int:
    root = math.isqrt(size)
    if root * root != size:
        raise ValueError(f"{what} must be a square for the outer product of two vectors; got {size}")
    return root


# The least norm by which a direction is divided, as in the authors' code.
LEAST_NORM = 1e-12


def normalised(u: Tensor) -> Tensor:
    """u / max(||u||_5, 1e-12) along the last dimension: F.normalize, with fifth powers that stay in range.

    Where they would underflow, a row is divided by its largest entry first. In float32 the fifth power of
    1e-9 is 0, which F.normalize takes for the norm: it gives a direction of length 1000 or a gradient of NaN.
    Where they overflow, the row becomes 0, as in the authors' code, but with a gradient of 0 and not NaN.
    """
    # torch adds up the norm of 16-bit numbers in float32.
    own, summed = torch.finfo(u.dtype), torch.finfo(torch.promote_types(u.dtype, torch.float32))
    least = max(LEAST_NORM, own.tiny)
    largest = torch.linalg.vector_norm(u.detach(), math.inf, -1, keepdim=True)
    # An infinite entry is left as it is, so that it becomes NaN and does not go unnoticed.
    u = u.masked_fill((largest > summed.max**0.2) & (largest < math.inf), 0)
    in_range = (largest >= (own.tiny / own.eps) ** 0.2) & (largest <= own.max**0.2)
    # Multiplying and dividing by 1 changes no bit of the rows in range.
    scale = torch.where(in_range, 1.0, largest.clamp(least, own.max))
    norm = torch.linalg.vector_norm(u / scale, 5, -1, keepdim=True) * scale
    return u / norm.clamp_min(least)


class NRUCell(Cell):
    """One step of NRU: x_t [B, input_size], (h, m) -> h [B, hidden_size], (h, m).

    memory_size        the size of m
    num_heads          k, the number of write heads and of erase heads
    directions         how v is made: "joint", "per-head" or "full"
    head_activation    "identity" (linear heads) or "relu" (the paper's language model)
    head_reduction     over the heads: "mean" (the authors' code) or "sum" (the paper)
    heads_read_input   x_t as an input of the heads: False (the authors' code) or True (the paper)
    layer_norm         layer norm inside the ReLU of (9)
    """

    State = NRUState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        memory_size: int = 64,
        num_heads: int = 4,
        directions: str = "joint",
        head_activation: str = "identity",
        head_reduction: str = "mean",
        heads_read_input: bool = False,
        layer_norm: bool = False,
        **projection: Any,
    ):
        check_size("memory_size", memory_size)
        check_size("num_heads", num_heads)
        choose("directions", directions, ("joint", "per-head", "full"))
        choose("head_activation", head_activation, ("identity", "relu"))
        choose("head_reduction", head_reduction, ("mean", "sum"))
        super().__init__(input_size, hidden_size, {"h": hidden_size, "m": memory_size})
        self.memory_size, self.num_heads, self.directions = memory_size, num_heads, directions
        self.head_reduction = head_reduction
        self.g = torch.relu if head_activation == "relu" else identity
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        wide = self.direction_size()
        heads = {"alpha": num_heads, "beta": num_heads, "write": wide, "erase": wide}
        inputs = (
            {"heads_x": sum(heads.values()), "a": hidden_size} if heads_read_input else {"a": hidden_size}
        )
        self.input = Projection(input_size, inputs, ("a",) if bias else False, **where, **projection)
        self.recurrent = Projection(hidden_size + memory_size, {"ahm": hidden_size}, **where)
        self.heads = Projection(hidden_size + memory_size, heads, bias, **where)
        self.norm = nn.LayerNorm(hidden_size, **where) if layer_norm else nn.Identity()
        self.reset_parameters()

    def direction_size(self) -> int:
        """How many numbers make the directions of all write heads."""
        k, m = self.num_heads, self.memory_size
        if self.directions == "joint":
            return 2 * whole_root(k * m, "memory_size * num_heads")
        if self.directions == "per-head":
            return 2 * k * whole_root(m, "memory_size")
        return k * m

    def reset_parameters(self) -> None:
        """torch's start of a linear layer, U(-1/sqrt(n), 1/sqrt(n)), n the number of all inputs."""
        clear_(self)
        state_size = self.hidden_size + self.memory_size
        in_h = 1 / math.sqrt(self.input_size + state_size)
        in_heads = 1 / math.sqrt(state_size + (self.input_size if "heads_x" in self.input.parts else 0))
        for weight in (self.input.weight_of("a"), self.input.bias, self.recurrent.weight):
            if weight is not None:
                nn.init.uniform_(weight, -in_h, in_h)
        for weight in (self.heads.weight, self.heads.bias):
            if weight is not None:
                nn.init.uniform_(weight, -in_heads, in_heads)
        if "heads_x" in self.input.parts:
            nn.init.uniform_(self.input.weight_of("heads_x"), -in_heads, in_heads)

    def recur(self, h: Tensor, m: Tensor) -> Named:
        return self.recurrent(torch.cat([h, m], -1))

    def step(self, a: Tensor, ahm: Tensor, m: Tensor, heads_x: Tensor | None = None) -> tuple[Tensor, Named]:
        h = torch.relu(self.norm(a + ahm))  # (9)
        parts = self.heads(torch.cat([h, m], -1))
        if heads_x is not None:
            of_x = self.heads.split(heads_x)
            parts = {name: part + of_x[name] for name, part in parts.items()}
        alpha, beta = self.g(parts["alpha"]), self.g(parts["beta"])  # (11, 12)
        written = alpha[..., None] * self.direction(parts["write"])
        erased = beta[..., None] * self.direction(parts["erase"])
        change = written - erased
        m = m + (change.mean(-2) if self.head_reduction == "mean" else change.sum(-2))  # (10)
        return h, {"h": h, "m": m}

    def direction(self, u: Tensor) -> Tensor:
        """[B, direction_size] -> [B, num_heads, memory_size], each row of L5 norm 1."""
        if self.directions != "full":
            if self.directions == "per-head":
                u = u.unflatten(-1, (self.num_heads, -1))
            p, q = u.chunk(2, -1)  # (15, 16)
            u = p[..., :, None] * q[..., None, :]  # (17)
        return normalised(self.g(u.reshape(u.shape[0], self.num_heads, self.memory_size)))


class NRU(Recurrent, cell=NRUCell):
    """The non-saturating recurrent unit (Chandar et al. 2019)."""
