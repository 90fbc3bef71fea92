"""Truth: the classifiers of the SRU and LRN authors and their parts, with dropout masks and gradients.

Each file's weights name the parameters of ours, as functions of them. Every file that matches a pattern is
tested, in tests/golden and in LINNET_GOLDEN.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from golden_cases import Vectors, recorded_mask, run, sru_weights
from golden_checks import call, check_gradients, check_output, close, files
from golden_units import Parameters, cell_parameters, character_parameters, pooling_parameters, text_settings
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert
from linnet.layers.characters import CharacterMax
from linnet.layers.class_output import smoothed_cross_entropy
from linnet.layers.pooling import AttentivePooling
from linnet.models.classifier import Classifier, ClassifierConfig

pytestmark = pytest.mark.usefixtures("_backends")


# ------------------------------------------------------------------------- the SRU authors' classifiers


def cnn(v: Vectors) -> tuple[ClassifierConfig, Parameters]:
    config = ClassifierConfig(
        unit="cnn",
        unit_options={"widths": v.meta["widths"]},
        hidden_size=v.meta["filters"],
        **sru_settings(v),
    )
    numbers = range(len(v.meta["widths"]))
    parameters = {f"pooling.filters.{n}": v[f"w.conv{n}_weight"].flatten(1) for n in numbers}
    return config, {**parameters, "pooling.bias": torch.cat([v[f"w.conv{n}_bias"] for n in numbers])}


def sru(v: Vectors) -> tuple[ClassifierConfig, Parameters]:
    depth, size = v.meta["depth"], v.meta["d"]
    rate = v.meta["dropout"] if depth > 1 else 0.0
    config = ClassifierConfig(
        unit="sru",
        unit_options={"cell_dropout": rate},
        hidden_size=size,
        num_layers=depth,
        **sru_settings(v),
    )
    stack = linnet.SRU(v.meta["D"], size, depth)
    theirs = {key: t for key, t in sru_weights(v).items() if ".out_" not in key and ".emb" not in key}
    parameters = {}
    for name, tensor in convert(stack, theirs, "sru").items():
        _, layer, rest = name.split(".", 2)
        parameters[f"layers.{layer}.directions.0.{rest}"] = tensor
    return config, parameters


def sru_settings(v: Vectors) -> dict[str, Any]:
    rate = v.meta["dropout"]
    return {"embedding_size": v.meta["D"], "tuned": "none", "input_dropout": rate, "pooled_dropout": rate}


def time_first(v: Vectors, key: str) -> Tensor:
    return v[key].transpose(0, 1) if v.meta["kind"] == "cnn" else v[key]


@contextmanager
def recorded_masks(v: Vectors, model: Classifier) -> Iterator[None]:
    """The masks of the file instead of drawn ones; those of SRU cells are asked for layer by layer."""
    model.train()
    model.input_dropout.fixed = time_first(v, "mask_emb")
    model.pooled_dropout.fixed = v["mask_out"][None]
    masks = iter([v[key] for key in sorted(v.tensors) if key.startswith("mask_c")])

    def draw(shape: list[int], rate: float, like: Tensor) -> Tensor:
        return recorded_mask(like if like.is_meta else next(masks), shape, rate, like)

    with patch("linnet.units.sru.keep_mask", draw):
        yield


@files("clf_cnn*", "clf_sru*")
@pytest.mark.parametrize("training", [False, True])
def test_the_sru_authors_classifiers(path: Path, training: bool):
    v = Vectors(path)
    config, parameters = {"cnn": cnn, "sru": sru}[v.meta["kind"]](v)
    model = Classifier(v.meta["V"], v.meta["classes"], config).double().eval()
    model.embedding.set_rows(v["w.emb"])
    x = v["w.emb"][v["ids"]].requires_grad_()
    model.embedding.register_forward_hook(lambda *_: x)
    parameters |= {"output.weight": v["w.out_weight"], "output.bias": v["w.out_bias"]}
    prefix = "train_" if training else ""
    with recorded_masks(v, model) if training else nullcontext():
        logits = call(model, parameters, v["ids"])
    close(logits, v[f"{prefix}logits"], "logits")
    loss = torch.nn.functional.cross_entropy(logits, v["y"])
    close(loss, v[f"{prefix}loss"], "loss")
    keys = [key for key in v.weights() if key != "emb"]
    theirs = {key: v[f"{prefix}grad.{key}"] for key in keys} | {"x": time_first(v, f"{prefix}grad.x")}
    check_gradients(loss, {**{key: v[f"w.{key}"] for key in keys}, "x": x}, theirs)
    if not training:
        features = call(model, parameters, v["ids"], function=Classifier.features)
        close(features, v["feat"], "features")


@files("INFER_qrnn_highway*")
def test_qrnn_with_a_highway(path: Path):
    """The authors' f multiplies the new value: sigmoid(-a) = 1 - sigmoid(a)."""
    v = Vectors(path)
    size = v["out"].shape[-1]
    sign = torch.tensor([1.0, -1.0, 1.0]).repeat_interleave(size).double()
    parameters = {}
    layers = len([key for key in v.weights() if key.endswith("_bias")])
    for layer in range(layers):
        cell = f"directions.{layer}.cell.input"
        weight = v[f"w.l{layer}_weight"] * sign[:, None]
        skip = [v[f"w.l{layer}_skip"].T] if f"w.l{layer}_skip" in v else []
        parameters[f"{cell}.weight"] = torch.cat([*skip, weight])
        parameters[f"{cell}.bias"] = v[f"w.l{layer}_bias"] * sign
    y, _ = run(linnet.QRNN(v["x"].shape[-1], size, layers, highway=True), parameters, v["x"], None)
    check_output(v, y)


