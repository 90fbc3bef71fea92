"""LTC, the liquid time-constant unit: neurons whose synapses change how fast they follow their inputs.

Hasani, Lechner, Amini, Rus and Grosu (2021), as in the authors' package ncps. A synapse from i to j has the
conductance a_ij, which drives the potential h_j towards erev_ij:

    x'_i = input_i x_i + b_i
    s_ij = sensory_w_ij sigmoid(sensory_sigma_ij (x'_i - sensory_mu_ij))
    a_ij = w_ij sigmoid(sigma_ij (h_i - mu_ij))
    cm_j h_j' = gleak_j (vleak_j - h_j) + sum_i s_ij (sensory_erev_ij - h_j) + sum_i a_ij (erev_ij - h_j)
    y_j  = output_j h_j + b'_j                       for the first `motors` neurons

At each step an implicit Euler method solves the equation of h over the time ts since the step before, in
`unfolds` parts of the same length, in each of which a is that of its begin:

    h_j <- (c_j h_j + gleak_j vleak_j + sum_i s_ij sensory_erev_ij + sum_i a_ij erev_ij)
           / (c_j + gleak_j + sum_i s_ij + sum_i a_ij + 1e-8),    c_j = unfolds cm_j / ts

`timespans=` of a call gives ts, [T, B]; without it, ts = 1. `wiring` says which synapses there are.

w, sensory_w, cm and gleak have to be at least 0. Call `clip_parameters()` after each update, or take
implicit=True, with which their softplus is in their place.

Differs from ncps: numerator and denominator are multiplied by ts, so that h stays as it is over a time of 0,
for which ncps computes NaN. In ncps, implicit_param_constraints is True by default in the layer, and False in
the cell, as here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.types import Device

from linnet.base.options import check_size
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.timespans import WithoutTime, times_of

# Against a division by 0.
EPSILON = 1e-8
# Between which numbers the parameters of neurons and of synapses start, as in ncps.
NEURONS = {"gleak": (0.001, 1.0), "vleak": (-0.2, 0.2), "cm": (0.4, 0.6)}
SYNAPSES = {"w": (0.001, 1.0), "sigma": (3.0, 8.0), "mu": (0.3, 0.8)}
# Synapses from the inputs, and those between neurons.
KINDS = ("sensory_", "")
POSITIVE = ("w", "sensory_w", "cm", "gleak")
# The part of the synapses that excite at the start, in ncps.
EXCITING = 2 / 3

Matrix = Tensor | Sequence[Sequence[float]]


class LTCCell(Cell):
    """One step of LTC: x_t [B, input_size], h [B, hidden_size], timespans [B] -> y_t [B, motors], h.

    motors        the first `motors` neurons are the output; by default all
    unfolds       the steps of the solver in each time step
    implicit      the softplus of w, sensory_w, cm and gleak is in their place, so that they may be negative
    wiring        two matrices of 0 and 1: the synapses from inputs, [input_size, hidden_size], and those
                  between neurons, [hidden_size, hidden_size], from row to column; None: all. Matrices that
                  have a -1, too, as ncps' adjacency matrices, are also the start of erev
    input_heads   by default each channel of x is scaled on its own; 2 or more: x' is a product with a
                  block-diagonal matrix of this many blocks
    """

    reads_time = True
    constant_buffers = ("sensory_mask", "mask")

    gleak: Tensor
    vleak: Tensor
    cm: Tensor
    w: Tensor
    sigma: Tensor
    mu: Tensor
    erev: Tensor
    mask: Tensor | None
    sensory_w: Tensor
    sensory_sigma: Tensor
    sensory_mu: Tensor
    sensory_erev: Tensor
    sensory_mask: Tensor | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        motors: int = 0,
        unfolds: int = 6,
        implicit: bool = False,
        wiring: tuple[Matrix, Matrix] | None = None,
        **projection: Any,
    ):
        check_size("input_size", input_size)
        check_size("hidden_size", hidden_size)
        check_size("motors", motors, least=0, most=hidden_size)
        check_size("unfolds", unfolds)
        super().__init__(input_size, hidden_size, {"h": hidden_size}, motors)
        self.motors, self.unfolds, self.implicit = motors, unfolds, implicit
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        if projection.get("input_heads", 1) == 1:
            projection["input_heads"] = input_size
        self.input = WithoutTime(input_size, {"x": input_size}, bias, **where, **projection)
        for name in NEURONS:
            self.register_parameter(name, nn.Parameter(torch.empty(hidden_size, **where)))
        for kind, name in product(KINDS, (*SYNAPSES, "erev")):
            rows = input_size if kind else hidden_size
            self.register_parameter(kind + name, nn.Parameter(torch.empty(rows, hidden_size, **where)))
        self.output_w = nn.Parameter(torch.empty(self.output_size, **where))
        self.output_b = nn.Parameter(torch.empty(self.output_size, **where)) if bias else None
        self.wire(wiring)
        self.reset_parameters()

    def wire(self, wiring: tuple[Matrix, Matrix] | None) -> None:
        """Keep the matrices as buffers."""
        self.wiring = None if wiring is None else checked(wiring, self.input_size, self.hidden_size)
        for number, kind in enumerate(KINDS):
            mask = None if self.wiring is None else torch.tensor(self.wiring[number]).to(self.w)
            self.register_buffer(f"{kind}mask", mask)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Uniform numbers as in ncps, erev +-1, and mappings of input and output that change nothing."""
        clear_(self)
        for name, bounds in NEURONS.items():
            nn.init.uniform_(getattr(self, name), *bounds)
        for kind in KINDS:
            for name, bounds in SYNAPSES.items():
                nn.init.uniform_(getattr(self, kind + name), *bounds)
            erev, mask = getattr(self, f"{kind}erev"), getattr(self, f"{kind}mask")
            erev.bernoulli_(EXCITING).mul_(2).sub_(1)
            if mask is not None and (mask < 0).any():
                erev.copy_(torch.where(mask == 0, erev, mask))
        self.reset_mappings()

    def reset_mappings(self) -> None:
        nn.init.ones_(self.output_w)
        if self.output_b is not None:
            nn.init.zeros_(self.output_b)
        self.input.weight.copy_(identity_like(self.input.weight))

    def clip_parameters(self) -> None:
        """Set negative numbers of w, sensory_w, cm and gleak to 0; nothing to do with implicit=True."""
        with torch.no_grad():
            for name in () if self.implicit else POSITIVE:
                getattr(self, name).clamp_(min=0)

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        return {"ts": times_of(x, self.input_size)}

    def step(self, x: Tensor, ts: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        sensory_w, w = self.strengths(self.sensory_w, self.sensory_mask), self.strengths(self.w, self.mask)
        gleak, capacity = self.positive(self.gleak), self.unfolds * self.positive(self.cm)
        s = torch.sigmoid(self.sensory_sigma * (x[..., None] - self.sensory_mu))
        current = gleak * self.vleak + (s * (sensory_w * self.sensory_erev)).sum(-2)
        conductance = gleak + (s * sensory_w).sum(-2) + EPSILON
        driven = w * self.erev
        for _ in range(self.unfolds):
            a = torch.sigmoid(self.sigma * (h[..., None] - self.mu))
            above = current + (a * driven).sum(-2)
            below = conductance + (a * w).sum(-2)
            h = (capacity * h + ts * above) / (capacity + ts * below)
        return h, {"h": h}

    def strengths(self, w: Tensor, mask: Tensor | None) -> Tensor:
        """The largest conductances of the synapses that there are."""
        return self.positive(w) if mask is None else self.positive(w) * mask.abs()

    def positive(self, parameter: Tensor) -> Tensor:
        return softplus(parameter) if self.implicit else parameter

    def output(self, y: Tensor, state: Named) -> Tensor:
        return state["h"]

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        y = y[..., : self.output_size] * self.output_w
        return y if self.output_b is None else y + self.output_b


def identity_like(weight: Tensor) -> Tensor:
    """The numbers of a block-diagonal [channels, channels of a block] that make it the identity."""
    channels, within = weight.shape
    return torch.eye(within, device=weight.device, dtype=weight.dtype).repeat(channels // within, 1)


def checked(wiring: Any, input_size: int, hidden_size: int) -> tuple:
    """The two matrices as tuples of rows."""
    expected = (
        f"wiring is two matrices of 0, 1 and -1: of the synapses from inputs, {(input_size, hidden_size)}, "
        f"and of those between neurons, {(hidden_size, hidden_size)}"
    )
    if not isinstance(wiring, (tuple, list)) or len(wiring) != 2:
        raise TypeError(f"{expected}; got {type(wiring).__name__}")
    matrices = [torch.as_tensor(matrix) for matrix in wiring]
    shapes = [tuple(matrix.shape) for matrix in matrices]
    if shapes != [(input_size, hidden_size), (hidden_size, hidden_size)]:
        raise ValueError(f"{expected}; got {shapes[0]} and {shapes[1]}")
    for matrix in matrices:
        others = matrix[(matrix != 0) & (matrix.abs() != 1)]
        if len(others):
            raise ValueError(f"{expected}; got a matrix with {others[0].item():g}")
    return tuple(tuple(map(tuple, matrix.tolist())) for matrix in matrices)


class LTC(Recurrent, cell=LTCCell):
    """The liquid time-constant unit (Hasani et al. 2021)."""

    def clip_parameters(self) -> None:
        """Set negative conductances and capacities of all layers to 0; call it after each update."""
        for cell in self.cells:
            cell.clip_parameters()
