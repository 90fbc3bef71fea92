"""Weights from elsewhere: each source against a loop written here from its equations, and what is refused."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import identical, liven, randn, random_state, same
from torch import Tensor, nn

import linnet

Weights = dict[str, Tensor]

# ---------------------------------------------------------------------------- the sru package


def sru_weights(
    input_size: int, hidden: int, layers: int, ways: int = 1, *, rank: int = 0, layer_norm: bool = False
) -> Weights:
    """A state dict as the package writes it: its names and shapes, its low rank and its fourth matrix."""
    weights: Weights = {}
    out, wide = ways * hidden, input_size
    for layer in range(layers):
        prefix, k = f"rnn_lst.{layer}.", 3 if wide == out else 4
        low = rank if 0 < rank < min(wide, out) else 0
        if low:
            weights[f"{prefix}weight_proj"] = randn(wide, low, seed=10 + layer)
        weights[f"{prefix}weight"] = 0.5 * randn(low or wide, out * k, seed=20 + layer)
        weights[f"{prefix}weight_c"] = randn(2 * out, seed=30 + layer)
        weights[f"{prefix}bias"] = randn(2 * out, seed=40 + layer)
        weights[f"{prefix}scale_x"] = torch.tensor([math.sqrt(3)], dtype=torch.double)
        if layer_norm:
            weights[f"{prefix}layer_norm.weight"] = randn(wide, seed=50 + layer)
            weights[f"{prefix}layer_norm.bias"] = randn(wide, seed=60 + layer)
        wide = out
    return weights


def sru_layer(weights: Weights, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, B, D], c [ways, B, H] -> h [T, B, ways * H], c; the columns lie as in the package."""
    ways, batch, hidden = c.shape
    read = x
    if "layer_norm.weight" in weights:
        read = F.layer_norm(x, x.shape[-1:], weights["layer_norm.weight"], weights["layer_norm.bias"])
    if "weight_proj" in weights:
        read = read @ weights["weight_proj"]
    u = (read @ weights["weight"]).view(len(x), batch, ways, hidden, -1)
    skip = u[..., 3] if u.shape[-1] == 4 else (x * weights["scale_x"]).view(len(x), batch, ways, hidden)
    (v_f, v_r), (b_f, b_r) = (weights[key].view(2, ways, hidden) for key in ("weight_c", "bias"))
    h = torch.empty(len(x), batch, ways, hidden, dtype=x.dtype)
    ends = []
    for way in range(ways):
        state = c[way]
        for t in reversed(range(len(x))) if way else range(len(x)):
            candidate, to_f, to_r = (u[t, :, way, :, k] for k in range(3))
            f = torch.sigmoid(to_f + v_f[way] * state + b_f[way])
            r = torch.sigmoid(to_r + v_r[way] * state + b_r[way])
            state = f * state + (1 - f) * candidate
            h[t, :, way] = r * state + (1 - r) * skip[t, :, way]
        ends.append(state)
    return h.flatten(2), torch.stack(ends)


def sru_by_hand(weights: Weights, x: Tensor, c: Tensor, layers: int) -> tuple[Tensor, Tensor]:
    ends = []
    for layer, start in enumerate(c.chunk(layers)):
        prefix = f"rnn_lst.{layer}."
        mine = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        x, end = sru_layer(mine, x, start)
        ends.append(end)
    return x, torch.cat(ends)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one-way", "both-ways"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer-norm"])
@pytest.mark.parametrize("rank", [0, 2], ids=["full", "low-rank"])
@pytest.mark.parametrize("input_size", [3, 4, 8])
def test_sru_computes_what_the_package_does(
    input_size: int, layers: int, bidirectional: bool, layer_norm: bool, rank: int
):
    """4 is the hidden size and 8 that of two directions: where the package skips by x, or does not."""
    ways = 1 + bidirectional
    weights = sru_weights(input_size, 4, layers, ways, rank=rank, layer_norm=layer_norm)
    prenorm = "layer" if layer_norm else None
    rnn = linnet.SRU(
        input_size, 4, layers, bidirectional=bidirectional, rank=rank, prenorm=prenorm, dtype=torch.double
    )
    linnet.load_foreign(rnn, weights, source="sru", normalize_after=False)
    x, c = randn(5, 3, input_size), random_state(rnn, 3)
    same(rnn(x, c), sru_by_hand(weights, x, c, layers))


