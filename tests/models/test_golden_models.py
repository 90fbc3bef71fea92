"""Truth: whole language models, as the authors' code computed them, masks and an update step included.

Each file's weights name the parameters of a model of ours, as functions of them, so that autograd
gives the gradients that the file holds. Both the kernels and the reference loop must agree.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_cases import Vectors, find
from golden_checks import call
from torch import Tensor, nn
from torch.func import functional_call

import linnet
from linnet.layers.penalties import sobolev_penalty
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.runs.config import OptimiserConfig
from linnet.train import optimisers

TOLERANCE = 1e-10
Parameters = dict[str, Tensor]


# By the kernel where there is one (not for an h that reads the previous s), and by the loop.
pytestmark = pytest.mark.usefixtures("_backends")


def close(ours: Tensor, theirs: Tensor, what: str) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE, msg=lambda text: f"{what}: {text}")


def load(name: str) -> Vectors:
    return Vectors(find(name))


def check_gradients(v: Vectors, loss: Tensor) -> dict[str, Tensor]:
    close(loss, v["loss"], "loss")
    leaves = [v[key] for key in v.gradients]
    found = dict(zip(v.gradients, torch.autograd.grad(loss, leaves), strict=True))
    for key, theirs in v.gradients.items():
        close(found[key], theirs, f"gradient of {key}")
    return found


def logits_and_parts(
    model: LanguageModel, parameters: Parameters, tokens: Tensor, targets: Tensor, state: Any
) -> tuple[Tensor, Any]:
    """The logits as the softmax makes them, and the loss: two passes with the same masks."""

    def both(model: LanguageModel) -> Any:
        logits = model.softmax.logits(model(tokens, state).output, model.tied_weight)
        return logits, model.loss(tokens, targets, state)

    return call(model, parameters, function=both)


# -------------------------------------------------------------------------------------------- RAN


def ran_parameters(v: Vectors) -> Parameters:
    size = v["w.embedding"].shape[1]
    parameters = {
        "embedding.weight": v["w.embedding"],
        "softmax.weight": v["w.softmax_w"].T,
        "softmax.bias": v["w.softmax_b"],
    }
    for layer in range(2):
        of_x, of_h = v[f"w.l{layer}_gates_w"].split(size)
        cell = f"layers.{layer}.directions.0.cell"
        parameters |= {
            f"{cell}.input.weight": torch.cat([v[f"w.l{layer}_content_w"], of_x], 1).T,
            f"{cell}.input.bias": v[f"w.l{layer}_gates_b"],
            f"{cell}.recurrent.weight": of_h.T,
        }
    return parameters


def test_ran_with_its_dropout_and_one_step_of_descent():
    v = load("ran/lm_step_dropout")
    rows, size = v["w.embedding"].shape
    rates = dict.fromkeys(("input_dropout", "layer_dropout", "output_dropout"), 1 - v.meta["keep_prob"])
    model = LanguageModel(
        rows, LanguageModelConfig(unit="ran", embedding_size=size, hidden_size=size, **rates)
    ).double()
    for dropout, key in zip(
        (model.input_dropout, *model.layer_dropouts), ("mask_emb", "mask_l0", "mask_l1"), strict=True
    ):
        dropout.fixed = v[key]
    state = tuple((v[f"s0.h{layer}"][None], v[f"s0.c{layer}"][None]) for layer in range(2))
    tokens, targets = v["ids"].T, v["targets"].T
    logits, parts = logits_and_parts(model, ran_parameters(v), tokens, targets, state)
    close(logits.transpose(0, 1).flatten(0, 1), v["logits"], "logits")
    for layer in range(2):
        close(parts.state[layer].h[0], v[f"sT.h{layer}"], "h")
        close(parts.state[layer].c[0], v[f"sT.c{layer}"], "c")
    # The authors sum over the steps of a window.
    gradients = check_gradients(v, parts.objective * len(tokens))
    norm = torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum().sqrt()
    close(norm, v["grad_norm"], "the norm of all gradients")
    weights = {key: nn.Parameter(v[key].detach()) for key in gradients}
    for key, weight in weights.items():
        weight.grad = gradients[key].clone()
    optimisers.clip([*weights.values()], norm, OptimiserConfig(clip=float(v["clip_norm"]), clip_exact=True))
    for key, weight in weights.items():
        close(weight - v["lr"] * weight.grad, v[f"new.{key}"], f"{key} after the step")


# ------------------------------------------------------------------------------------------- SCRN


def scrn_cell(v: Vectors, prefix: str = "") -> Parameters:
    cell = {
        "input.weight": torch.cat([v[f"w.{prefix}B"], v[f"w.{prefix}A"]], 1).T,
        "context.weight": v[f"w.{prefix}P"].T,
        "recurrent.weight": v[f"w.{prefix}R"].T,
    }
    if f"w.{prefix}b" in v:
        cell["input.bias"] = v[f"w.{prefix}b"]
    return cell


def of_layer(number: int, cell: Parameters) -> Parameters:
    return {f"layers.{number}.directions.0.cell.{name}": tensor for name, tensor in cell.items()}


def scrn_decoder(v: Vectors) -> Parameters:
    """s is decoded by U; h by V, or by the embedding if there is no V."""
    both = [v[key] for key in ("w.U", "w.V") if key in v]
    decoder = {"softmax.weight": torch.cat(both).T}
    return decoder | ({"softmax.bias": v["w.bo"]} if "w.bo" in v else {})


@pytest.mark.parametrize("name", ["lm_none_tied", "lm_none_untied", "lm_nd_tied"])
def test_scrn_of_two_layers(name: str):
    v = load(f"scrn/{name}")
    rows, size = v["w.E"].shape
    config = LanguageModelConfig(
        unit="scrn",
        unit_options={"context_size": v["w.U"].shape[0], "alpha": float(v["alpha"])},
        embedding_size=size,
        hidden_size=size,
        tied=v.meta["tied"],
    )
    model = LanguageModel(rows, config).double()
    if v.meta["mode"] == "nd":
        model.input_dropout.fixed = v["mask_in"]
        for layer, dropout in enumerate(model.layer_dropouts):
            dropout.fixed = v[f"mask_out{layer}"]
    parameters = {"embedding.weight": v["w.E"], **scrn_decoder(v)}
    for layer in range(2):
        parameters |= of_layer(layer, scrn_cell(v, f"l{layer}_"))
    state = tuple((v[f"s0.s{layer}"][None], v[f"s0.h{layer}"][None]) for layer in range(2))
    tokens, targets = v["ids"].T, v["targets"].T
    logits, parts = logits_and_parts(model, parameters, tokens, targets, state)
    close(logits.transpose(0, 1).flatten(0, 1), v["logits"], "logits")
    for layer in range(2):
        close(parts.state[layer].s[0], v[f"sT.s{layer}"], "s")
        close(parts.state[layer].h[0], v[f"sT.h{layer}"], "h")
    check_gradients(v, parts.objective * len(tokens))


BASELINES = {
    "baseline_tf": {"options": {}, "output_bias": True, "factor": lambda steps, batch: steps},
    "baseline_fb_lua": {
        "options": {"hidden_reads": "previous", "bias": False},
        "output_bias": False,
        "factor": lambda steps, batch: steps * batch,
    },
}


@pytest.mark.parametrize("name", BASELINES)
def test_scrn_that_reads_words_by_their_number(name: str):
    """The two baselines: one layer, no embedding; in Lua h reads the previous s, and nothing has a bias."""
    v = load(f"scrn/{name}")
    case = BASELINES[name]
    options = {"context_size": v["s0.s"].shape[1], "alpha": float(v["alpha"]), **case["options"]}
    config = LanguageModelConfig(
        unit="scrn",
        unit_options=options,
        embedding_size=0,
        hidden_size=v["s0.h"].shape[1],
        num_layers=1,
        output_bias=case["output_bias"],
    )
    model = LanguageModel(len(v["w.B"]), config).double()
    parameters = {**of_layer(0, scrn_cell(v)), **scrn_decoder(v)}
    state = ((v["s0.s"][None], v["s0.h"][None]),)
    tokens, targets = v["ids"], v["targets"]
    encoded = call(model, parameters, tokens, state)
    close(encoded.raw, torch.cat([v["s_seq"], v["h_seq"]], -1), "[s; h]")
    logits, parts = logits_and_parts(model, parameters, tokens, targets, state)
    close(logits, v["logits"], "logits")
    check_gradients(v, parts.objective * case["factor"](*tokens.shape))


def test_the_sobolev_penalty_of_the_scrn_paper():
    v = load("scrn/PAPER_sobolev")
    sizes = v["x"].shape[-1], v["s0.h"].shape[-1]
    rnn = linnet.SCRN(*sizes, context_size=v["s0.s"].shape[-1], alpha=float(v["alpha"])).double()
    parameters = {f"directions.0.cell.{name}": tensor for name, tensor in scrn_cell(v).items()}
    y, _ = functional_call(rnn, parameters, (v["x"], (v["s0.s"][None], v["s0.h"][None])))
    found = sobolev_penalty(y[..., -sizes[1] :], v["w.R"].T)
    close(found, v["sobolev_per_example"], "penalty")
    check_gradients(v, found.sum())


# -------------------------------------------------------------------------------------------- LRN


def test_lrn_with_a_mixture_of_softmaxes():
    v = load("lrn/lm_mos_lrn_small")
    meta = v.meta
    config = LanguageModelConfig(
        unit="lrn",
        embedding_size=meta["ninp"],
        hidden_sizes=(meta["nhid"],) * (meta["nlayers"] - 1) + (meta["nhidlast"],),
        softmax="mixture",
        experts=meta["n_experts"],
        tied=True,
        ar=2.0,
        tar=1.0,
    )
    model = LanguageModel(meta["ntoken"], config).double()
    # The authors' dropout of embedding rows calls F.embedding with padding_idx=-1, which torch takes for the
    # last word: as an input, it gets no gradient from them.
    model.embedding.padding_idx = meta["ntoken"] - 1
    parameters = {
        "embedding.weight": v["w.encoder_weight"],
        "softmax.bias": v["w.decoder_bias"],
        "softmax.prior.weight": v["w.prior_weight"],
        "softmax.latent.weight": v["w.latent_0_weight"],
        "softmax.latent.bias": v["w.latent_0_bias"],
    }
    for layer in range(3):
        theirs = {"weight": v[f"w.rnns_{layer}_cell_0_W"].T, "bias": v[f"w.rnns_{layer}_cell_0_W_b"]}
        parameters |= of_layer(layer, {f"input.{name}": tensor for name, tensor in theirs.items()})
    state = tuple(v[f"s0.h{layer}"] for layer in range(3))
    tokens, targets = v["ids"], v["targets"]
    encoded, log_probs, parts = call(
        model,
        parameters,
        function=lambda model: (
            model(tokens, state),
            model.log_probs(tokens, state)[0],
            model.loss(tokens, targets, state),
        ),
    )
    close(log_probs, v["log_prob"], "log p")
    for layer in range(3):
        close(encoded.layers[layer], v[f"raw_out{layer}"], f"the output of layer {layer}")
        close(parts.state[layer], v[f"sT.h{layer}"], "h")
    close(parts.nll / parts.count, v["nll"], "nll")
    check_gradients(v, parts.objective)
