"""HGRN, the hierarchically gated recurrent network: forget gates that are at least so large, layer by layer.

Qin, Yang and Zhong (2023):

    f_t = lb + (1 - lb) sigmoid(W_f x_t + b_f)
    h_t = f_t e^{i theta} h_{t-1} + (1 - f_t) SiLU(W_i x_t + b_i)
    y_t = W_o (norm(h_t) SiLU(W_g x_t + b_g)) + b_o

The lower bounds lb rise with depth: lb_l is row l of cumsum(softmax(Gamma)) - softmax(Gamma)_0, where the
softmax is over the layers; so upper layers remember for longer, and the first has none.

In the paper h is complex (complex=True): the state is the pair (re, im), theta is learned and starts as the
phases of rotary position embeddings, and what is normalised is [re, im]. Linear-attention libraries have the
real form, theta = 0, which is the default here.

Differs from the paper in that each layer has its own Gamma, which starts as the same: a parameter that layers
share is refused by some formats of checkpoints. bounds="shared" is the paper's. And as code in use does: the
paper normalises the gated state (norm_of="gated"), the
authors' first unit and flash-linear-attention gate the normalised one ("state", the default). The authors'
CUDA code of later versions has a sigmoid for the output gate (output_gate="sigmoid").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.types import Device

from linnet.base.options import check_number, check_size, choose
from linnet.program.unit import Named, Stage
from linnet.recurrent.cell import Cell
from linnet.recurrent.init import clear_
from linnet.recurrent.pairs import ComplexState, side_by_side
from linnet.recurrent.projection import Projection, norm_layer
from linnet.recurrent.recurrent import Recurrent

OUTPUT_GATES: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


class HGRNCell(Cell):
    """One step of HGRN: x_t [B, input_size], h [B, hidden_size] -> y_t [B, output_size], h.

    complex        h is complex: the state is (re, im)
    model_size     the size of y; by default hidden_size
    bounds         "own": each layer learns a Gamma; "shared": all learn one, as in the paper; None: lb = 0
    output_norm    "rms", "layer" or None
    norm_of        "state": norm(h) g; "gated": norm(h g), as in the paper
    output_gate    the activation of g: "silu" or "sigmoid"
    norm_eps       that of the norm; by default 1e-6 for "rms" and 1e-5 for "layer", as in the sources
    layer          the place of the cell in a stack, which sets it
    layers         how many layers the stack has, which sets it
    """

    # Gamma and theta say what every step does; they are trained slowly, and without weight decay.
    slow_parameters = ("gamma", "theta")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        complex: bool = False,
        model_size: int = 0,
        bounds: str | None = "own",
        output_norm: str | None = "rms",
        norm_of: str = "state",
        output_gate: str = "silu",
        norm_eps: float | None = None,
        layer: int = 0,
        layers: int = 1,
        **projection: Any,
    ):
        check_size("model_size", model_size, least=0)
        choose("bounds", bounds, ("own", "shared", None))
        if norm_eps is not None:
            check_number("norm_eps", norm_eps, least=0)
        choose("norm_of", norm_of, ("state", "gated"))
        choose("output_gate", output_gate, OUTPUT_GATES)
        names = ComplexState._fields if complex else ("h",)
        super().__init__(input_size, hidden_size, dict.fromkeys(names, hidden_size), model_size)
        self.complex, self.norm_of, self.output_gate, self.norm_eps = complex, norm_of, output_gate, norm_eps
        self.bounds, self.layer, self.layers, self.model_size = bounds, layer, layers, model_size
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        contents = ("i_re", "i_im") if complex else ("i",)
        parts = dict.fromkeys((*contents, "f"), hidden_size)
        self.input = Projection(input_size, parts, bias, **where, **projection)
        wide = len(names) * hidden_size
        self.gate = Projection(input_size, {"g": wide}, bias, **where)
        self.out = Projection(wide, {"y": self.output_size}, bias, **where)
        eps = {"rms": 1e-6}.get(str(output_norm), 1e-5) if norm_eps is None else norm_eps
        self.norm = norm_layer("output_norm", output_norm, wide, eps, **where)
        # The first layer has no bound, so Gamma is that of the others.
        bounded = bounds is not None and layer > 0
        self.gamma = nn.Parameter(torch.empty(layers, hidden_size, **where)) if bounded else None
        if complex:
            self.theta = nn.Parameter(torch.empty(hidden_size, **where))
            self.State = ComplexState  # type: ignore[misc]
        self.reset_parameters()

    @classmethod
    def options_at(cls, options: dict[str, Any], **position: int) -> dict[str, Any]:
        return {"layer": position["layer"], "layers": position["num_layers"], **options}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """N(0, 0.02) for matrices, lb_l = l / layers, theta_j = 10000^(-2j/d)."""
        clear_(self)
        for projection in (self.input, self.gate, self.out):
            nn.init.normal_(projection.weight, std=0.02)
        if self.gamma is not None:
            nn.init.zeros_(self.gamma)
        if self.complex:
            self.theta.copy_(rotary_phases(self.hidden_size))

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("complex_step" if self.complex else "step", tuple(self.states)),)

    def step(self, i: Tensor, f: Tensor, h: Tensor) -> tuple[Tensor, Named]:
        f = self.forget(f)
        h = f * h + (1 - f) * F.silu(i)
        return h, {"h": h}

    def complex_step(
        self, i_re: Tensor, i_im: Tensor, f: Tensor, re: Tensor, im: Tensor
    ) -> tuple[Tensor, Named]:
        f, cos, sin = self.forget(f), torch.cos(self.theta), torch.sin(self.theta)
        new_re = f * (cos * re - sin * im) + (1 - f) * F.silu(i_re)
        new_im = f * (cos * im + sin * re) + (1 - f) * F.silu(i_im)
        return new_re, {"re": new_re, "im": new_im}

    def forget(self, f: Tensor) -> Tensor:
        f = torch.sigmoid(f)
        if self.gamma is None:
            return f
        lb = self.bound(self.gamma)
        return lb + (1 - lb) * f

    def bound(self, gamma: Tensor) -> Tensor:
        shares = torch.softmax(gamma, 0)
        return shares[1 : self.layer + 1].sum(0)

    def output(self, y: Tensor, state: Named) -> Tensor:
        return side_by_side(state, "re", "im") if self.complex else y

    def read_out(self, y: Tensor, x: Tensor) -> Tensor:
        # Autocast may have computed it in another dtype than that of the norm.
        y = y.to(getattr(self.norm, "weight", self.out.weight).dtype)
        g = OUTPUT_GATES[self.output_gate](self.gate(x)["g"])
        y = self.norm(y) * g if self.norm_of == "state" else self.norm(y * g)
        return self.out(y)["y"]


def rotary_phases(size: int) -> Tensor:
    return 10000.0 ** (-2.0 * torch.arange(size, dtype=torch.float64) / size)


class HGRN(Recurrent, cell=HGRNCell):
    """The hierarchically gated recurrent network (Qin et al. 2023)."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        bounded = [cell for cell in self.cells if cell.bounds == "shared" and cell.gamma is not None]
        for cell in bounded[1:]:
            cell.gamma = bounded[0].gamma
