"""SRU, the simple recurrent unit: a light recurrence under a highway.

Lei, Zhang, Wang, Dai and Artzi (2018), section 3:

    f_t = sigmoid(W_f x_t + v_f c_{t-1} + b_f)      (1)
    c_t = f_t c_{t-1} + (1 - f_t) (W x_t)           (2)
    r_t = sigmoid(W_r x_t + v_r c_{t-1} + b_r)      (3)
    h_t = r_t g(c_t) + (1 - r_t) x_t alpha          (4)

with g the identity and alpha = sqrt(1 + 2 exp(b)), b the start of b_r, so that the variance of h
is that of x (section 3.2 and appendix A). Where x and h differ in size, the skip is a fourth
product W_s x_t, and alpha enters its initialisation only.

The initial weights keep the variance of x, whatever it is: that of c starts between a third of it and
all of it. v starts with a variance of 1/2 and W_f, W_r with one of 1/(2 d), so c and x of variance one
move the gates; if x is small, c is, and the gates stay near 1/2.

Differs from the paper's Algorithm 1, in which r_t reads the new c_t: equation (3) and the authors'
code read the old one, and so does this file. A bidirectional layer whose input is as wide as both
directions together skips with one half of x in each; any other has a fourth matrix. So does the
authors' code.

The first version of the paper (v1, 2017) had neither v nor alpha, and tanh for g:
recurrent_gates=False, rescale=False, activation="tanh".
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_rate, check_size, choose
from linnet.program.padding import only_selects
from linnet.program.unit import Named
from linnet.recurrent.activations import pointwise
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.masks import keep_mask, over_time
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent


class SRUCell(Cell):
    """One step of SRU: x_t [B, input_size], c [B, hidden_size] -> h_t [B, hidden_size], c.

    activation        g in (4): "identity" (the paper) or "tanh"
    recurrent_gates   False removes v_f c and v_r c (Table 5)
    rescale           False sets alpha = 1 (Table 5)
    highway           False removes the skip: h = r g(c) (Table 5)
    highway_bias      the start of b_r; the paper's language models take -3
    skip              "auto": x where the sizes agree, else a fourth matrix; "matrix": always a matrix
    rank              W = P Q through `rank` dimensions if x has more (Table 4: 512); 0: a full matrix
    cell_dropout      one mask over time; in a stack of several layers, in all but the last
    cell_dropout_on   "state": h = r (m g(c)) + (1 - r) x, at the time of the paper;
                      "gate": h = (m r) g(c) + (1 - m r) x, in the authors' code since March 2020
    full_bias         biases on all products, as in the SRU of the LRN authors
    skip_from         where in x the skip starts; set by the stack for bidirectional layers
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        activation: str = "identity",
        recurrent_gates: bool = True,
        rescale: bool = True,
        highway: bool = True,
        highway_bias: float = 0.0,
        skip: str = "auto",
        rank: int = 0,
        cell_dropout: float = 0.0,
        cell_dropout_on: str = "state",
        full_bias: bool = False,
        skip_from: int | None = None,
        **projection: Any,
    ):
        super().__init__(input_size, hidden_size, states={"c": hidden_size})
        check_size("rank", rank, least=0)
        check_number("highway_bias", highway_bias)
        choose("skip", skip, ("auto", "matrix"))
        choose("cell_dropout_on", cell_dropout_on, ("state", "gate"))
        check_rate("cell_dropout", cell_dropout)
        self.g = pointwise(activation)
        self.highway, self.highway_bias, self.rescale = highway, highway_bias, rescale
        self.cell_dropout, self.cell_dropout_on = cell_dropout, cell_dropout_on
        if skip_from is None and input_size == hidden_size:
            skip_from = 0
        if skip_from is not None and not 0 <= skip_from <= input_size - hidden_size:
            raise ValueError(
                f"skip_from={skip_from} leaves no {hidden_size} channels of the {input_size} of x to skip by"
            )
        self.skip_from = None if skip == "matrix" or not highway else skip_from
        self.skips_by_matrix = highway and self.skip_from is None
        self.alpha = 1.0 if self.skips_by_matrix else self.variance_correction
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        parts = dict.fromkeys((*(["skip"] if self.skips_by_matrix else []), "u", "f", "r"), hidden_size)
        biased = (True if full_bias else ("f", "r")) if bias else False
        # As in the authors' code, an input no wider than the rank has nothing to gain by it.
        rank = rank if rank < input_size else 0
        self.input = Projection(input_size, parts, biased, rank=rank, **where, **projection)
        self.v_f = nn.Parameter(torch.empty(hidden_size, **where)) if recurrent_gates else None
        self.v_r = nn.Parameter(torch.empty(hidden_size, **where)) if recurrent_gates else None
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        """Each of two directions skips with half of x; the last of several layers has no cell dropout."""
        if position["input_size"] == position["num_directions"] * position["hidden_size"]:
            options = {"skip_from": position["direction"] * position["hidden_size"], **options}
        elif position["num_directions"] > 1:
            options = {**options, "skip": "matrix"}
        if 0 < position["layer"] == position["num_layers"] - 1:
            options = {**options, "cell_dropout": 0.0}
        return options

    @property
    def variance_correction(self) -> float:
        return math.sqrt(1 + 2 * math.exp(self.highway_bias)) if self.rescale else 1.0

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Weights of variance 1/d (section 3.2), made smaller where a gate adds a second term or a mask."""
        clear_(self)
        for weight in (self.input.weight, self.input.reduce):
            if weight is not None:
                bound = math.sqrt(3 / weight.shape[1])
                nn.init.uniform_(weight, -bound, bound)
        self.input.weight_of("u").mul_(math.sqrt(1 - self.cell_dropout))
        self.input.weight.mul_(math.sqrt(1 - self.input.input_dropout))
        if isinstance(self.input.prenorm, nn.LayerNorm):
            self.input.weight.mul_(0.1)
        if self.skips_by_matrix:
            self.input.weight_of("skip").mul_(self.variance_correction)
        if self.input.bias is not None:
            self.input.bias_of("r").fill_(self.highway_bias)
        self.reset_recurrent_gates()

    def reset_recurrent_gates(self) -> None:
        """W_f x and v_f c share the variance of the gate, one half each."""
        if self.v_f is None or self.v_r is None:
            return
        for name, v in (("f", self.v_f), ("r", self.v_r)):
            self.input.weight_of(name).mul_(math.sqrt(0.5))
            nn.init.uniform_(v, -math.sqrt(1.5), math.sqrt(1.5))

    @only_selects
    def extra_inputs(self, x: Tensor) -> Named:
        parts = {}
        if self.skip_from is not None:
            parts["skip"] = x[..., self.skip_from : self.skip_from + self.hidden_size]
        if self.training and self.cell_dropout:
            mask = keep_mask(over_time(x, self.hidden_size), self.cell_dropout, like=x)
            parts["m"] = mask.expand(*x.shape[:-1], -1)
        return parts

    def step(
        self, u: Tensor, f: Tensor, r: Tensor, c: Tensor, skip: Tensor | None = None, m: Tensor | None = None
    ) -> tuple[Tensor, Named]:
        f = self.gate(f, self.v_f, c)  # (1)
        r = self.gate(r, self.v_r, c)  # (3)
        c = f * c + (1 - f) * u  # (2)
        g = self.g(c)
        if m is not None:
            g, r = (m * g, r) if self.cell_dropout_on == "state" else (g, m * r)
        h = r * g
        if skip is not None:
            h = h + (1 - r) * (skip * self.alpha)  # (4)
        return h, {"c": c}

    def gate(self, a: Tensor, v: Tensor | None, c: Tensor) -> Tensor:
        return torch.sigmoid(a if v is None else a + v * c)


class SRU(Recurrent, cell=SRUCell):
    """The simple recurrent unit (Lei et al. 2018)."""
