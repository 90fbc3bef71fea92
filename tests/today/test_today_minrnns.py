"""MinGRU and MinLSTM: recorded numbers of four sources, long sequences, options, and foreign weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors
from golden_today import check, over_files, run
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert
from linnet.recurrent.activations import positive

UNITS = {"mingru": linnet.MinGRU, "minlstm": linnet.MinLSTM}
UNIT_CLASSES = [linnet.MinGRU, linnet.MinLSTM]


# ------------------------------------------------------------------------------- recorded numbers


def source_of(v: Vectors) -> str | None:
    """Which implementation a file is of; None: the equations in print."""
    if "w.layers.0.weight" in v:
        return "pufferlib"
    if "w.to_hidden_and_gate.bias" in v:
        return "minrnns"
    return "mingru_pytorch" if any(key.startswith("to_hidden") for key in v.weights()) else None


def stack_of(v: Vectors) -> linnet.Recurrent:
    source, size = source_of(v), v["sT.h"].shape[-1]
    options: dict[str, Any] = {"bias": source in (None, "minrnns")}
    if source == "pufferlib":
        options |= {"highway": True, "num_layers": v.meta["num_layers"]}
    if source is None:
        options["activation"] = "positive" if v.meta["log_space_scan"] else "identity"
    if "w.to_out.weight" in v:
        options["proj_size"] = len(v["w.to_out.weight"])
    if "w.init_hidden_state" in v:
        options["learned_start"] = True
    if v.meta["unit"] == "minlstm" and source == "minrnns":
        options["normalised"] = v.meta["use_coeff_norm"]
    return UNITS[v.meta["unit"]](v["x"].shape[-1], size, **options)


def parameters_of(v: Vectors, rnn: linnet.Recurrent) -> dict[str, Tensor]:
    source = source_of(v)
    if source is not None:
        return convert(rnn, v.weights(), source)
    order = ("h", "z") if v.meta["unit"] == "mingru" else ("h", "f", "i")
    return {
        f"directions.0.cell.input.{kind}": torch.cat([v[f"w.linear_{name}_{kind}"] for name in order])
        for kind in ("weight", "bias")
    }


@over_files("mingru")
def test_recorded_numbers_of_mingru(path: Path, backend: str | None):
    check_file(Vectors(path), backend)


@over_files("minlstm")
def test_recorded_numbers_of_minlstm(path: Path, backend: str | None):
    check_file(Vectors(path), backend)


def check_file(v: Vectors, backend: str | None) -> None:
    rnn, start = stack_of(v), None
    if "s0.h" in v:
        start = v["s0.h"].view(rnn.num_layers, *v["s0.h"].shape[-2:])
        from_g = "starts from g(s0.h)" in v.meta["equations"].lower()
        start = positive(start) if from_g else start
    resets = {"resets": v["reset"].bool()} if "reset" in v else {}
    y, h = run(rnn, parameters_of(v, rnn), v["x"], start, backend=backend, **resets)
    check(v, y, {"h": h.view_as(v["sT.h"])})


# -------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("unit", UNIT_CLASSES)
@pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_float32_does_not_drift_over_long_sequences(unit: Any, backend: str | None, shift: float):
    """A scan over logarithms is off by 1e-3 here, and by 3e-3 with gates that keep the state."""
    torch.manual_seed(0)
    rnn, x = unit(8, 16), torch.randn(4096, 2, 8)
    with torch.no_grad():
        rnn.cells[0].input.bias_of("z" if unit is linnet.MinGRU else "f").add_(
            -shift if unit is linnet.MinGRU else shift
        )
        with linnet.backend(backend):
            y, _ = rnn(x)
        with linnet.backend("reference"):
            exact, _ = rnn.double()(x.double())
    assert (y - exact).abs().max() <= 2e-6


def test_one_step_of_mingru_by_hand():
    """z = 1/2, g(1) = 3/2, g(-1) = sigmoid(-1); the vanilla form has c itself."""
    for activation, of_one, of_minus in (("positive", 1.5, 0.26894142), ("identity", 1.0, -1.0)):
        cell = linnet.MinGRUCell(1, 2, activation=activation)
        with torch.no_grad():
            cell.input.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0], [0.0]]))
            cell.input.bias.zero_()
        y, h = cell(torch.ones(1, 1), torch.full((1, 2), 4.0))
        torch.testing.assert_close(h, torch.tensor([[2 + of_one / 2, 2 + of_minus / 2]]))
        assert torch.equal(y, h)


@pytest.mark.parametrize("normalised", [True, False])
def test_one_step_of_minlstm_by_hand(normalised: bool):
    """f = sigmoid(0) = 1/2, i = sigmoid(log 3) = 3/4, c = g(1) = 3/2, h = 4."""
    cell = linnet.MinLSTMCell(1, 1, normalised=normalised)
    with torch.no_grad():
        cell.input.weight.zero_()
        cell.input.bias.copy_(torch.tensor([1.0, 0.0, 3.0]))
        cell.input.bias[2].log_()
    _, h = cell(torch.zeros(1, 1), torch.full((1, 1), 4.0))
    whole = 1.25 if normalised else 1.0
    torch.testing.assert_close(h, torch.tensor([[(0.5 * 4 + 0.75 * 1.5) / whole]]))


@pytest.mark.parametrize("unit", UNIT_CLASSES)
def test_a_state_of_zero_is_allowed(unit: Any):
    rnn, x = unit(3, 4), torch.randn(5, 2, 3)
    zeros = torch.zeros(1, 2, 4, requires_grad=True)
    y, _ = rnn(x, zeros)
    y.sum().backward()
    assert y.isfinite().all()
    assert zeros.grad.isfinite().all()
    assert zeros.grad.abs().min() > 0
    torch.testing.assert_close(y, rnn(x)[0])


@pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])
def test_the_slope_of_g_at_zero_is_one(backend: str | None):
    """z = 1/2 and c = 0, so that dh/dc = 1/2; the logarithms of other code give 0 there."""
    rnn = linnet.MinGRU(2, 3)
    with torch.no_grad():
        rnn.cells[0].input.bias.zero_()
    with linnet.backend(backend):
        y, _ = rnn(torch.zeros(1, 1, 2))
    y.sum().backward()
    assert rnn.cells[0].input.bias.grad[:3].tolist() == [0.5] * 3


@pytest.mark.parametrize("backend", [None, "reference"], ids=["kernels", "loop"])
@pytest.mark.parametrize(("f", "i"), [(-200.0, -200.0), (-200.0, -202.0), (-1000.0, -100.0), (-30.0, -41.0)])
def test_closed_gates_have_shares(f: float, i: float, backend: str | None):
    """In float32 sigmoid(-200) is 0, but the share of f is exp(f) / (exp(f) + exp(i))."""
    rnn = linnet.MinLSTM(1, 1, activation="identity")
    with torch.no_grad():
        rnn.cells[0].input.weight.zero_()
        rnn.cells[0].input.bias.copy_(torch.tensor([0.0, f, i]))
    with linnet.backend(backend):
        y, _ = rnn(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    y.sum().backward()
    share = torch.sigmoid(torch.tensor(f - i))
    torch.testing.assert_close(y, share.view(1, 1, 1))
    slope = (share * (1 - share)).item()
    torch.testing.assert_close(rnn.cells[0].input.bias.grad[1:], torch.tensor([slope, -slope]))


# ------------------------------------------------------------------------------------------ options


def test_parameter_counts_of_other_code():
    """lucidrains 2DH and 3DH (+ HD), the authors' + biases and a learned start, PufferLib's 3H^2 a layer."""
    d, h = 6, 9
    for unit, gates in ((linnet.MinGRU, 2), (linnet.MinLSTM, 3)):
        assert count(unit(d, h, bias=False)) == gates * d * h
        assert count(unit(d, h, bias=False, proj_size=d)) == gates * d * h + h * d
        official = unit(d, h, proj_size=d, learned_start=True)
        assert count(official) == gates * (d * h + h) + h * d + d + h
    assert count(linnet.MinGRU(h, h, 2, bias=False, highway=True)) == 2 * 3 * h * h


def count(rnn: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in rnn.parameters())


@pytest.mark.parametrize("unit", UNIT_CLASSES)
def test_parameters_start_as_in_the_authors_code(unit: Any):
    torch.manual_seed(0)
    options = {"forget_bias": 3.0} if unit is linnet.MinLSTM else {}
    cell = unit(25, 4000, learned_start=True, **options).cells[0]
    bounds = {name: (bias.min().item(), bias.max().item()) for name, bias in cell.input.biases().items()}
    for name, (low, high) in bounds.items():
        shift = 3.0 if name == "f" else 0.0
        assert (low, high) == pytest.approx((shift - 0.2, shift + 0.2), abs=2e-3)
    assert 0.199 < cell.input.weight.abs().max() <= 0.2
    assert cell.start_h.mean().item() == pytest.approx(0, abs=0.1)
    assert cell.start_h.std().item() == pytest.approx(1, abs=0.05)


# -------------------------------------------------------------------------------------- foreign weights


@pytest.mark.parametrize("unit", UNIT_CLASSES)
def test_weights_of_other_code_are_loaded(unit: Any):
    gates = 2 if unit is linnet.MinGRU else 3
    theirs = {
        "init_hidden_state": torch.randn(6),
        "to_hidden_and_gate.weight": torch.randn(gates * 6, 4),
        "to_hidden_and_gate.bias": torch.randn(gates * 6),
        "to_out.weight": torch.randn(4, 6),
        "to_out.bias": torch.randn(4),
    }
    rnn = unit(4, 6, proj_size=4, learned_start=True)
    linnet.load_foreign(rnn, theirs, "minrnns")
    assert torch.equal(rnn.cells[0].start_h, theirs["init_hidden_state"])
    assert torch.equal(rnn.directions[0].projection.bias, theirs["to_out.bias"])
    with pytest.raises(ValueError, match="init_hidden_state is not used"):
        linnet.load_foreign(unit(4, 6, proj_size=4), theirs, "minrnns")
    two = {f"{layer}.{name}": tensor for layer in (0, 1) for name, tensor in theirs.items()}
    stack = unit(4, 6, 2, proj_size=4, learned_start=True)
    linnet.load_foreign(stack, two, "minrnns")
    assert torch.equal(stack.cells[1].input.weight, theirs["to_hidden_and_gate.weight"])


def test_weights_of_the_package_have_its_names():
    name = "to_hidden_and_f_i_gate.weight"
    weight = torch.randn(18, 4)
    rnn = linnet.MinLSTM(4, 6, bias=False)
    linnet.load_foreign(rnn, {name: weight}, "mingru_pytorch")
    assert torch.equal(rnn.cells[0].input.weight, weight)
    with pytest.raises(ValueError, match=f"missing 0.{name}"):
        linnet.load_foreign(rnn, {"to_hidden_and_gate.weight": weight}, "mingru_pytorch")
    with pytest.raises(ValueError, match="stacks of this source have one direction"):
        linnet.load_foreign(linnet.MinLSTM(4, 6, bias=False, bidirectional=True), {}, "mingru_pytorch")
    with pytest.raises(TypeError, match="has weights of MinGRU; got MinLSTM"):
        linnet.load_foreign(rnn, {}, "pufferlib")
