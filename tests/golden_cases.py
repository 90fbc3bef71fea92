"""The authors' recorded numbers, and how each file's weights name the parameters of a Linnet unit.

A case builds the unit, states its parameters in terms of the file's own weights, and runs it. Since
the parameters are functions of those weights, autograd gives the gradients the files hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

import linnet
from linnet.deploy.checkpoints import convert
from linnet.layers.torch_names import TorchCell, TorchProjection
from linnet.program.owned import named_tensors

# More vectors of the same kind can be tried: LINNET_GOLDEN=folder.
OURS = Path(__file__).parent / "golden"
FOLDER = Path(os.environ.get("LINNET_GOLDEN", OURS))


class Vectors:
    """One file: float64 tensors by name; the inputs of the run require gradients."""

    def __init__(self, path: Path):
        data = np.load(path)
        self.name = path.stem
        self.meta = json.loads(str(data["meta"]))
        self.tensors: dict[str, Tensor] = {
            key: torch.tensor(data[key]) for key in data.files if key != "meta"
        }
        self.gradients = {key[5:]: t for key, t in self.tensors.items() if key.startswith("grad.")}
        for key in self.gradients:
            # Some files name the gradient of a weight without its "w."; some have no x of its gradient.
            for leaf in (key, f"w.{key}"):
                if leaf in self.tensors:
                    self.tensors[leaf].requires_grad_()

    def __getitem__(self, key: str) -> Tensor:
        return self.tensors[key]

    def __contains__(self, key: str) -> bool:
        return key in self.tensors

    def weights(self) -> dict[str, Tensor]:
        return {key[2:]: t for key, t in self.tensors.items() if key.startswith("w.")}


Ran = tuple[Tensor, dict[str, Tensor]]
CASES: dict[str, Callable[[Vectors], Ran]] = {}


def case(*names: str):
    """Register what runs the files called by one of `names`; it returns the output and the other results."""

    def register(function: Callable[[Vectors], Ran]) -> Callable[[Vectors], Ran]:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


def matching(*patterns: str, suffix: str = ".npz") -> list[Path]:
    """The files of our folder and of LINNET_GOLDEN whose names match one of the patterns."""
    folders = sorted({OURS.resolve(), FOLDER.resolve()})
    return [
        path
        for folder in folders
        for pattern in patterns
        for path in sorted(folder.glob(f"*/{pattern}{suffix}"))
    ]


def tables(*patterns: str) -> list[dict[str, Any]]:
    """The contents of such files in JSON."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in matching(*patterns, suffix=".json")]


def find(name: str) -> Path:
    """A file by its name, of LINNET_GOLDEN if it is there."""
    return next(path for folder in (FOLDER, OURS) if (path := folder / f"{name}.npz").exists())


def files() -> list[Path]:
    return [path for path in sorted(FOLDER.glob("*/*.npz")) if f"{path.parent.name}/{path.stem}" in CASES]


def run(rnn: linnet.Recurrent, parameters: dict[str, Tensor], x: Tensor, state: Any, **kwargs: Any):
    """Run with the given parameters, and with nothing but them."""
    parameters = named_as_in_torch(rnn, parameters)
    assert set(parameters) == {name for name, _ in rnn.named_parameters()}
    return functional_call(rnn.double(), parameters, (x, state), kwargs)


