"""LRU, LinOSS and HGRN: complex states, and outputs that are read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, of_cell
from golden_today import check, close, over_files, paths, run
from torch import Tensor

import linnet


def start_of(v: Vectors, *names: str) -> tuple[Tensor, ...] | None:
    """The initial state, if the file has one."""
    return tuple(v[f"s0.{name}"][None] for name in names) if f"s0.{names[0]}" in v else None


def finals_of(v: Vectors, state: Any, *names: str) -> dict[str, Tensor]:
    states = (state,) if isinstance(state, Tensor) else state
    return {name: s[0] for name, s in zip(names, states, strict=True) if f"sT.{name}" in v}


def readout(v: Vectors, re: Tensor, im: Tensor) -> dict[str, Tensor]:
    return {"out.c.weight": torch.cat([re, -im], 1), "out.d": v["w.D"]}


# ---------------------------------------------------------------------------------------------- LRU


@over_files("lru")
def test_lru_computes_what_its_source_does(path: Path, backend: str | None):
    v = Vectors(path)
    size, hidden = v["x"].shape[-1], len(v["w.nu_log"])
    rnn = linnet.LRU(size, hidden, model_size=size)
    parameters = {
        "input.weight": torch.cat([v["w.B_re"], v["w.B_im"]]),
        "nu": v["w.nu_log"],
        "theta": v["w.theta_log"],
        "gamma": v["w.gamma_log"],
        **readout(v, v["w.C_re"], v["w.C_im"]),
    }
    y, state = run(rnn, of_cell(parameters), v["x"], start_of(v, "h_re", "h_im"), backend=backend)
    check(v, y, finals_of(v, state, "h_re", "h_im"))


@pytest.mark.parametrize("path", paths("lru", "init*.npz"), ids=lambda path: path.stem)
def test_lru_starts_on_the_ring_of_its_source(path: Path):
    v = Vectors(path)
    for kind in {key.split(".")[0] for key in v.tensors if key.endswith("r_min_max_phase")}:
        r_min, r_max, max_phase = v[f"{kind}.r_min_max_phase"].tolist()
        cell = linnet.LRUCell(3, len(v["u_nu"]), r_min=r_min, r_max=r_max, max_phase=max_phase)
        starts = cell.on_ring(v["u_nu"], v["u_theta"])
        for name, start in zip(("nu_log", "theta_log", "gamma_log"), starts, strict=True):
            close(start, v[f"{kind}.{name}"], 1e-12, name)


def test_lru_has_the_papers_parameters():
    size, hidden = 6, 5
    rnn = linnet.LRU(size, hidden, model_size=size)
    assert sum(p.numel() for p in rnn.parameters()) == 4 * hidden * size + 3 * hidden + size


def test_a_ring_needs_an_inner_and_an_outer_circle():
    with pytest.raises(ValueError, match="0 <= r_min < r_max <= 1"):
        linnet.LRU(3, 4, r_min=0.9, r_max=0.5)


# ------------------------------------------------------------------------------------------- LinOSS


@over_files("linoss")
def test_linoss_computes_what_its_source_does(path: Path, backend: str | None):
    v = Vectors(path)
    size, hidden = v["x"].shape[-1], len(v["w.A_diag"])
    rnn = linnet.LinOSS(size, hidden, model_size=size, discretization=v.meta["discretization"])
    parameters = {
        "input.weight": torch.cat(v["w.B"].unbind(-1)),
        "a": v["w.A_diag"],
        "steps": v["w.steps"],
        **readout(v, *v["w.C"].unbind(-1)),
    }
    names = rnn.first_cell.State._fields
    y, state = run(rnn, of_cell(parameters), v["x"], start_of(v, *names), backend=backend)
    check(v, y, finals_of(v, state, *names))


def test_linoss_has_the_papers_parameters():
    size, hidden = 6, 5
    rnn = linnet.LinOSS(size, hidden, model_size=size)
    assert sum(p.numel() for p in rnn.parameters()) == 4 * hidden * size + 2 * hidden + size


# --------------------------------------------------------------------------------------------- HGRN


def gamma_for(bound: Tensor) -> Tensor:
    """Gamma of two layers, of which the second has this lower bound."""
    return torch.stack([torch.zeros_like(bound), torch.logit(bound)])


@over_files("hgrn", "fla_layer*.npz")
def test_hgrn_computes_what_flash_linear_attention_does(path: Path, backend: str | None):
    v = Vectors(path)
    size, hidden = v["x"].shape[-1], len(v["w.i_proj.weight"])
    bounded = "w.lower_bounds" in v and v.meta["layer_idx"] > 0
    place = {"layer": v.meta["layer_idx"], "layers": len(v["w.lower_bounds"])} if bounded else {}
    rnn = linnet.HGRN(size, hidden, bias=False, model_size=size, norm_eps=v.meta["norm_eps"], **place)
    parameters = {
        "input.weight": torch.cat([v["w.i_proj.weight"], v["w.f_proj.weight"]]),
        "gate.weight": v["w.g_proj.weight"],
        "norm.weight": v["w.g_norm.weight"],
        "out.weight": v["w.o_proj.weight"],
        **({"gamma": v["w.lower_bounds"]} if bounded else {}),
    }
    start = v["s0.h"][None] if "s0.h" in v else None
    y, state = run(rnn, of_cell(parameters), v["x"], start, backend=backend)
    check(v, y, finals_of(v, state, "h"))


def in_pairs(weight: Tensor) -> Tensor:
    """Rows that alternate between real and imaginary parts, as all real and then all imaginary ones."""
    return torch.cat([weight[0::2], weight[1::2]])


def two_factors(v: Vectors, name: str) -> tuple[Tensor, Tensor | None]:
    """A matrix and its bias; in later versions of the source it is a product of two."""
    if f"w.{name}.weight" in v:
        return v[f"w.{name}.weight"], v.tensors.get(f"w.{name}.bias")
    (first, shift), (second, bias) = (
        [v[f"w.{name}.{i}.{kind}"] for kind in ("weight", "bias")] for i in "01"
    )
    return second @ first, second @ shift + bias


@over_files("hgrn", "complex*.npz", "real*.npz")
def test_hgrn_computes_what_its_first_author_does(path: Path, backend: str | None):
    v = Vectors(path)
    is_complex, bounded, biased = "w.theta" in v, "w.lower_bound" in v, "w.input_proj.bias" in v
    size, gated = v["x"].shape[-1], "LN(f * gate)" in v.meta["equations"]
    order = in_pairs if is_complex else (lambda weight: weight)
    place = {"layer": 1, "layers": 2} if bounded else {}
    how = {"norm_of": "gated" if gated else "state", "output_norm": "layer", "complex": is_complex}
    rnn = linnet.HGRN(size, size, bias=biased, **how, **place)
    forget, gate = two_factors(v, "lambda_proj"), two_factors(v, "gate")
    parameters = {
        "input.weight": torch.cat([order(v["w.input_proj.weight"]), forget[0]]),
        "gate.weight": gate[0],
        "norm.weight": v["w.norm.weight"],
        "norm.bias": v["w.norm.bias"],
        "out.weight": v["w.out_proj.weight"],
    }
    if biased:
        parameters |= {"input.bias": torch.cat([order(v["w.input_proj.bias"]), forget[1]])}
        parameters |= {"gate.bias": gate[1], "out.bias": v["w.out_proj.bias"]}
    parameters |= {"gamma": gamma_for(v["w.lower_bound"])} if bounded else {}
    parameters |= {"theta": v["w.theta"].flatten()} if is_complex else {}
    y, _ = run(rnn, of_cell(parameters), v["x"], backend=backend)
    check(v, y, {})


@pytest.mark.parametrize("path", paths("hgrn", "complex*.npz"), ids=lambda path: path.stem)
def test_hgrn_starts_with_rotary_phases(path: Path):
    v = Vectors(path)
    cell = linnet.HGRNCell(3, v["init.theta"].numel(), complex=True, dtype=torch.float64)
    close(cell.theta, v["init.theta"].flatten(), 1e-12, "theta")


class DecayCell(linnet.Cell):
    """h = exp(g) h + x, the operation under HGRN, with g and x as they are given."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **projection):
        super().__init__(input_size, hidden_size, {"h": hidden_size})
        parts = {"g": hidden_size, "content": hidden_size}
        self.input = linnet.Projection(input_size, parts, device=device, dtype=dtype, **projection)

    def step(self, g: Tensor, content: Tensor, h: Tensor):
        h = torch.exp(g) * h + content
        return h, {"h": h}


