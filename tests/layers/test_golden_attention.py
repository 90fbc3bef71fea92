"""Truth: the attention, matching and pointer layers of the authors' models, with their gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from golden_cases import Vectors
from golden_checks import call, check_logits, check_loss, check_output, close, files
from golden_units import (
    CELLS,
    attention_parameters,
    cell_parameters,
    gated_parameters,
    pointer_parameters,
    pooling_parameters,
    under,
)
from torch import Tensor

import linnet
from linnet.layers.attention import AdditiveAttention, AlignedAttention, GatedAttention
from linnet.layers.matching import MatchingRecurrence
from linnet.layers.pooling import AttentivePooling, LinearPooling, mean
from linnet.layers.spans import BilinearSpans, PointerNetwork, SpanLogits, best_spans


def time_first(v: Vectors, key: str) -> Tensor:
    return v[key].transpose(0, 1)


def use_masks(v: Vectors, **dropouts: Any) -> None:
    """Recorded dropout masks, [B, time or 1, size] or [B, size], in place of drawn ones."""
    for key, dropout in dropouts.items():
        if key in v:
            dropout.fixed = v[key].transpose(0, 1) if v[key].dim() == 3 else v[key][None]


# --------------------------------------------------------------------------- word-by-word attention


def matching_layer(v: Vectors) -> MatchingRecurrence:
    unit, norm = linnet.UNITS[v.meta["unit"]], v.meta["norm"]
    options = {**CELLS[v.meta["unit"]][1], "norm": norm}
    if "norm_on" in unit.options():
        options["norm_on"] = "all"
    memory = v["mem"].shape[-1]
    cells = [unit(size, v["out"].shape[-1], **options).first_cell for size in (v["x"].shape[-1], memory)]
    attention = AdditiveAttention(v["out"].shape[-1], memory, v.meta["heads"], norm)
    return MatchingRecurrence(*cells, attention)


def run_as_authors(layer: MatchingRecurrence, v: Vectors) -> tuple[Tensor, ...]:
    """Their state stays at padded steps, and what they return is this state and what it would read."""
    mask, memory_mask = v["mask"].T.bool(), v["mem_mask"].T.bool()
    memory = layer.attention.remember(time_first(v, "mem"), memory_mask)
    found = layer(time_first(v, "x"), memory, v["s0"], mask)
    state, states, contexts = v["s0"], [], []
    size = layer.hidden_size
    for t, x in enumerate(time_first(v, "x")):
        stepped = layer.step(x, memory, state)
        real = mask[t][:, None]
        state = torch.where(real, stepped.state, state)
        states.append(state)
        contexts.append(torch.where(real, stepped.context, layer.attention(state[:, :size], memory)[0]))
    every, contexts = torch.stack(states, 1), torch.stack(contexts, 1)
    return found, every, contexts


@files("condrnn_*")
def test_word_by_word_attention(path: Path):
    v = Vectors(path)
    parameters = {
        **under("lower", cell_parameters(v, "w.lower")),
        **under("higher", cell_parameters(v, "w.higher")),
        **under("attention", attention_parameters(v, "w.att.")),
    }
    found, state, context = call(matching_layer(v), parameters, v, function=run_as_authors)
    out = state[..., : v["out"].shape[-1]]
    close(out, v["out"], "output")
    close(state, v["state"], "states")
    close(context, v["context"], "context")
    real = v["mask"].bool()
    close(found.output.transpose(0, 1)[real], v["out"][real], "output of the run")
    close(found.context.transpose(0, 1)[real], v["context"][real], "context of the run")
    close(found.state, v["sT"], "final state")
    close(found.weights.transpose(1, 2)[real], v["att"].transpose(1, 2)[real], "weights")
    check_loss(v, (out * v["R"]).sum() + (context * v["Rc"]).sum())


# --------------------------------------------------------------------------------------------- R-Net


@files("rnet_gated_*")
def test_gated_attention(path: Path):
    v = Vectors(path)
    key = "mem" if "mem" in v else "x"
    layer = GatedAttention(v["x"].shape[-1], v[key].shape[-1], v["w.Wx"].shape[1])
    use_masks(v, mask_x=layer.query_dropout, mask_mem=layer.key_dropout, mask_res=layer.gate_dropout)
    parameters = gated_parameters(v, "w.")
    mask = v["mem_mask"].T.bool()
    out, weights = call(layer, parameters, time_first(v, "x"), time_first(v, key), mask)
    close(weights[:, 0], v["att"], "weights")
    check_output(v, out.transpose(0, 1))


@files("rnet_pointer*")
def test_pointer(path: Path):
    v = Vectors(path)
    pooling = AttentivePooling(*v["w.summ.W"].shape)
    question = time_first(v, "q")
    lengths = v["q_mask"].sum(1).long()
    use_masks(v, mask_q=pooling.score_dropout)
    start = call(pooling, pooling_parameters(v, "w.summ."), question, lengths)
    close(start, v["init"], "the state to start from")
    layer = PointerNetwork(
        linnet.GRUCell(v["match"].shape[-1], v["q"].shape[-1], form="before"), v["w.ptr.W"].shape[1]
    )
    use_masks(
        v, mask_match=layer.passage_dropout, mask_state=layer.state_dropout, mask_ctx=layer.read_dropout
    )
    logits = call(layer, pointer_parameters(v), time_first(v, "match"), start, v["mask"].T.bool())
    check_logits(v, logits)
    check_loss(v, logits.loss(v["y1"], v["y2"]).mean())


@files("rnet_spans*")
def test_spans_of_rnet(path: Path):
    v = Vectors(path)
    start, end, _ = SpanLogits(v["logits1"], v["logits2"]).best(longest=16)
    assert torch.equal(start, v["start"])
    assert torch.equal(end, v["end"])


# ---------------------------------------------------------------------------------------------- DrQA


@files("drqa_seqattn*")
def test_aligned_attention(path: Path):
    v = Vectors(path)
    layer = AlignedAttention(v["x"].shape[-1])
    parameters = {"linear.weight": v["w.linear_weight"], "linear.bias": v["w.linear_bias"]}
    out, _ = call(layer, parameters, time_first(v, "x"), time_first(v, "y"), ~v["y_mask"].T)
    check_output(v, out.transpose(0, 1))


@files("drqa_selfattn*")
def test_linear_pooling(path: Path):
    v = Vectors(path)
    parameters = {"score.weight": v["w.linear_weight"], "score.bias": v["w.linear_bias"]}
    layer = LinearPooling(v["x"].shape[-1])
    lengths = (~v["mask"]).sum(1)
    out, weights = call(layer, parameters, time_first(v, "x"), lengths, function=LinearPooling.attend)
    close(weights.T, v["alpha"], "weights")
    check_output(v, out)


@files("drqa_selfattn*")
def test_the_weights_of_the_mean(path: Path):
    """The mean of one-hot vectors of the steps is the weights of the steps."""
    v = Vectors(path)
    rows, steps = v["mask"].shape
    one_hot = torch.eye(steps, dtype=torch.float64)[:, None].expand(-1, rows, -1)
    close(mean(one_hot, (~v["mask"]).sum(1)), v["uniform"], "weights")


@files("drqa_bilinear*")
def test_bilinear_spans(path: Path):
    v = Vectors(path)
    layer = BilinearSpans(v["x"].shape[-1], v["q"].shape[-1])
    parameters = {
        f"{side}.{kind}": v[f"w.{side}_{kind}"] for side in ("start", "end") for kind in ("weight", "bias")
    }
    logits = call(layer, parameters, time_first(v, "x"), v["q"], ~v["mask"].T)
    for ours, side in zip(logits, ("start", "end"), strict=True):
        close(ours.softmax(-1), v[f"p_{side}"], side)
        real = ~v["mask"]
        close(ours.log_softmax(-1)[real], v[f"log_{side}"][real], f"log {side}")
    first, last, _ = best_spans(v["p_start"], v["p_end"], v.meta["max_len"])
    assert torch.equal(torch.stack([first, last], 1), v["span"])
    check_loss(v, logits.loss(v["t_start"], v["t_end"]).mean())