# --------------------------------------------------------------------------- the parts of the LRN authors


@files("char_feature*")
def test_the_maximum_over_characters(path: Path):
    v = Vectors(path)
    characters = v["c"].transpose(0, 1)
    model = CharacterMax(*v["w.emb"].shape, slots=characters.shape[-1])
    parameters = character_parameters(v["w.emb"], v["w.W"], v["w.b"])
    largest = call(model, parameters, characters, function=CharacterMax.largest).transpose(0, 1)
    close(largest, v["maxed"], "maximum")
    out = call(model, parameters, characters).transpose(0, 1)
    check_output(v, out)


@files("pool_*")
def test_attentive_pooling(path: Path):
    v = Vectors(path)
    x, lengths = v["x"].transpose(0, 1), v["mask"].sum(1).long()
    query = v.tensors.get("q")
    model = AttentivePooling(*v["w.W"].shape, query_size=0 if query is None else query.shape[-1])
    parameters = pooling_parameters(v, "w.")
    if "mask_x" in v:
        x = x * v["mask_x"].transpose(0, 1)
    if "mask_q" in v:
        model.query_dropout.fixed = v["mask_q"].transpose(0, 1)
    out, weights = call(model, parameters, x, lengths, query, function=AttentivePooling.attend)
    close(weights.T, v["att"], "weights")
    check_output(v, out)


@files("label_smoothing*")
def test_label_smoothing(path: Path):
    v = Vectors(path)
    each = smoothed_cross_entropy(v["logits"], v["y"], v.meta["eps"])
    close(each, v["per_item"], "loss of each item")
    close(each.mean(), v["loss"], "loss")
    check_gradients(each.mean(), {"logits": v["logits"]}, v.gradients)


# ------------------------------------------------------------------ the LRN authors' document classifier


def document_model(v: Vectors) -> Classifier:
    special, size = v["w.emb_special"].shape
    assert special == 3
    config = ClassifierConfig(
        **text_settings(v),
        num_layers=1,
        bidirectional=True,
        pooling="attentive",
        attention_size=v["w.pool.W"].shape[1],
    )
    words, characters = 3 + len(v["w.emb_frozen"]), len(v["w.emb_char"])
    model = Classifier(words, v.meta["classes"], config, characters=characters).double()
    model.embedding.set_rows(torch.cat([torch.zeros(3, size), v["w.emb_frozen"]]))
    model.characters.slots = v["c"].shape[-1]
    use_masks(model, v)
    return model


def use_masks(model: Classifier, v: Vectors) -> None:
    places = {
        "mask_word": model.word_dropout,
        "mask_x": model.layer_dropouts[-1],
        "mask_q": model.pooling.query_dropout,
    }
    for key, dropout in places.items():
        if key in v:
            dropout.fixed = v[key].transpose(0, 1)
    if "mask_char" in v:
        # Ours embeds the real characters only, in the order of time.
        real = v["c"].transpose(0, 1) != 0
        sizes = (*v["c"].shape, v["w.emb_char"].shape[1])
        model.characters.embedding.fixed = v["mask_char"].expand(sizes).transpose(0, 1)[real]


def document_parameters(v: Vectors) -> Parameters:
    characters = character_parameters(v["w.emb_char"], v["w.char.W"], v["w.char.b"])
    parameters = {
        "embedding.special": v["w.emb_special"],
        "output.weight": v["w.label.W"].T,
        "output.bias": v["w.label.b"],
        **{f"characters.{name}": tensor for name, tensor in characters.items()},
        **{f"pooling.{name}": tensor for name, tensor in pooling_parameters(v, "w.pool.").items()},
    }
    for number, direction in enumerate(("fw", "bw")):
        for name, tensor in cell_parameters(v, f"w.{direction}").items():
            parameters[f"layers.0.directions.{number}.cell.{name}"] = tensor
    return parameters


@files("doc_full_*")
def test_the_lrn_authors_document_classifier(path: Path):
    v = Vectors(path)
    model, parameters = document_model(v), document_parameters(v)
    inputs = v["t"].T, (v["t"] != 0).sum(1), v["c"].transpose(0, 1)
    logits = call(model, parameters, *inputs)
    close(logits, v["logits"], "logits")
    assert torch.equal(logits.argmax(-1), v["pred"])
    close(call(model, parameters, *inputs, function=Classifier.features), v["pooled"], "pooled")
    characters = call(model, parameters, inputs[2], function=lambda model, c: model.characters(c))
    close(characters.transpose(0, 1), v["char_feature"], "the vectors of the characters")
    cross_entropy = smoothed_cross_entropy(logits, v["l"], 0.1).mean()
    close(cross_entropy, v["ce"], "cross entropy")
    decay = sum(v[key].square().sum() for key in v.gradients)
    loss = cross_entropy + 3e-5 * decay / 2
    close(loss, v["loss"], "loss")
    check_gradients(loss, {key: v[key] for key in v.gradients}, v.gradients)