class Decay(linnet.Recurrent, cell=DecayCell):
    """A linear recurrence with a given decay."""


@over_files("hgrn", "fla_op*.npz")
def test_a_linear_recurrence_computes_what_flash_linear_attention_does(path: Path, backend: str | None):
    v = Vectors(path)
    size = v["x"].shape[-1]
    parameters = {"input.weight": torch.eye(2 * size, dtype=torch.float64)}
    given = torch.cat([v["g"], v["x"]], -1)
    y, state = run(Decay(2 * size, size), of_cell(parameters), given, v["s0.h"][None], backend=backend)
    check(v, y, finals_of(v, state, "h"))


def test_hgrn_has_the_parameters_of_its_sources():
    d = 6
    count = lambda **options: sum(p.numel() for p in linnet.HGRN(d, d, **options).parameters())  # noqa: E731
    assert count(bias=False) == 4 * d * d + d
    assert count(output_norm="layer") == 4 * d * d + 6 * d
    # Two more matrices of contents and gates, of which the source counts theta apart.
    assert count(complex=True, output_norm="layer") == 7 * d * d + 11 * d


def test_lower_bounds_rise_with_depth_and_are_learned_together():
    rnn = linnet.HGRN(4, 4, num_layers=4, bounds="shared")
    gammas = [cell.gamma for cell in rnn.cells]
    assert gammas[0] is None
    assert all(gamma is gammas[1] for gamma in gammas[1:])
    bounds = [cell.bound(cell.gamma) for cell in rnn.cells[1:]]
    torch.testing.assert_close(torch.stack(bounds), torch.tensor([[0.25], [0.5], [0.75]]).expand(3, 4))