def test_sru_asks_where_its_norms_act_unless_their_sizes_tell():
    """The package writes the same names for normalize_after=True, which computes something else."""
    rnn, weights = linnet.SRU(4, 4, 2, prenorm="layer"), sru_weights(4, 4, 2, layer_norm=True)
    before = {name: tensor.clone() for name, tensor in rnn.state_dict().items()}
    with pytest.raises(ValueError, match="pass normalize_after=False"):
        linnet.load_foreign(rnn, weights, source="sru")
    with pytest.raises(ValueError, match="no counterpart"):
        linnet.load_foreign(rnn, weights, source="sru", normalize_after=True)
    identical(dict(rnn.state_dict()), before)
    wider = linnet.SRU(3, 4, 2, prenorm="layer", dtype=torch.double)
    linnet.load_foreign(wider, sru_weights(3, 4, 2, layer_norm=True), source="sru")


def test_sru_leaves_a_layer_unprojected_whose_input_is_no_wider_than_the_rank():
    """The package does; its language models of bytes (205 wide, rank 512) depend on it."""
    weights = sru_weights(3, 8, 2, rank=5)
    assert "rnn_lst.0.weight_proj" not in weights
    rnn = linnet.SRU(3, 8, 2, rank=5, dtype=torch.double)
    linnet.load_foreign(rnn, weights, source="sru")
    x, c = randn(5, 3, 3), random_state(rnn, 3)
    same(rnn(x, c), sru_by_hand(weights, x, c, 2))


def test_sru_without_the_buffer_of_its_scale_loads():
    weights = {k: v for k, v in sru_weights(4, 4, 2).items() if "scale_x" not in k}
    rnn = linnet.SRU(4, 4, 2, dtype=torch.double)
    linnet.load_foreign(rnn, weights, source="sru")
    assert torch.equal(rnn.state_dict()["directions.1.cell.v_f"], weights["rnn_lst.1.weight_c"][:4])


def test_sru_with_another_scale_than_the_weights_were_trained_with_is_refused():
    """`rescale` is off by default in later versions of the package, and the buffer says so."""
    weights = sru_weights(4, 4, 2)
    weights["rnn_lst.1.scale_x"] = torch.ones(1)
    rnn = linnet.SRU(4, 4, 2, dtype=torch.double)
    refused(rnn, weights, "sru", "rnn_lst.1.scale_x")


# ---------------------------------------------------------------------------- the NRU authors


def nru_cell_weights(input_size: int, hidden: int, memory: int, heads: int, seed: int, norm: bool) -> Weights:
    wide = 2 * math.isqrt(memory * heads)
    rows = {"hm2v_alpha": wide, "hm2v_beta": wide, "hm2alpha": heads, "hm2beta": heads}
    weights: Weights = {}
    for number, (name, size) in enumerate(rows.items()):
        weights[f"{name}.weight"] = 0.5 * randn(size, memory + hidden, seed=seed + number)
        weights[f"{name}.bias"] = randn(size, seed=seed + 10 + number)
    if norm:
        weights["_ln_h.weight"], weights["_ln_h.bias"] = (
            randn(hidden, seed=seed + 20),
            randn(hidden, seed=seed + 21),
        )
    weights["hmi2h.weight"] = 0.5 * randn(hidden, memory + hidden + input_size, seed=seed + 30)
    weights["hmi2h.bias"] = randn(hidden, seed=seed + 31)
    return weights


