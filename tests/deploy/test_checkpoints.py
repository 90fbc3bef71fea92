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


# ---------------------------------------------------------------------------- ncps


def linear_weights(sizes: dict[str, tuple[int, int]], seed: int = 0) -> Weights:
    """nn.Linear layers of these sizes, [outputs, inputs]."""
    weights: Weights = {}
    for number, (name, (rows, columns)) in enumerate(sizes.items()):
        weights[f"{name}.weight"] = 0.5 * randn(rows, columns, seed=seed + number)
        weights[f"{name}.bias"] = randn(rows, seed=seed + 50 + number)
    return weights


def cfc_weights(
    size: int, hidden: int, units: int, places: tuple[int, ...], mode: str = "default"
) -> Weights:
    """Those of the cell; `places` are those of the layers in its backbone."""
    widths = [size + hidden, *[units] * len(places)]
    sizes = {f"backbone.{place}": (units, w) for place, w in zip(places, widths, strict=False)}
    heads = ("ff1",) if mode == "pure" else ("ff1", "ff2", "time_a", "time_b")
    sizes |= dict.fromkeys(heads, (hidden, widths[-1]))
    pure = {"w_tau": randn(1, hidden), "A": randn(1, hidden, seed=1)} if mode == "pure" else {}
    return {**linear_weights(sizes), **pure}


def cfc_step(w: Weights, x: Tensor, h: Tensor, ts: Tensor, places: tuple[int, ...], mode: str) -> Tensor:
    def linear(name: str, v: Tensor) -> Tensor:
        return F.linear(v, w[f"{name}.weight"], w[f"{name}.bias"])

    v = torch.cat([x, h], -1)
    for place in places:
        v = 1.7159 * torch.tanh(0.666 * linear(f"backbone.{place}", v))
    if mode == "pure":
        f = linear("ff1", v)
        return w["A"] - w["A"] * torch.exp(-ts * (w["w_tau"].abs() + f.abs())) * f
    g = torch.sigmoid(linear("time_a", v) * ts + linear("time_b", v))
    first, second = torch.tanh(linear("ff1", v)), torch.tanh(linear("ff2", v))
    return first * (1 if mode == "no_gate" else 1 - g) + g * second


@pytest.mark.parametrize("mode", ["default", "no_gate", "pure"])
@pytest.mark.parametrize("places", [(), (0,), (0, 2, 4), (0, 2, 5)], ids=["none", "1", "3", "dropout"])
@pytest.mark.parametrize("bare", [True, False], ids=["cell", "layer"])
def test_cfc_computes_what_ncps_does(bare: bool, places: tuple[int, ...], mode: str):
    w = cfc_weights(3, 4, 6, places, mode)
    rnn = linnet.CfC(3, 4, mode=mode, backbone_units=6, backbone_layers=len(places), dtype=torch.double)
    linnet.load_foreign(rnn, w if bare else prefixed("rnn_cell.", w), source="ncps")
    x, ts, h = randn(5, 2, 3), randn(5, 2, 1, seed=1).abs(), randn(2, 4, seed=2)
    y, final = rnn(x, h[None], timespans=ts)
    for row, times, expected in zip(x, ts, y, strict=True):
        h = cfc_step(w, row, h, times, places, mode)
        same(expected, h)
    same(final[0], h)


def prefixed(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}{key}": tensor for key, tensor in weights.items()}


def test_cfc_with_memory_and_an_output_product_computes_what_ncps_does():
    w, memory = cfc_weights(3, 4, 6, (0,)), linear_weights({"input_map": (16, 3)}, 100)
    memory["recurrent_map.weight"] = randn(16, 4, seed=120)
    out = linear_weights({"fc": (2, 4)}, 200)
    rnn = linnet.CfC(3, 4, backbone_units=6, mixed_memory=True, proj_size=2, dtype=torch.double)
    linnet.load_foreign(rnn, {**prefixed("rnn_cell.", w), **prefixed("lstm.", memory), **out}, source="ncps")
    x, h, c = randn(5, 2, 3), randn(2, 4, seed=2), randn(2, 4, seed=3)
    y, _ = rnn(x, (h[None], c[None]))
    for row, expected in zip(x, y, strict=True):
        gates = F.linear(row, memory["input_map.weight"], memory["input_map.bias"])
        i, ig, f, o = (gates + F.linear(h, memory["recurrent_map.weight"])).chunk(4, -1)
        c = c * torch.sigmoid(f + 1) + torch.tanh(i) * torch.sigmoid(ig)
        h = cfc_step(w, row, torch.tanh(c) * torch.sigmoid(o), torch.ones(2, 1).double(), (0,), "default")
        same(expected, F.linear(h, out["fc.weight"], out["fc.bias"]))


def ltc_weights(size: int, hidden: int, motors: int, seed: int = 0) -> Weights:
    """Positive numbers, and one synapse of each kind less than all."""
    weights = {name: randn(hidden, seed=seed + n) for n, name in enumerate(("gleak", "vleak", "cm"))}
    for n, (kind, rows) in enumerate((("", hidden), ("sensory_", size))):
        for m, name in enumerate(("w", "sigma", "mu", "erev")):
            weights[kind + name] = randn(rows, hidden, seed=seed + 10 * n + m)
        weights[f"{kind}sparsity_mask"] = torch.ones(rows, hidden, dtype=torch.double)
        weights[f"{kind}sparsity_mask"][0, 1] = 0
    for n, (name, width) in enumerate({"input": size, "output": motors}.items()):
        weights[f"{name}_w"] = randn(width, seed=seed + 50 + n)
        weights[f"{name}_b"] = randn(width, seed=seed + 60 + n)
    return {k: t.abs() if k in ("gleak", "cm", "w", "sensory_w") else t for k, t in weights.items()}


