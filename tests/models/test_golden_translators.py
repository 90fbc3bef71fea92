"""Truth: the LRN authors' translation model and beam search, and OpenNMT-py's Transformer layers with SRU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden_cases import Vectors
from golden_checks import call, check_gradients, check_loss, check_output, close, files
from golden_units import CELLS, Parameters, attention_parameters, cell_parameters, linear, under
from torch import Tensor

import linnet
from linnet.deploy.checkpoints import convert
from linnet.layers.beam import beam_search
from linnet.layers.class_output import smoothed_cross_entropy
from linnet.layers.nested import repeat_rows
from linnet.layers.softmax import IGNORE
from linnet.layers.transformer import (
    FeedForward,
    RecurrentFeedForward,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    sinusoids,
)
from linnet.models.translator import RecurrentTranslator, TranslatorConfig
from linnet.runs.config import ScheduleConfig
from linnet.train.schedules import Moment, gnmt, noam

pytestmark = pytest.mark.usefixtures("_backends")


# ------------------------------------------------------------------------- the LRN authors' translator

IDENTITY = {"lrn", "atr"}


def translator(v: Vectors) -> RecurrentTranslator:
    unit, (encoder, decoder) = v.meta["unit"], v.meta["layers"]
    options = dict(CELLS[unit][1])
    if unit in IDENTITY:
        options["activation"] = "identity"
    if any(key in v for key in ("w.enc0.fw.b", "w.enc0.fw.bu", "w.enc0.fw.bug", "w.enc0.fw.bg")):
        options["bias"] = True
    config = TranslatorConfig(
        unit=unit,
        unit_options=options,
        hidden_size=v.meta["hidden"],
        num_layers=encoder,
        decoder_layers=decoder,
        heads=v.meta["heads"],
        dropout=0.0,
        shared=False,
    )
    return RecurrentTranslator(len(v["w.src_emb"]), len(v["w.tgt_emb"]), config).double()


def translator_parameters(v: Vectors) -> Parameters:
    encoder, decoder = v.meta["layers"]
    parameters = {
        "source.weight": v["w.src_emb"],
        "target.weight": v["w.tgt_emb"],
        "bias": v["w.emb_bias"],
        **under("encoder.backward_pair.lower", cell_parameters(v, "w.enc0.bw_lower")),
        **under("encoder.backward_pair.higher", cell_parameters(v, "w.enc0.bw_higher")),
        **under("decoder.matching.attention", attention_parameters(v, "w.att.")),
        **under("output", linear(v, "w.out.")),
    }
    for number in range(encoder):
        cell = cell_parameters(v, f"w.enc{number}.fw")
        parameters |= under(f"encoder.layers.{number}.directions.0.cell", cell)
        parameters |= under(f"encoder.sums.{number}", residual_parameters(v, f"w.enc{number}."))
    for number in range(decoder):
        pair = f"decoder.pairs.{number - 1}" if number else "decoder.matching"
        for place in ("lower", "higher"):
            parameters |= under(f"{pair}.{place}", cell_parameters(v, f"w.dec{number}.{place}"))
        parameters |= under(f"decoder.sums.{number}", residual_parameters(v, f"w.dec{number}."))
        parameters |= under(f"starts.{number}", linear(v, f"w.init{number}."))
    return parameters


def residual_parameters(v: Vectors, prefix: str) -> Parameters:
    norm = {"norm.weight": v[f"{prefix}ln_scale"], "norm.bias": v[f"{prefix}ln_offset"]}
    return {**under("linear", linear(v, f"{prefix}ff.")), **norm}


@files("mt_full_*")
def test_recurrent_translator(path: Path):
    v = Vectors(path)
    source, target = v["src"].T, v["tgt"].T
    lengths, target_lengths = (v["src"] != 0).sum(1), (v["tgt"] != 0).sum(1)
    model, parameters = translator(v), translator_parameters(v)
    encoded, _ = call(model, parameters, source, lengths, function=RecurrentTranslator.encode)
    real = v["src"] != 0
    close(encoded.transpose(0, 1)[real], v["encodes"][real], "encoder")
    found = call(
        model, parameters, source, lengths, target, target_lengths, function=RecurrentTranslator.attend
    )
    real = v["tgt"] != 0
    close(found.logits.transpose(0, 1)[real], v["logits"][real], "logits")
    close(found.weights.transpose(1, 2)[real], v["att"].transpose(1, 2)[real], "weights")
    targets = target.masked_fill(target == 0, IGNORE).flatten()
    each = smoothed_cross_entropy(found.logits.flatten(0, 1), targets, 0.1).view_as(target)
    per_sentence = each.sum(0) / target_lengths
    close(per_sentence, v["per_sentence"], "loss of each sentence")
    check_loss(v, per_sentence.mean())


@files("mt_beam*")
def test_beam_search(path: Path):
    v = Vectors(path)
    table, beam = v["logits"], v.meta["beam"]

    def step(previous: Tensor, sentence: Tensor) -> tuple[Tensor, Tensor]:
        return table[sentence, previous], sentence

    extra = int(v.meta["max_len"].split("+")[1])
    state = repeat_rows(torch.arange(len(table)), beam)
    found = beam_search(step, state, v["src_len"] + extra, beam, v.meta["alpha"])
    best = found.tokens[:, 0]
    longest = max(best.shape[1], v["best_seq"].shape[1])
    ours, theirs = (F.pad(each, (0, longest - each.shape[1])) for each in (best, v["best_seq"]))
    assert torch.equal(ours, theirs)
    close(found.scores[:, 0], v["best_score"], "score")


# -------------------------------------------------------------------------- OpenNMT-py's Transformer


def feed_forward(v: Vectors) -> FeedForward | RecurrentFeedForward:
    size, inner = v.meta["d"], v.meta["inner"]
    if v.meta["kind"] == "ffn":
        return FeedForward(size, inner)
    both = v.meta.get("bidirectional", False)
    rnn = linnet.SRU(size, inner // 2 if both else inner, bidirectional=both, highway=False)
    return RecurrentFeedForward(rnn, size, reads_padding=True)


def transformer_parameters(v: Vectors, layer: Any, names: dict[str, str]) -> Parameters:
    parts = {
        "linear_keys": "key",
        "linear_values": "value",
        "linear_query": "query",
        "final_linear": "output",
        "a_2": "weight",
        "b_2": "bias",
        "w_1": "inner",
        "w_2": "output",
    }
    parameters, recurrent = {}, {}
    names = {"feed_forward.layer_norm": "feed_forward_norm", "feed_forward": "feed_forward", **names}
    for key, tensor in v.weights().items():
        if ".sru." in key:
            recurrent[f"rnn_lst.0.{key.rsplit('.', 1)[1]}"] = tensor
            continue
        prefix = next(name for name in names if key.startswith(f"{name}."))
        rest = key.removeprefix(f"{prefix}.").split(".")
        parameters[".".join([names[prefix], *(parts.get(part, part) for part in rest)])] = tensor
    if recurrent:
        rnn = convert(layer.feed_forward.rnn, recurrent, "sru")
        parameters |= under("feed_forward.rnn", rnn)
    return parameters


@files("mt_enc_*")
def test_transformer_encoder_layer(path: Path):
    v = Vectors(path)
    layer = TransformerEncoderLayer(v.meta["d"], v.meta["heads"], feed_forward(v))
    names = {"self_attn": "attention", "layer_norm": "attention_norm"}
    parameters = transformer_parameters(v, layer, names)
    out = call(layer, parameters, v["x"].transpose(0, 1), ~v["pad"].T).transpose(0, 1)
    check_output(v, out)


def decode(
    layer: TransformerDecoderLayer, x: Tensor, memory: Tensor, mask: Tensor, source_mask: Tensor
) -> tuple[Tensor, Tensor]:
    source = layer.attention.remember(memory, source_mask)
    return layer(x, source, None, mask)[0], layer.weights(x, source, mask)


@files("mt_dec_*")
def test_transformer_decoder_layer(path: Path):
    v = Vectors(path)
    layer = TransformerDecoderLayer(v.meta["d"], v.meta["heads"], feed_forward(v))
    names = {
        "self_attn": "past",
        "context_attn": "attention",
        "layer_norm_1": "past_norm",
        "layer_norm_2": "attention_norm",
    }
    parameters = transformer_parameters(v, layer, names)
    x, memory = v["x"].transpose(0, 1), v["memory"].transpose(0, 1)
    out, weights = call(layer, parameters, x, memory, ~v["tgt_pad"].T, ~v["src_pad"].T, function=decode)
    close(weights[:, 0], v["attn_head0"], "weights of the first head")
    check_output(v, out.transpose(0, 1))


@files("mt_misc*")
def test_positions_smoothing_and_learning_rate(path: Path):
    v = Vectors(path)
    steps, size = v["pe"].shape
    positions = sinusoids(steps, size, like=v["pe"])
    close(positions, v["pe"], "positions")
    close(v["E"][v["ids"]] * size**0.5 + positions[:, None], v["emb"], "embedding")
    pad, count = v.meta["pad_id"], int(v["ntok"])
    targets = v["target"].masked_fill(v["target"] == pad, IGNORE)
    loss = smoothed_cross_entropy(v["logits"], targets, v.meta["eps"], excluded=pad).sum()
    close(loss, v["loss"], "loss")
    check_gradients(loss / count, {"logits": v["logits"]}, v.gradients)
    close(smoothed_cross_entropy(v["logits"], targets).sum(), v["nll"], "cross entropy")
    settings = v.meta["noam"]
    schedule = ScheduleConfig(schedule="noam", warmup=settings["warmup"], width=settings["model_size"])
    rates = [settings["lr"] * noam(schedule, Moment(1, int(step), ())) for step in v["steps"]]
    close(torch.tensor(rates, dtype=torch.double), v["lr"], "learning rate")


@files("mt_lr_gnmt*")
def test_the_schedule_of_gnmt(path: Path):
    v = Vectors(path)
    names = {"peak": "n", "warmup": "p", "decay_start": "s", "decay_end": "e"}
    schedule = ScheduleConfig(schedule="gnmt", **{name: v.meta[key] for name, key in names.items()})
    rates = [v.meta["lr0"] * gnmt(schedule, Moment(1, int(step), ())) for step in v["t"]]
    close(torch.tensor(rates, dtype=torch.double), v["lr"], "learning rate")