def named_as_in_torch(module: nn.Module, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """The cases call all parameters weight and bias, and have LSTM's content first, as its authors do."""
    parameters = dict(parameters)
    for name, cell in module.named_modules():
        if isinstance(cell, TorchCell):
            rename_of_cell(cell, f"{name}." if name else "", parameters)
    return owned(module, parameters)


def owned(module: nn.Module, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the names of the modules that hold them; a second bias that is not given is zeros."""
    names = {id(weight): name for name, weight in module.named_parameters()}
    inside = dict(named_tensors(module))
    found = {names[id(inside[name])] if name in inside else name: t for name, t in parameters.items()}
    for name, weight in module.named_parameters():
        if "bias_hh" in name:
            given = found.get(name, weight.new_zeros(0).double())
            found[name] = torch.cat([given.new_zeros(len(weight) - len(given)), given])
    return found


def rename_of_cell(cell: TorchCell, prefix: str, parameters: dict[str, Tensor]) -> None:
    gates = list(cell.input.parts)
    content_first = sorted(gates, key=lambda gate: gate != "content")
    order = [content_first.index(gate) for gate in gates]
    for name, projection in cell.named_children():
        for kind in ("weight", "bias") if isinstance(projection, TorchProjection) else ():
            tensor = parameters.pop(f"{prefix}{name}.{kind}", None)
            if tensor is not None:
                own = projection.weight_name if kind == "weight" else projection.bias_name
                chunks = tensor.chunk(len(gates)) if gates != content_first and name != "projection" else None
                parameters[f"{prefix}{name}.{own}"] = (
                    tensor if chunks is None else torch.cat([chunks[number] for number in order])
                )


def of_cell(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"directions.0.cell.{name}": tensor for name, tensor in parameters.items()}


def one_layer(state: Tensor) -> Tensor:
    return state if state.dim() == 3 else state[None]


# ---------------------------------------------------------------------------------------- RAN


@case("ran/ran_tanh", "ran/ran_identity", "ran/ran_identity_proj", "ran/ran_tanh_proj")
def ran(v: Vectors) -> Ran:
    sizes = v["x"].shape[-1], v["s0.c"].shape[-1]
    activation = "tanh" if v.meta["tanh"] else "identity"
    rnn = linnet.RAN(*sizes, activation=activation, proj_size=v.meta["num_proj"] or 0)
    of_x, of_h = v["w.gates_w"].split([sizes[0], len(v["w.gates_w"]) - sizes[0]])
    parameters = {
        "input.weight": torch.cat([v["w.content_w"], of_x], 1).T,
        "input.bias": v["w.gates_b"],
        "recurrent.weight": of_h.T,
    }
    if "w.proj_w" in v:
        parameters |= {"projection.weight": v["w.proj_w"].T, "projection.bias": v["w.proj_b"]}
    y, state = run(rnn, of_cell(parameters), v["x"], (v["s0.h"][None], v["s0.c"][None]))
    return y, {"sT.h": state.h[0], "sT.c": state.c[0]}


# ---------------------------------------------------------------------------------------- SRU

SRU_OPTIONS = {
    "use_tanh": lambda on: {"activation": "tanh" if on else "identity"},
    "rescale": lambda on: {"rescale": on},
    "has_skip_term": lambda on: {"highway": on},
    "highway_bias": lambda bias: {"highway_bias": bias},
    "layer_norm": lambda on: {"prenorm": "layer" if on else None},
    "v1": lambda on: {"recurrent_gates": not on},
    "bidirectional": lambda on: {"bidirectional": on},
    "rnn_dropout": lambda rate: {"input_dropout": rate},
}


def sru_options(v: Vectors) -> dict[str, Any]:
    given = v.meta.get("kw") or {key: v.meta[key] for key in ("bidirectional", "rescale") if key in v.meta}
    options: dict[str, Any] = {}
    for key, value in given.items():
        options |= SRU_OPTIONS[key](value) if key in SRU_OPTIONS else {}
    if "w.weight_proj" in v:
        options["rank"] = v["w.weight_proj"].shape[1]
    return options


def sru_weights(v: Vectors) -> dict[str, Tensor]:
    """The names the `sru` package gives them."""
    named = {}
    for key, tensor in v.weights().items():
        layer, key = (key[1], key[3:]) if key.startswith("l") and key[1].isdigit() else ("0", key)
        named[f"rnn_lst.{layer}.{key.replace('ln_', 'layer_norm.')}"] = tensor
    return named


def sru_state(c: Tensor, layers: int, directions: int) -> Tensor:
    """[layers, B, directions * hidden] -> [layers * directions, B, hidden]."""
    c = one_layer(c).unflatten(-1, (directions, -1))
    return c.permute(0, 2, 1, 3).reshape(layers * directions, c.shape[1], -1)


@case(
    *(f"sru/cell_{kind}" for kind in ("k3", "k4", "k3_hb-3", "k3_norescale", "k3_tanh", "noskip")),
    *(f"sru/cell_{kind}" for kind in ("bi_k3", "bi_k4", "proj", "bi_maskpad", "v1_k3", "preLN")),
    "sru/stack2",
    "sru/stack2_bi",
)
def sru(v: Vectors, **more: Any) -> Ran:
    options = sru_options(v)
    layers = v.meta.get("num_layers", 1)
    directions = 2 if options.get("bidirectional") else 1
    rnn = linnet.SRU(v["x"].shape[-1], v["R"].shape[-1] // directions, layers, **{**options, **more})
    mask = {"mask": ~v["mask_pad"].bool()} if "mask_pad" in v else {}
    start = sru_state(v["s0.c0"], layers, directions)
    y, c = run(rnn, convert(rnn, sru_weights(v), "sru"), v["x"], start, **mask)
    return y, {"sT.c": sru_state_back(c, v["sT.c"], directions)}


def sru_state_back(c: Tensor, like: Tensor, directions: int) -> Tensor:
    return torch.cat(c.unflatten(0, (-1, directions)).unbind(1), -1).reshape(like.shape)


@case("sru/drop_mask_c_v2.0.0", "sru/drop_mask_c_head", "sru/drop_mask_x_and_c_v2.0.0")
def sru_dropout(v: Vectors) -> Ran:
    """The masks of the file in place of drawn ones."""
    reading = "gate" if v.name.endswith("head") else "state"
    with ExitStack() as patches:
        for module, key in (("units.sru", "mask_c"), ("recurrent.projection", "mask_x")):
            if key in v:
                draw = partial(recorded_mask, v[key])
                patches.enter_context(patch(f"linnet.{module}.keep_mask", draw))
        return sru(v, cell_dropout=v.meta["kw"]["dropout"], cell_dropout_on=reading)


def recorded_mask(mask: Tensor, shape: list[int], rate: float, like: Tensor) -> Tensor:
    # A module asks for the names of its parts on the meta device when it is built.
    return torch.empty(shape, device="meta") if like.is_meta else mask.expand(shape)


@case("sru/baseline_qrnn_k1")
def qrnn(v: Vectors) -> Ran:
    """The authors' f is 1 - f of the paper: sigmoid(-a) = 1 - sigmoid(a)."""
    rnn = linnet.QRNN(v["x"].shape[-1], v["s0.c"].shape[-1])
    sign = torch.tensor([1.0, -1.0, 1.0]).repeat_interleave(rnn.hidden_size).double()
    weights = {"input.weight": v["w.weight"] * sign[:, None], "input.bias": v["w.bias"] * sign}
    y, c = run(rnn, of_cell(weights), v["x"], v["s0.c"][None])
    return y, {"sT.c": c[0]}


# ---------------------------------------------------------------------------------------- LRN


@case("lrn/lm_lrn")
def lrn_lm(v: Vectors) -> Ran:
    rnn = linnet.LRN(v["x"].shape[-1], v["s0.h"].shape[-1])
    theirs = {f"_{key}": tensor for key, tensor in v.weights().items()}
    y, h = run(rnn, convert(rnn, theirs, "lrn"), v["x"], v["s0.h"])
    return y, {"sT.h": h}


def held(y: Tensor, start: Tensor, mask: Tensor) -> Tensor:
    """[T, B, D]: the TensorFlow code repeats the state at padded steps, where Linnet gives 0."""
    steps = []
    for now, real in zip(y, mask, strict=True):
        start = torch.where(real[:, None], now, start)
        steps.append(start)
    return torch.stack(steps)


@case("lrn/tf_lrn", "lrn/tf_lrn_rmsnorm", "lrn/mt_lrn_identity_ln", "lrn/mt_olrn_ln")
def lrn_batch_major(v: Vectors) -> Ran:
    translation = v.name.startswith("mt_")
    unit = linnet.OLRN if "olrn" in v.name else linnet.LRN
    # Beside the matrix, the bias and the offset of a layer norm there can only be the scale of a norm.
    scale = next((t for key, t in v.weights().items() if key not in ("W", "b", "ln_offset")), None)
    norm = None if scale is None else "layer" if translation else "rms"
    rnn = unit(
        v["x"].shape[-1],
        v["s0.h"].shape[-1],
        bias=not translation,
        batch_first=True,
        norm=norm,
        activation="identity" if translation else "tanh",
    )
    parameters = {"input.weight": v["w.W"].T}
    if not translation:
        parameters["input.bias"] = v["w.b"]
    if scale is not None:
        parameters["input.norm.weight"] = scale
    if translation:
        parameters["input.norm.bias"] = v["w.ln_offset"]
    mask = v["mask"].bool()
    y, h = run(rnn, of_cell(parameters), v["x"], v["s0.h"][None], mask=mask)
    return held(y.transpose(0, 1), v["s0.h"], mask.T).transpose(0, 1), {"sT.h": h[0]}


@case("lrn/PAPER_gLRN", "lrn/PAPER_eLRN")
def lrn_ablations(v: Vectors) -> Ran:
    unit = linnet.GLRN if v.name == "PAPER_gLRN" else linnet.ELRN
    rnn = unit(v["x"].shape[-1], v["s0.h"].shape[-1])
    y, h = run(rnn, of_cell({"input.weight": v["w.W"].T, "input.bias": v["w.b"]}), v["x"], v["s0.h"][None])
    return y, {"sT.h": h[0]}


@case("lrn/lm_atr")
def atr(v: Vectors) -> Ran:
    rnn = linnet.ATR(v["x"].shape[-1], v["s0.h"].shape[-1])
    parameters = {
        "input.weight": v["w.W"].T,
        "input.bias": v["w.W_b"],
        "recurrent.weight": v["w.U"].T,
        "recurrent.bias": v["w.U_b"],
    }
    y, h = run(rnn, of_cell(parameters), v["x"], v["s0.h"])
    return y, {"sT.h": h}


@case("lrn/lm_gru")
def gru_lm(v: Vectors) -> Ran:
    size = v["x"].shape[-1]
    rnn = linnet.GRU(size, v["s0.h"].shape[-1], form="before")
    parameters = {
        "input.weight": torch.cat([v["w.W"][:size], v["w.U"][:size]], 1).T,
        "input.bias": torch.cat([v["w.W_b"], v["w.U_b"]]),
        "recurrent.weight": v["w.W"][size:].T,
        "candidate.weight": v["w.U"][size:].T,
    }
    y, h = run(rnn, of_cell(parameters), v["x"], v["s0.h"])
    return y, {"sT.h": h}


@case("lrn/lm_lstm")
def lstm_lm(v: Vectors) -> Ran:
    size = v["x"].shape[-1]
    rnn = linnet.LSTM(size, v["s0.h"].shape[-1])
    i, f, o, content = v["w.W"].T.chunk(4)
    b_i, b_f, b_o, b_content = v["w.b"].chunk(4)
    weight = torch.cat([content, i, f, o])
    parameters = {
        "input.weight": weight[:, :size],
        "input.bias": torch.cat([b_content, b_i, b_f, b_o]),
        "recurrent.weight": weight[:, size:],
    }
    y, state = run(rnn, of_cell(parameters), v["x"], (v["s0.h"], v["s0.c"]))
    return y, {"sT.h": state.h, "sT.c": state.c}


@case("lrn/lm_sru")
def sru_lm(v: Vectors) -> Ran:
    rnn = linnet.SRU(v["x"].shape[-1], v["s0.h"].shape[-1], skip="matrix", full_bias=True, rescale=False)
    f, u, r, skip = v["w.W"].T.chunk(4)
    b_f, b_u, b_r, b_skip = v["w.W_b"].chunk(4)
    parameters = {
        "input.weight": torch.cat([skip, u, f, r]),
        "input.bias": torch.cat([b_skip, b_u, b_f, b_r]),
        "v_f": v["w.Vf"],
        "v_r": v["w.Vr"],
    }
    y, c = run(rnn, of_cell(parameters), v["x"], v["s0.c"])
    return y, {"sT.h": y[-1:], "sT.c": c}


# ---------------------------------------------------------------------------------------- NRU


@case("nru/nru_linear", "nru/nru_relu", "nru/nru_layernorm", "nru/nru_k1", "nru/nru_k9_m4", "nru/nru_2layer")
def nru(v: Vectors) -> Ran:
    meta = v.meta
    rnn = linnet.NRU(
        meta["input"],
        meta["hidden"],
        meta["layers"],
        memory_size=meta["memory"],
        num_heads=meta["k"],
        head_activation="relu" if meta.get("use_relu") else "identity",
        layer_norm=meta.get("layer_norm", False),
    )
    theirs = {nru_name(key): tensor for key, tensor in v.weights().items() if key.startswith("cell")}
    layers = range(meta["layers"])
    start = tuple(torch.stack([v[f"s0.{name}{layer}"] for layer in layers]) for name in "hm")
    y, state = run(rnn, convert(rnn, theirs, "nru"), v["x"], start)
    return y @ v["w.W_h2o"] + v["w.b_o"], {"h_seq": state.h, "m_seq": state.m}


def nru_name(key: str) -> str:
    """cell0_hm2v_alpha_weight -> _list_of_modules.0.hm2v_alpha.weight."""
    cell, name = key.split("_", 1)
    name, kind = name.rsplit("_", 1)
    name = "_ln_h" if name == "ln_h" else name
    return f"_list_of_modules.{cell.removeprefix('cell')}.{name}.{kind}"


def side_by_side(v: Vectors, *names: str) -> Tensor:
    return torch.cat([v[f"w.{name}"].T for name in names])


@case("nru/baseline_lstm_peephole")
def lstm_peephole(v: Vectors) -> Ran:
    rnn = linnet.LSTM(v["x"].shape[-1], v["s0.h"].shape[-1], peepholes=True)
    parameters = {
        "input.weight": side_by_side(v, "W_x2c", "W_x2i", "W_x2f", "W_x2o"),
        "input.bias": torch.cat([v["w.b_c"], v["w.b_i"], v["w.b_f"], v["w.b_o"]]),
        "recurrent.weight": side_by_side(v, "W_h2c", "W_h2i", "W_h2f", "W_h2o"),
        "p_i": v["w.W_c2i"],
        "p_f": v["w.W_c2f"],
        "p_o": v["w.W_c2o"],
    }
    y, state = run(rnn, of_cell(parameters), v["x"], (v["s0.h"][None], v["s0.c"][None]))
    return y, {"sT.h": state.h[0], "sT.c": state.c[0]}


def run_one_state(rnn: linnet.Recurrent, v: Vectors, parameters: dict[str, Tensor]) -> Ran:
    (name,) = rnn.first_cell.states
    y, state = run(rnn, of_cell(parameters), v["x"], v[f"s0.{name}"][None])
    return y, {f"sT.{name}": state[0]}


@case("nru/baseline_gru")
def gru_nru(v: Vectors) -> Ran:
    rnn = linnet.GRU(v["x"].shape[-1], v["s0.h"].shape[-1], form="before")
    parameters = {
        "input.weight": side_by_side(v, "W_i2r", "W_i2z", "W_i2h"),
        "input.bias": torch.cat([v["w.b_r"], v["w.b_z"], v["w.b_h"]]),
        "recurrent.weight": side_by_side(v, "W_h2r", "W_h2z"),
        "candidate.weight": side_by_side(v, "W_h2h"),
    }
    return run_one_state(rnn, v, parameters)


@case("nru/baseline_janet")
def janet(v: Vectors) -> Ran:
    rnn = linnet.JANET(v["x"].shape[-1], v["s0.h"].shape[-1])
    parameters = {
        "input.weight": side_by_side(v, "W_x2f", "W_x2c"),
        "input.bias": torch.cat([v["w.b_f"], v["w.b_c"]]),
        "recurrent.weight": side_by_side(v, "W_h2f", "W_h2c"),
    }
    return run_one_state(rnn, v, parameters)


@case("nru/baseline_janet_ORIGINAL_beta1")
def janet_original(v: Vectors) -> Ran:
    size = v["x"].shape[-1]
    rnn = linnet.JANET(size, v["s0.h"].shape[-1], beta=1.0)
    j, f = v["w.W"].T.chunk(2)
    b_j, b_f = v["w.b"].chunk(2)
    weight = torch.cat([f, j])
    parameters = {
        "input.weight": weight[:, :size],
        "input.bias": torch.cat([b_f, b_j]),
        "recurrent.weight": weight[:, size:],
    }
    return run_one_state(rnn, v, parameters)


@case("nru/baseline_rnn_relu_ln")
def rnn_relu_ln(v: Vectors) -> Ran:
    rnn = linnet.RNN(v["x"].shape[-1], v["s0.h"].shape[-1], nonlinearity="relu", layer_norm=True)
    parameters = {
        "input.weight": v["w.W_i2h"].T,
        "input.bias": v["w.b_h"],
        "recurrent.weight": v["w.W_h2h"].T,
        "norm.weight": v["w.ln_weight"],
        "norm.bias": v["w.ln_bias"],
    }
    return run_one_state(rnn, v, parameters)


@case("nru/baseline_statistical_sru")
def statistical(v: Vectors) -> Ran:
    size = v["x"].shape[-1]
    statistics, summary = v["w.xr2phi_weight"].shape[0], v["w.mu2r_weight"].shape[0]
    hidden = v["w.mu2o_weight"].shape[0]
    rnn = linnet.StatisticalRU(
        size, hidden, statistics_size=statistics, summary_size=summary, dtype=torch.double
    )
    parameters = {
        "input.weight": v["w.xr2phi_weight"][:, :size],
        "input.bias": v["w.xr2phi_bias"],
        "recurrent.weight": v["w.xr2phi_weight"][:, size:],
        "summary.weight": v["w.mu2r_weight"],
        "summary.bias": v["w.mu2r_bias"],
        "readout.weight": v["w.mu2o_weight"],
        "readout.bias": v["w.mu2o_bias"],
    }
    return run_one_state(rnn, v, parameters)


@case("nru/baseline_eurnn_fft_real")
def eurnn(v: Vectors) -> Ran:
    rnn = linnet.EURNN(v["x"].shape[-1], v["s0.h"].shape[-1])
    parameters = {"input.weight": v["w.U"].T, "rotation.theta": v["w.theta"], "b": v["w.modrelu_bias"]}
    y, others = run_one_state(rnn, v, parameters)
    turned = functional_call(rnn.first_cell.rotation, {"theta": v["w.theta"]}, (torch.eye(8).double(),))
    return y, {**others, "dense_rotation": turned["turned"]}


@case("nru/baseline_goru", "nru/baseline_goru_fft")
def goru(v: Vectors) -> Ran:
    rnn = linnet.GORU(v["x"].shape[-1], v["s0.h"].shape[-1])
    parameters = {
        "input.weight": v["w.U"].T,
        "input.bias": torch.cat([v["w.bias_r"], v["w.bias_g"]]),
        "recurrent.weight": side_by_side(v, "W_r", "W_g"),
        "rotation.theta": v["w.theta"],
        "b_c": v["w.bias_c"],
    }
    return run_one_state(rnn, v, parameters)


# ---------------------------------------------------------------------------------------- SCRN


@case("scrn/tf_cell", "scrn/tf_cell_alpha95")
def scrn(v: Vectors) -> Ran:
    sizes = v["x"].shape[-1], v["s0.h"].shape[-1]
    rnn = linnet.SCRN(*sizes, context_size=v["s0.s"].shape[-1], alpha=float(v["alpha"]))
    parameters = {
        "input.weight": side_by_side(v, "B", "A"),
        "input.bias": v["w.b"],
        "context.weight": v["w.P"].T,
        "recurrent.weight": v["w.R"].T,
    }
    y, state = run(rnn, of_cell(parameters), v["x"], (v["s0.s"][None], v["s0.h"][None]))
    return y, {"sT.s": state.s[0], "sT.h": state.h[0]}