def ltc_step(w: Weights, x: Tensor, h: Tensor, ts: Tensor, unfolds: int) -> Tensor:
    def synapses(kind: str, v: Tensor) -> Tensor:
        opened = torch.sigmoid(w[f"{kind}sigma"] * (v[..., None] - w[f"{kind}mu"]))
        return w[f"{kind}w"] * opened * w[f"{kind}sparsity_mask"]

    s, c = synapses("sensory_", x * w["input_w"] + w["input_b"]), unfolds * w["cm"] / ts
    for _ in range(unfolds):
        a = synapses("", h)
        above = c * h + w["gleak"] * w["vleak"] + (a * w["erev"]).sum(1) + (s * w["sensory_erev"]).sum(1)
        h = above / (c + w["gleak"] + a.sum(1) + s.sum(1) + 1e-8)
    return h


FULL = ([[1] * 4] * 3, [[1] * 4] * 4)


@pytest.mark.parametrize("bare", [True, False], ids=["cell", "layer"])
def test_ltc_computes_what_ncps_does(bare: bool):
    w = ltc_weights(3, 4, 2)
    rnn = linnet.LTC(3, 4, motors=2, unfolds=3, wiring=FULL, dtype=torch.double)
    linnet.load_foreign(rnn, w if bare else prefixed("rnn_cell.", w), source="ncps")
    x, ts, h = randn(5, 2, 3), randn(5, 2, 1, seed=1).abs() + 0.1, randn(2, 4, seed=2)
    y, final = rnn(x, h[None], timespans=ts)
    for row, times, expected in zip(x, ts, y, strict=True):
        h = ltc_step(w, row, h, times, 3)
        same(expected, h[:, :2] * w["output_w"] + w["output_b"])
    same(final[0], h)


def test_layers_of_ncps_are_a_list_of_modules():
    layers = [prefixed(f"{n}.rnn_cell.", ltc_weights(4, 4, 4, seed=70 * n)) for n in range(2)]
    wiring = ([[1] * 4] * 4,) * 2
    both = linnet.LTC(4, 4, 2, wiring=wiring, dtype=torch.double)
    linnet.load_foreign(both, layers[0] | layers[1], source="ncps")
    x = randn(5, 2, 4)
    y = x
    for number, layer in enumerate(layers):
        one = linnet.LTC(4, 4, wiring=wiring, dtype=torch.double)
        linnet.load_foreign(
            one, {key.removeprefix(f"{number}."): t for key, t in layer.items()}, source="ncps"
        )
        y, _ = one(y)
    same(both(x)[0], y)


def test_a_wired_ltc_of_ncps_needs_a_wiring():
    refused(
        linnet.LTC(3, 4, motors=2), ltc_weights(3, 4, 2), "ncps", "sensory_sparsity_mask has zeros", "wiring="
    )
    full = {k: torch.ones_like(t) if "mask" in k else t for k, t in ltc_weights(3, 4, 2).items()}
    linnet.load_foreign(linnet.LTC(3, 4, motors=2), full, source="ncps")


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
    if source == "ncps":
        rnn = linnet.CfC(3, 4, backbone_units=6, backbone_layers=2)
        return (
            rnn,
            prefixed("0.rnn_cell.", cfc_weights(3, 4, 6, (0, 2))),
            [
                "0.rnn_cell.ff1.bias",
                "0.rnn_cell.backbone.2.weight",
                "0.rnn_cell.time_b.bias",
            ],
        )
    weights = {
        "cell_0._W": randn(3, 12),
        "cell_0._W_b": randn(12),
        "cell_1._W": randn(4, 12),
        "cell_1._W_b": randn(12),
    }
    return linnet.LRN(3, 4, 2), weights, ["cell_0._W", "cell_0._W_b", "cell_1._W_b"]


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn", "ncps"])
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


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn", "ncps"])
def test_an_empty_state_dict_lists_every_key(source: str):
    rnn, weights, _ = good(source)
    message = refused(rnn, {}, source)
    wanted = {key.removeprefix("_list_of_modules.0.") for key in weights if "scale_x" not in key}
    assert all(key in message for key in wanted)


@pytest.mark.parametrize("source", ["sru", "torch", "nru", "lrn", "ncps"])
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
    "CfC of another mode": ("ncps", linnet.CfC(3, 4, mode="pure"), cfc_weights(3, 4, 128, (0,))),
    "CfC of another depth": ("ncps", linnet.CfC(3, 4, backbone_layers=2), cfc_weights(3, 4, 128, (0,))),
    "CfC without memory": (
        "ncps",
        linnet.CfC(3, 4),
        {**prefixed("rnn_cell.", cfc_weights(3, 4, 128, (0,))), "lstm.recurrent_map.weight": randn(16, 4)},
    ),
    "CfC without biases": ("ncps", linnet.CfC(3, 4, bias=False), cfc_weights(3, 4, 128, (0,))),
    "LTC with another number of motors": ("ncps", linnet.LTC(3, 4, wiring=FULL), ltc_weights(3, 4, 2)),
    "LTC with input heads": (
        "ncps",
        linnet.LTC(4, 4, input_heads=2, wiring=([[1] * 4] * 4,) * 2),
        ltc_weights(4, 4, 4),
    ),
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
    with pytest.raises(ValueError, match=r"source must be one of 'sru', 'torch', 'nru', .*; got 'keras'"):
        linnet.load_foreign(linnet.LSTM(3, 4), {}, source="keras")


def test_loaded_weights_are_copies():
    theirs, rnn = nn.LSTM(3, 4), linnet.LSTM(3, 4)
    linnet.load_foreign(rnn, theirs.state_dict(), source="torch")
    before = copy.deepcopy(rnn.state_dict())
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.zero_()
    identical(rnn.state_dict(), before)
