"""The signals inside layers are those that the authors' code and the papers' equations give."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from golden_cases import Vectors, matching, of_cell, sru_weights
from helpers import liven, randn, same
from torch.func import functional_call

import linnet
from linnet.analysis.layers import layer_variances, read_gates
from linnet.deploy.checkpoints import convert


@pytest.mark.parametrize("path", matching("sru_var_ratio*"), ids=lambda path: path.stem)
def test_the_variance_by_layer_of_the_sru_authors(path: Path):
    v = Vectors(path)
    size, depth = v["x"].shape[-1], len(v["var_x"])
    stack = linnet.SRU(size, size, depth).double()
    stack.load_state_dict(convert(stack, sru_weights(v), "sru"))
    layers = []
    for number in range(depth):
        layers.append(linnet.SRU(size, size).double())
        layers[-1].directions[0].load_state_dict(stack.directions[number].state_dict())
    found = layer_variances(layers, v["x"])
    for key in ("x", "c", "h"):
        same(torch.tensor([getattr(each, key) for each in found], dtype=torch.double), v[f"var_{key}"])
    same(torch.tensor([each.c_ratio for each in found], dtype=torch.double), v["ratio_c"])
    same(torch.tensor([each.h_ratio for each in found], dtype=torch.double), v["ratio_h"])


def test_a_state_without_c_is_h():
    (found,) = layer_variances([linnet.GRU(3, 4)], torch.randn(5, 6, 3))
    assert found.c == found.h
    layer, x = linnet.LSTM(3, 4), torch.randn(5, 6, 3)
    assert layer_variances([layer], x)[0].c == pytest.approx(layer(x)[1].c.var().item())


@pytest.mark.parametrize("path", matching("PAPER_fig1_*"), ids=lambda path: path.stem)
def test_how_long_lrn_keeps_a_word(path: Path):
    v = Vectors(path)
    rnn = linnet.LRN(v["x"].shape[-1], v["h"].shape[-1], activation=v.meta["activation"]).double()
    parameters = of_cell({"input.weight": v["w.W"].T, "input.bias": v["w.b"]})
    with torch.no_grad():
        for name, weight in rnn.named_parameters():
            weight.copy_(parameters[name])
    gates = read_gates(rnn, v["x"].transpose(0, 1))
    for key in ("i", "f", "v", "h"):
        same(getattr(gates, key).transpose(0, 1).detach(), v[key])
    weights = gates.weights().permute(2, 0, 1, 3).detach()
    same(weights, v["weight"])
    same(weights.mean(-1), v["weight_mean"])
    same((weights * v["v"][:, None]).sum(2), v["sum_of_terms"])
    same(gates.jacobian().transpose(0, 1).detach(), v["jacobian_diag"])
    y, _ = functional_call(rnn, parameters, (v["x"].transpose(0, 1),))
    loss = (y.transpose(0, 1) * v["R"]).sum()
    same(loss.detach(), v["loss"])
    found = torch.autograd.grad(loss, [v[key] for key in v.gradients])
    same(dict(zip(v.gradients, found, strict=True)), v.gradients, atol=1e-10)


def test_the_jacobian_is_that_of_autograd():
    rnn, x = liven(linnet.LRN(3, 4)), randn(2, 1, 3)
    found = read_gates(rnn, x).jacobian()[1, 0]
    _, state = rnn(x[:1])
    expected = torch.autograd.functional.jacobian(lambda h: rnn(x[1:], h)[1].flatten(), state.detach())
    same(found.detach(), expected.reshape(4, 4).diagonal())


def test_gates_are_read_of_one_layer_of_lrn():
    for rnn in (linnet.SRU(3, 4), linnet.LRN(3, 4, num_layers=2), linnet.LRN(3, 4, bidirectional=True)):
        with pytest.raises(ValueError, match="takes an LRN of one layer and one direction; got"):
            read_gates(rnn, torch.zeros(2, 1, 3))
