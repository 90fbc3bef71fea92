"""FastRNN and FastGRNN: the authors' numbers, their initial values, low rank, piecewise linear functions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors
from golden_today import check, over_files, run
from helpers import liven, randn, same
from torch import Tensor

import linnet

over_both = pytest.mark.parametrize("unit", [linnet.FastRNN, linnet.FastGRNN], ids=lambda unit: unit.__name__)
PIECEWISE = {"gate": "quantSigm", "update": "quantTanh"}

# Ours by theirs. A matrix W [in, out] may be the product of W1 and W2.
MATRICES = {"W": "input.weight", "W1": "input.reduce", "W2": "input.weight"}
MATRICES |= {"U": "recurrent.weight", "U1": "recurrent.weight", "U2": "expand.weight"}
VECTORS = {
    linnet.FastRNN: {"bias_update": "input.bias", "alpha": "alpha", "beta": "beta"},
    linnet.FastGRNN: {"bias_update": "b_c", "bias_gate": "b_z", "zeta": "zeta", "nu": "nu"},
}


def weight(v: Vectors, name: str, direction: int) -> Tensor | None:
    """Both directions share their weights, unless those of the other one are called "reverse"."""
    keys = [f"w.cell_reverse.{name}"] if direction else []
    return next((v[key] for key in (*keys, f"w.cell.{name}", f"w.{name}") if key in v), None)


def parameters(v: Vectors, unit: type[linnet.Recurrent], direction: int) -> dict[str, Tensor]:
    found = {ours: weight(v, name, direction) for name, ours in MATRICES.items() if holds(v, name)}
    found = {ours: matrix.T for ours, matrix in found.items() if matrix is not None}
    vectors = {ours: weight(v, name, direction) for name, ours in VECTORS[unit].items()}
    found |= {ours: vector.flatten() for ours, vector in vectors.items() if vector is not None}
    return {f"directions.{direction}.cell.{name}": tensor for name, tensor in found.items()}


def holds(v: Vectors, name: str) -> bool:
    return weight(v, name, 0) is not None


def compare(v: Vectors, unit: type[linnet.Recurrent], backend: str | None, **options: Any) -> None:
    directions = 2 if v.meta["bidirectional"] else 1
    ranks = {"rank": v.meta["wRank"] or 0, "recurrent_rank": v.meta["uRank"] or 0}
    sizes = v["x"].shape[-1], v["out"].shape[-1] // directions
    rnn = unit(*sizes, bidirectional=directions == 2, **ranks, **options)
    named = {key: t for number in range(directions) for key, t in parameters(v, unit, number).items()}
    start = v["s0.h"].reshape(directions, -1, sizes[1]) if "s0.h" in v else None
    y, h = run(rnn, named, v["x"], start, backend=backend)
    if directions == 2:  # the authors' code does not reverse the output of the second direction again
        y = torch.cat([y[..., : sizes[1]], y[..., sizes[1] :].flip(0)], -1)
    check(v, y, {"h": h.reshape(v["sT.h"].shape)} if "sT.h" in v else {})


@over_files("fastrnn")
def test_the_authors_numbers_of_fastrnn(path: Path, backend: str | None):
    v = Vectors(path)
    compare(v, linnet.FastRNN, backend, update=v.meta["update_nonlinearity"])


@over_files("fastgrnn")
def test_the_authors_numbers_of_fastgrnn(path: Path, backend: str | None):
    v = Vectors(path)
    functions = {"gate": v.meta["gate_nonlinearity"], "update": v.meta["update_nonlinearity"]}
    compare(v, linnet.FastGRNN, backend, **functions)


# ---------------------------------------------------------------------------- initial values


@over_both
@torch.no_grad()
def test_matrices_start_with_a_deviation_of_a_tenth_and_biases_with_one(unit: Any):
    torch.manual_seed(0)
    cell = unit(64, 64, rank=40, recurrent_rank=40).first_cell
    for name, parameter in cell.named_parameters():
        if parameter.dim() == 2:
            assert parameter.std() == pytest.approx(0.1, rel=0.05)
            assert abs(parameter.mean()) < 0.01
        elif parameter.numel() > 1:
            assert (parameter == 1).all(), name


def test_the_numbers_for_all_channels():
    fast, gated = linnet.FastRNN(3, 4).first_cell, linnet.FastGRNN(3, 4).first_cell
    started = [(fast.alpha, -3.0), (fast.beta, 3.0), (gated.zeta, 1.0), (gated.nu, -4.0)]
    assert all(number.shape == (1,) and number.item() == value for number, value in started)


@over_both
def test_without_biases(unit: Any):
    """All that is left is matrices and the two numbers: from 0, zeros stay 0."""
    rnn = unit(3, 4, bias=False)
    assert sorted(p.dim() for p in rnn.parameters()) == [1, 1, 2, 2]
    y, _ = rnn(torch.zeros(5, 2, 3))
    expected = torch.zeros_like(y)
    same(y, expected, atol=0)


# ---------------------------------------------------------------------------- low rank


@over_both
@pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])
def test_low_rank_is_the_product_of_two_matrices(unit: Any, backend: str | None):
    small = liven(unit(5, 6, rank=2, recurrent_rank=3))
    full = liven(unit(5, 6))
    ours, theirs = small.first_cell, full.first_cell
    weights = dict(small.named_parameters())
    with torch.no_grad():
        for name, parameter in full.named_parameters():
            if parameter.shape == weights[name].shape:
                parameter.copy_(weights[name])
        theirs.input.weight.copy_(ours.input.weight @ ours.input.reduce)
        theirs.recurrent.weight.copy_(ours.expand.weight @ ours.recurrent.weight)
    x, h = randn(7, 3, 5), randn(1, 3, 6, seed=1)
    with linnet.backend(backend):
        same(small(x, h), full(x, h))


@over_both
def test_a_reset_to_a_state_after_a_call_without_one(unit: Any):
    """With one channel the two calls have plans of different sorts, with different weights."""
    rnn = liven(unit(2, 1, recurrent_rank=3))
    x, h = randn(3, 2, 2), randn(1, 2, 1, seed=1)
    how = {"resets": torch.tensor([[False], [True], [False]]).expand(3, 2), "reset_state": 2 * h}
    rnn(x, h)
    ours = rnn(x, h, **how)
    with linnet.backend("reference"):
        same(ours, rnn(x, h, **how))


@over_both
@pytest.mark.parametrize("option", ["rank", "recurrent_rank"])
def test_a_rank_is_a_whole_number(unit: Any, option: str):
    with pytest.raises(ValueError, match=f"{option} must be at least 0; got -1"):
        unit(3, 4, **{option: -1})
    with pytest.raises(TypeError, match=f"{option} must be an int; got 0.5"):
        unit(3, 4, **{option: 0.5})


# ---------------------------------------------------------------------------- piecewise linear functions


@torch.no_grad()
@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ("quantTanh", [-1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0]),
        ("quantSigm", [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]),
        ("quantSigm4", [0.0, 0.25, 0.375, 0.5, 0.625, 0.75, 1.0]),
    ],
)
def test_the_functions_by_hand(update: str, expected: list[float]):
    """W = 1, U = 0 and sigmoid(alpha) = 1 / 2: from h = 0, one step gives half of the function of x."""
    rnn = linnet.FastRNN(1, 1, bias=False, update=update, dtype=torch.double)
    for parameter, value in zip(rnn.parameters(), (0.0, 0.0, 1.0, 0.0), strict=True):
        parameter.fill_(value)
    x = torch.tensor([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0], dtype=torch.double)
    y, _ = rnn(x[None, :, None])
    same(2 * y[0, :, 0], torch.tensor(expected, dtype=torch.double), atol=0, rtol=0)


@pytest.mark.parametrize("option", ["gate", "update"])
def test_an_unknown_function(option: str):
    with pytest.raises(ValueError, match=f"{option} must be one of 'tanh', 'sigmoid', .*; got 'quant'"):
        linnet.FastGRNN(3, 4, **{option: "quant"})


def exported(folder: Path, int8: bool, **options: Any) -> str:
    rnn = linnet.FastGRNN(8, 16, **options)
    model = linnet.quantize(rnn) if int8 else rnn
    return (linnet.export_c(model, folder) / "model.c").read_text(encoding="utf-8")


@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("ranks", [{}, {"rank": 2, "recurrent_rank": 3}], ids=["full", "low rank"])
def test_exported_c_computes_piecewise_linear_functions_by_clamps(tmp_path: Path, int8: bool, ranks: Any):
    """No exponential is left: sigmoid(zeta) and sigmoid(nu) are numbers when the model is exported."""
    exponential = re.compile(r"\b(?:expf?|tanhf?|sigmoid)\(")
    assert exponential.search(exported(tmp_path / "smooth", int8, **ranks))
    code = exported(tmp_path / "linear", int8, **ranks, **PIECEWISE)
    assert not exponential.search(code)
    assert len(re.findall(r"= minimum\(maximum\(", code)) == 2


def test_exported_c_keeps_the_small_matrices(tmp_path: Path):
    code = exported(tmp_path, int8=True, rank=2, recurrent_rank=3)
    names = ("input_reduce", "input_weight", "recurrent_weight", "expand_weight")
    sizes = [int(re.search(rf"int8_t layer0_{name}\[(\d+)\]", code)[1]) for name in names]  # type: ignore[index]
    assert sizes == [2 * 8, 16 * 2, 3 * 16, 16 * 3]


def test_a_quantised_unit_of_low_rank_says_why_it_runs_on_the_loop():
    with torch.no_grad():
        text = str(
            linnet.explain(linnet.quantize(linnet.FastGRNN(8, 8, recurrent_rank=3)), torch.zeros(5, 2, 8))
        )
    assert "loop: it has products within its step, and a weight for all channels" in text
