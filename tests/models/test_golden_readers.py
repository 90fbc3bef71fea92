"""Truth: the readers of the SRU and LRN authors, with dropout masks and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from golden_cases import Vectors, recorded_mask
from golden_checks import call, check_gradients, check_logits, check_loss, close, files
from golden_units import (
    CELLS,
    Parameters,
    cell_parameters,
    gated_parameters,
    pointer_parameters,
    pooling_parameters,
    tensorflow_gru,
    under,
)
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert
from linnet.layers.spans import SpanLogits
from linnet.models.reader import DocumentReader, Passage, ReaderConfig, RNet

pytestmark = pytest.mark.usefixtures("_backends")


# ---------------------------------------------------------------------------------------------- DrQA


MERGES = {"self_attn": "attention", "avg": "avg"}


def document_reader(v: Vectors) -> DocumentReader:
    options = v.meta["opt"]
    # The SRU authors' code has SRU whatever its option rnn_type says.
    unit = "sru" if "w.doc_rnn.rnns.0.weight_c" in v else options["rnn_type"]
    dropouts = {}
    if unit == "sru":
        rate = options["dropout_rnn"]
        dropouts = {
            "unit_options": {"input_dropout": rate, "cell_dropout": rate},
            "input_dropout": options["dropout_emb"],
            "output_dropout": rate if options["dropout_rnn_output"] else 0.0,
        }
    config = ReaderConfig(
        unit=unit,
        embedding_size=options["embedding_dim"],
        hidden_size=options["hidden_size"],
        num_layers=options["doc_layers"],
        question_layers=options["question_layers"],
        question_merge=MERGES[options["question_merge"]],
        joined=options["concat_rnn_layers"],
        padding="read" if unit == "sru" else "masked",
        tuned="all",
        tag_sizes=(options.get("pos_dim", 0), options.get("ner_dim", 0)),
        **dropouts,
    )
    sizes = {"features": options["num_features"], "tags": (options["pos_size"], options["ner_size"])}
    return DocumentReader(options["vocab_size"], config, **sizes).double()


OURS = {
    "embedding.weight": "embedding.weight",
    "pos_embedding.weight": "tags.0.table.weight",
    "ner_embedding.weight": "tags.1.table.weight",
    "qemb_match.linear": "align.linear",
    "self_attn.linear": "merge.score",
    "start_attn.linear": "spans.start",
    "end_attn.linear": "spans.end",
}


def reader_parameters(v: Vectors, model: DocumentReader) -> Parameters:
    weights, parameters = v.weights(), {}
    for name, tensor in weights.items():
        for theirs, ours in OURS.items():
            if name.startswith(theirs):
                parameters[ours + name.removeprefix(theirs)] = tensor
    for ours, theirs in (("passage_encoder", "doc_rnn"), ("question_encoder", "question_rnn")):
        for number, layer in enumerate(getattr(model, ours).stack):
            prefix = f"{theirs}.rnns.{number}."
            own = {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
            parameters |= under(f"{ours}.layers.{number}", layer_parameters(layer, own))
    return parameters


def layer_parameters(layer: linnet.Recurrent, weights: Parameters) -> Parameters:
    if isinstance(layer, linnet.SRU):
        return convert(layer, {f"rnn_lst.0.{name}": tensor for name, tensor in weights.items()}, "sru")
    return convert(layer, weights, "torch")


def passage_and_question(v: Vectors) -> tuple[Passage, Passage]:
    tags = [v[key].T if v[key].dim() == 2 else v[key].argmax(-1).T for key in ("pos", "ner")]
    passage = Passage(v["doc"].T, (~v["doc_mask"]).sum(1), v["feat"].transpose(0, 1), tuple(tags))
    return passage, Passage(v["question"].T, (~v["q_mask"]).sum(1))


@contextmanager
def recorded_masks(v: Vectors, model: DocumentReader) -> Iterator[None]:
    """Those of cells are asked for layer by layer: first the mask of x, then that of c, in each direction."""
    model.train()
    places = {
        "mask_doc_emb": model.passage_dropout,
        "mask_q_emb": model.question_dropout,
        "mask_pos": model.tag_dropouts[0],
        "mask_ner": model.tag_dropouts[1],
        "mask_doc_out": model.passage_encoder.layer_dropouts[-1],
        "mask_q_out": model.question_encoder.layer_dropouts[-1],
    }
    for key, dropout in places.items():
        dropout.fixed = v[key].transpose(0, 1)
    orders = [
        f"{text}.{layer}" for text in ("doc", "question") for layer in range(v.meta["opt"][f"{text}_layers"])
    ]
    of_x = iter([v[f"mask_x.{order}"] for order in orders for _ in range(2)])
    of_c = iter([half for order in orders for half in v[f"mask_c.{order}"].chunk(2, -1)])

    def draw_from(masks: Iterator[Tensor]) -> Any:
        return lambda shape, rate, like: recorded_mask(
            like if like.is_meta else next(masks), shape, rate, like
        )

    with (
        patch("linnet.recurrent.projection.keep_mask", draw_from(of_x)),
        patch("linnet.units.sru.keep_mask", draw_from(of_c)),
    ):
        yield


def check_answers(v: Vectors, logits: SpanLogits, prefix: str = "") -> Tensor:
    real = ~v["doc_mask"]
    for ours, side in zip(logits, ("start", "end"), strict=True):
        if f"{prefix}log_{side}" in v:
            close(ours.log_softmax(-1)[real], v[f"{prefix}log_{side}"][real], f"log {side}")
        if not prefix:
            close(ours.softmax(-1), v[f"p_{side}"], side)
    return logits.loss(v["t_start"], v["t_end"]).mean()


@files("drqa_reader_*")
def test_document_reader(path: Path):
    v = Vectors(path)
    model = document_reader(v).eval()
    parameters = reader_parameters(v, model)
    check_loss(v, check_answers(v, call(model, parameters, *passage_and_question(v))))


@files("drqa_reader_sru*")
def test_document_reader_with_its_dropouts(path: Path):
    v = Vectors(path)
    model = document_reader(v)
    parameters = reader_parameters(v, model)
    with recorded_masks(v, model):
        loss = check_answers(v, call(model, parameters, *passage_and_question(v)), "train_")
    close(loss, v["train_loss"], "loss")
    leaves = v.weights()
    check_gradients(loss, leaves, {key: v[f"train_grad.{key}"] for key in leaves})


# --------------------------------------------------------------------------------------------- R-Net


def rnet(v: Vectors) -> RNet:
    words, size = v["w.word_emb"].shape
    config = ReaderConfig(
        form="rnet",
        unit=v.meta["unit"],
        unit_options=CELLS[v.meta["unit"]][1],
        embedding_size=size,
        hidden_size=v.meta["hidden"],
        tuned="none",
        character_size=v["w.char_emb"].shape[1],
        character_hidden=v["w.char.fw.Wc"].shape[1],
    )
    model = RNet(words, config, characters=len(v["w.char_emb"])).double()
    model.embedding.set_rows(v["w.word_emb"])
    return model


def rnet_parameters(v: Vectors) -> Parameters:
    parameters = {
        "characters.embedding.weight": v["w.char_emb"],
        **under("attention", gated_parameters(v, "w.attention.")),
        **under("match", gated_parameters(v, "w.match.")),
        **under("merge", pooling_parameters(v, "w.summ.")),
        **under("pointer", pointer_parameters(v)),
    }
    layers = {f"encoder.layers.{number}": f"encoding{number}" for number in range(3)}
    layers |= {"after_attention.layers.0": "attention0", "after_match.layers.0": "match0"}
    for number, direction in enumerate(("fw", "bw")):
        size = v["w.char.fw.Wc"].shape[1]
        gru = tensorflow_gru(v, f"w.char.{direction}.", size)
        parameters |= under(f"characters.layer.directions.{number}.cell", gru)
        for ours, theirs in layers.items():
            cell = cell_parameters(v, f"w.{theirs}.{direction}")
            parameters |= under(f"{ours}.directions.{number}.cell", cell)
    return parameters


@files("rnet_full_*")
def test_rnet(path: Path):
    v = Vectors(path)
    texts = [
        Passage(v[words].T, (v[words] != 0).sum(1), characters=v[characters].transpose(0, 1))
        for words, characters in (("c", "ch"), ("q", "qh"))
    ]
    found = call(rnet(v), rnet_parameters(v), *texts, function=RNet.attend)
    sequences = {
        "enc_c": found.passage,
        "enc_q": found.question,
        "att_seq": found.attended,
        "match_seq": found.matched,
    }
    for key, ours in sequences.items():
        real = v["q" if key == "enc_q" else "c"] != 0
        close(ours.transpose(0, 1)[real], v[key][real], key)
    close(found.start, v["init"], "the question as one vector")
    check_logits(v, found.logits)
    first, last, _ = found.logits.best(longest=16)
    assert torch.equal(first, v["start"])
    assert torch.equal(last, v["end"])
    check_loss(v, found.logits.loss(v["y1"], v["y2"]).mean())
