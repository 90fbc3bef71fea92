"""IndRNN: the authors' recorded numbers, its start, and the clamp of its recurrent weights."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from golden_cases import Vectors
from golden_today import check, over_files, run
from torch import Tensor

import linnet
from linnet.units.indrnn import Clamped


def layer_parameters(v: Vectors, layer: int, layers: int) -> dict[str, Tensor]:
    """Files without an input matrix have its product for x."""
    prefix = f"RNNs.{layer}." if layers > 1 else ""
    ours = f"directions.{layer}.cell."
    parameters = {f"{ours}u": v[f"w.{prefix}weight_hh"]}
    if f"w.DIs.{layer}.fc_weight" not in v:
        return {**parameters, f"{ours}input.weight": torch.eye(v["x"].shape[-1]).double()}
    product = {kind: v[f"w.DIs.{layer}.fc_{kind}"] for kind in ("weight", "bias")}
    return {**parameters, **{f"{ours}input.{kind}": tensor for kind, tensor in product.items()}}


@over_files("indrnn")
def test_recorded_numbers(path: Path, backend: str | None):
    v = Vectors(path)
    layers = v.meta["num_layers"]
    parameters: dict[str, Tensor] = {}
    for layer in range(layers):
        parameters |= layer_parameters(v, layer, layers)
    bias = "directions.0.cell.input.bias" in parameters
    rnn = linnet.IndRNN(v["x"].shape[-1], v["out"].shape[-1], layers, bias=bias)
    start = v["s0.h"].view(layers, *v["s0.h"].shape[-2:]) if "s0.h" in v else None
    y, h = run(rnn, parameters, v["x"], start, backend=backend)
    check(v, y, {"h": h.view_as(v["sT.h"])})


# ------------------------------------------------------------------------------------------ start


def test_weights_start_as_in_the_authors_code():
    torch.manual_seed(0)
    cell = linnet.IndRNNCell(30, 4000)
    bound = math.sqrt(6 / (1 + 8**2) / 30)
    assert 0.99 * bound < cell.input.weight.abs().max() <= bound
    assert not cell.input.bias.any()
    assert 0 <= cell.u.min() < 0.01
    assert 0.99 < cell.u.max() <= 1


def test_only_the_last_layer_remembers_all_steps():
    torch.manual_seed(0)
    rnn = linnet.IndRNN(3, 4000, 3, steps=10, growth=4)
    bound = 4**0.1
    for cell in rnn.cells[:-1]:
        assert 0 <= cell.u.min() < 0.01
        assert 0.99 * bound < cell.u.max() <= bound
    last = rnn.cells[-1].u
    assert 1 / bound <= last.min() < 1.01 / bound
    assert 0.99 * bound < last.max() <= bound


def test_one_layer_is_the_last_and_an_explicit_choice_holds_for_all():
    assert linnet.IndRNN(3, 5, steps=10).cells[0].long_memory
    assert [cell.long_memory for cell in linnet.IndRNN(3, 5, 2, steps=9, long_memory=False).cells] == [0, 0]
    assert not linnet.IndRNN(3, 5).cells[0].long_memory


def test_the_gradient_of_relu_at_zero_is_zero():
    rnn = linnet.IndRNN(2, 3, bias=False)
    y, _ = rnn(torch.zeros(4, 1, 2))
    y.sum().backward()
    assert not y.any()
    assert not rnn.cells[0].input.weight.grad.any()


# ------------------------------------------------------------------------------------------ clamp


def clamped_stack() -> linnet.IndRNN:
    torch.manual_seed(0)
    rnn = linnet.IndRNN(3, 5, 2, steps=10, growth=4)
    rnn.clamp_recurrent()
    return rnn


def test_weights_are_clamped_in_kernels_and_in_the_loop():
    rnn, x = clamped_stack(), torch.randn(6, 2, 3)
    bound = 4**0.1
    with torch.no_grad():
        for cell in rnn.cells:
            cell.parametrizations.u.original[:2] = torch.tensor([9.0, -9.0])
            assert cell.u[:2].tolist() == pytest.approx([bound, -bound])
    plain = linnet.IndRNN(3, 5, 2)
    for ours, theirs in zip(plain.cells, rnn.cells, strict=True):
        ours.load_state_dict({**theirs.input.state_dict(prefix="input."), "u": theirs.u})
    expected, _ = plain(x)
    torch.testing.assert_close(rnn(x)[0], expected)
    with linnet.backend("reference"):
        torch.testing.assert_close(rnn(x)[0], expected)


def test_a_clamped_weight_can_come_back():
    u = torch.tensor([2.0, 2.0, -2.0, 0.5], requires_grad=True)
    (Clamped(1.0)(u) * torch.tensor([1.0, -1.0, 1.0, -3.0])).sum().backward()
    assert u.grad.tolist() == [1.0, 0.0, 0.0, -3.0]


def test_a_weight_leaves_the_bound_by_one_update_at_most():
    cell = clamped_stack().cells[0]
    update, before = torch.optim.SGD(cell.parameters(), lr=1.0), cell.u.detach().clone()
    for sign in (-1, -1, -1, 1):
        update.zero_grad()
        (sign * cell.u).sum().backward()
        update.step()
        assert cell.u.max().item() <= cell.bound + 1e-6
    torch.testing.assert_close(cell.u, before)


def test_clamped_stacks_are_copied_and_loaded():
    rnn, x = clamped_stack(), torch.randn(6, 2, 3)
    other = clamped_stack()
    other.load_state_dict(rnn.state_dict())
    for copied in (copy.deepcopy(rnn), other):
        assert torch.equal(copied(x)[0], rnn(x)[0])


def test_clamped_stacks_have_gradients_that_kernels_and_loop_agree_on():
    rnn, x = clamped_stack().double(), torch.randn(6, 2, 3).double()
    found = []
    for backend in (None, "reference"):
        with linnet.backend(backend):
            y, _ = rnn(x)
        found.append(torch.autograd.grad(y.square().sum(), list(rnn.parameters())))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