def nru_step(w: Weights, x: Tensor, h: Tensor, m: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    a = F.linear(torch.cat([x, h, m], -1), w["hmi2h.weight"], w["hmi2h.bias"])
    if "_ln_h.weight" in w:
        a = F.layer_norm(a, a.shape[-1:], w["_ln_h.weight"], w["_ln_h.bias"])
    h = a.clamp(min=0)
    change = torch.zeros_like(m)
    for sign, kind in ((1, "alpha"), (-1, "beta")):
        z = torch.cat([h, m], -1)
        strength = F.linear(z, w[f"hm2{kind}.weight"], w[f"hm2{kind}.bias"])
        p, q = F.linear(z, w[f"hm2v_{kind}.weight"], w[f"hm2v_{kind}.bias"]).chunk(2, -1)
        v = torch.einsum("bi,bj->bij", p, q).reshape(len(m), heads, m.shape[-1])
        v = v / v.abs().pow(5).sum(-1, keepdim=True).pow(0.2)
        change = change + sign * (strength[..., None] * v).sum(1) / heads
    return h, m + change


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer-norm"])
@pytest.mark.parametrize(("bare", "layers"), [(True, 1), (False, 1), (False, 2)])
def test_nru_computes_what_the_authors_cells_do(bare: bool, layers: int, layer_norm: bool):
    """The state dict of a cell on its own, or of their model, whose output layer is left out."""
    cells = [nru_cell_weights(size, 5, 9, 4, 100 * n, layer_norm) for n, size in enumerate([3, 5][:layers])]
    weights = dict(cells[0])
    if not bare:
        weights = {f"_list_of_modules.{n}.{k}": v for n, cell in enumerate(cells) for k, v in cell.items()}
        weights |= {"_W_h2o": randn(5, 2), "_b_o": randn(2)}
    rnn = linnet.NRU(3, 5, layers, memory_size=9, num_heads=4, layer_norm=layer_norm, dtype=torch.double)
    linnet.load_foreign(rnn, weights, source="nru")
    x, state = randn(5, 3, 3), random_state(rnn, 3)
    y, final = rnn(x, state)
    for number, cell in enumerate(cells):
        h, m, outputs = state.h[number], state.m[number], []
        for x_t in x:
            h, m = nru_step(cell, x_t, h, m, heads=4)
            outputs.append(h)
        x = torch.stack(outputs)
        same((final.h[number], final.m[number]), (h, m), atol=1e-10)
    same(y, x, atol=1e-10)


# ---------------------------------------------------------------------------- the LRN authors


@pytest.mark.parametrize(("bare", "layers"), [(True, 1), (False, 1), (False, 3)])
def test_lrn_computes_what_the_authors_cells_do(bare: bool, layers: int):
    sizes = [3, 4, 4][:layers]
    weights = {f"cell_{n}._W": randn(size, 12, seed=n) for n, size in enumerate(sizes)}
    weights |= {f"cell_{n}._W_b": randn(12, seed=10 + n) for n in range(layers)}
    rnn = linnet.LRN(3, 4, layers, dtype=torch.double)
    theirs = {k.removeprefix("cell_0."): v for k, v in weights.items()} if bare else weights
    linnet.load_foreign(rnn, theirs, source="lrn")
    x, state = randn(5, 3, 3), random_state(rnn, 3)
    y, final = rnn(x, state)
    for number in range(layers):
        h, outputs = state[number], []
        for x_t in x:
            p, q, r = (x_t @ weights[f"cell_{number}._W"] + weights[f"cell_{number}._W_b"]).split(4, -1)
            h = torch.tanh(torch.sigmoid(p + h) * r + torch.sigmoid(q - h) * h)
            outputs.append(h)
        x = torch.stack(outputs)
        same(final[number], h)
    same(y, x)


# ---------------------------------------------------------------------------- what does not fit


def refused(rnn: linnet.Recurrent, weights: Weights, source: str, *mentions: str) -> str:
    """A ValueError that mentions all of these, and not one weight changed."""
    before = copy.deepcopy(rnn.state_dict())
    with pytest.raises(ValueError, match=source) as caught:
        linnet.load_foreign(rnn, weights, source=source)
    identical(rnn.state_dict(), before)
    message = str(caught.value)
    assert [mention for mention in mentions if mention not in message] == []
    return message


def good(source: str) -> tuple[linnet.Recurrent, Weights, list[str]]:
    """A stack, weights that fit it, and three of their names."""
    if source == "sru":
        return linnet.SRU(3, 4, 2), sru_weights(3, 4, 2), ["weight", "weight_c", "bias"]
    if source == "torch":
        return (
            linnet.GRU(3, 4, 2),
            nn.GRU(3, 4, 2).state_dict(),
            ["weight_ih_l1", "weight_hh_l0", "bias_hh_l1"],
        )
    if source == "nru":
        cell = nru_cell_weights(3, 4, 4, 1, 0, norm=False)
        return (
            linnet.NRU(3, 4, memory_size=4, num_heads=1),
            cell,
            ["hmi2h.bias", "hm2alpha.weight", "hm2v_beta.bias"],
        )
    weights = {
        "cell_0._W": randn(3, 12),
        "cell_0._W_b": randn(12),
        "cell_1._W": randn(4, 12),
        "cell_1._W_b": randn(12),
    }
    return linnet.LRN(3, 4, 2), weights, ["cell_0._W", "cell_0._W_b", "cell_1._W_b"]


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn"])
def test_everything_that_does_not_fit_is_listed_and_nothing_is_loaded(source: str):
    rnn, weights, names = good(source)
    missing, bent, also_bent = (f"rnn_lst.1.{name}" if source == "sru" else name for name in names)
    weights = dict(weights)
    expected = tuple(weights.pop(missing).shape)
    weights[bent] = torch.zeros(7, 7)
    weights[also_bent] = torch.zeros(6)
    weights["stranger"] = torch.zeros(1)
    message = refused(rnn, weights, source, repr(source), type(rnn).__name__)
    assert f"missing {missing}, expected of shape {expected}" in message
    assert f"{bent} has shape (7, 7), expected" in message
    assert f"{also_bent} has shape (6,), expected" in message
    assert "stranger is not used" in message


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn"])
def test_an_empty_state_dict_lists_every_key(source: str):
    rnn, weights, _ = good(source)
    message = refused(rnn, {}, source)
    wanted = {key.removeprefix("_list_of_modules.0.") for key in weights if "scale_x" not in key}
    assert all(key in message for key in wanted)


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn"])
def test_good_weights_load(source: str):
    """So that the refusals around this test are not those of a bad example."""
    rnn, weights, _ = good(source)
    before = copy.deepcopy(rnn.state_dict())
    linnet.load_foreign(rnn, weights, source=source)
    assert all(not torch.equal(tensor, before[key]) for key, tensor in rnn.state_dict().items())


# Options that a source cannot fill, or would fill wrongly: (source, stack, weights).
UNFIT: dict[str, tuple[str, Any, Weights]] = {
    "peepholes": ("torch", linnet.LSTM(3, 4, peepholes=True), nn.LSTM(3, 4).state_dict()),
    "no output gate": ("torch", linnet.LSTM(3, 4, output_gate=False), nn.LSTM(3, 4).state_dict()),
    "linear content": ("torch", linnet.LSTM(3, 4, content="linear"), nn.LSTM(3, 4).state_dict()),
    "reset before": ("torch", linnet.GRU(3, 4, form="before"), nn.GRU(3, 4).state_dict()),
    "GRU of the RAN paper": ("torch", linnet.GRU(3, 4, form="ran"), nn.GRU(3, 4).state_dict()),
    "RNN with a norm": ("torch", linnet.RNN(3, 4, layer_norm=True), nn.RNN(3, 4).state_dict()),
    "LSTM with a norm": ("torch", linnet.LSTM(3, 4, norm="layer"), nn.LSTM(3, 4).state_dict()),
    "GRU with a projection": ("torch", linnet.GRU(3, 4, proj_size=2), nn.GRU(3, 4).state_dict()),
    "LSTM's weights for GRU": ("torch", linnet.GRU(3, 4), nn.LSTM(3, 4).state_dict()),
    "biases for a unit without": ("torch", linnet.LSTM(3, 4, bias=False), nn.LSTM(3, 4).state_dict()),
    "one layer for two": ("torch", linnet.LSTM(3, 4, 2), nn.LSTM(3, 4).state_dict()),
    "two layers for one": ("torch", linnet.LSTM(3, 4), nn.LSTM(3, 4, 2).state_dict()),
    "SRU biases everywhere": ("sru", linnet.SRU(3, 4, full_bias=True), sru_weights(3, 4, 1)),
    "SRU with a norm": ("sru", linnet.SRU(3, 4, norm="rms"), sru_weights(3, 4, 1)),
    "SRU without biases": ("sru", linnet.SRU(3, 4, bias=False), sru_weights(3, 4, 1)),
    "SRU whose gates do not read c": ("sru", linnet.SRU(3, 4, recurrent_gates=False), sru_weights(3, 4, 1)),
    "SRU, both ways": ("sru", linnet.SRU(3, 4, bidirectional=True), sru_weights(3, 4, 1)),
    "SRU without layer norm": ("sru", linnet.SRU(3, 4), sru_weights(3, 4, 1, layer_norm=True)),
    "SRU without low rank": ("sru", linnet.SRU(3, 4), sru_weights(3, 4, 1, rank=2)),
    "NRU heads over x": (
        "nru",
        linnet.NRU(3, 4, memory_size=4, num_heads=1, heads_read_input=True),
        nru_cell_weights(3, 4, 4, 1, 0, norm=False),
    ),
    "NRU without biases": (
        "nru",
        linnet.NRU(3, 4, memory_size=4, num_heads=1, bias=False),
        nru_cell_weights(3, 4, 4, 1, 0, norm=False),
    ),
    "NRU full directions": (
        "nru",
        linnet.NRU(3, 4, memory_size=4, num_heads=1, directions="full"),
        nru_cell_weights(3, 4, 4, 4, 0, norm=False),
    ),
    "one NRU cell for two layers": (
        "nru",
        linnet.NRU(4, 4, 2, memory_size=4, num_heads=1),
        nru_cell_weights(4, 4, 4, 1, 0, norm=False),
    ),
    "LRN without biases": ("lrn", linnet.LRN(3, 4, bias=False), {"_W": randn(3, 12), "_W_b": randn(12)}),
    "LRN with a norm": ("lrn", linnet.LRN(3, 4, norm="rms"), {"_W": randn(3, 12), "_W_b": randn(12)}),
    "one LRN cell for two layers": ("lrn", linnet.LRN(4, 4, 2), {"_W": randn(4, 12), "_W_b": randn(12)}),
    "two LRN layers for two directions": (
        "lrn",
        linnet.LRN(4, 4, bidirectional=True),
        {
            f"cell_{n}.{key}": randn(*shape)
            for n in (0, 1)
            for key, shape in (("_W", (4, 12)), ("_W_b", (12,)))
        },
    ),
}


@pytest.mark.parametrize(("source", "rnn", "weights"), UNFIT.values(), ids=UNFIT.keys())
def test_a_stack_that_the_weights_are_not_for_is_left_as_it_was(source: str, rnn: Any, weights: Weights):
    refused(rnn, weights, source)


def test_weights_go_to_their_own_unit_only():
    for source, rnn in (("sru", linnet.LSTM(3, 4)), ("lrn", linnet.OLRN(3, 4)), ("nru", linnet.SRU(3, 4))):
        name = type(rnn).__name__
        with pytest.raises(
            TypeError, match=rf"source '{source}' has weights of {source.upper()}; got {name}"
        ):
            linnet.load_foreign(rnn, {}, source=source)
    with pytest.raises(TypeError, match="source 'torch' has weights of LSTM or GRU or RNN; got SRU"):
        linnet.load_foreign(linnet.SRU(3, 4), {}, source="torch")


def test_a_module_that_is_not_linnets_is_refused_by_type():
    """It has the same name, but none of the same parts."""
    with pytest.raises(TypeError, match="LSTM"):
        linnet.load_foreign(nn.LSTM(3, 4), nn.LSTM(3, 4).state_dict(), source="torch")


def test_a_subclass_loads_what_its_unit_loads():
    class MyLSTM(linnet.LSTM):
        """A user's own."""

    theirs, rnn = liven(nn.LSTM(3, 4)), MyLSTM(3, 4, dtype=torch.double)
    linnet.load_foreign(rnn, theirs.state_dict(), source="torch")
    x = randn(5, 2, 3)
    same(rnn(x)[0], theirs(x)[0])


def test_an_unknown_source_is_told_the_known_ones():
    with pytest.raises(
        ValueError, match=r"source must be one of 'sru', 'torch', 'nru', 'lrn', .*; got 'keras'"
    ):
        linnet.load_foreign(linnet.LSTM(3, 4), {}, source="keras")


def test_loaded_weights_are_copies():
    theirs, rnn = nn.LSTM(3, 4), linnet.LSTM(3, 4)
    linnet.load_foreign(rnn, theirs.state_dict(), source="torch")
    before = copy.deepcopy(rnn.state_dict())
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
    identical(rnn.state_dict(), before)
