"""Truth: the tagger and the CRF of the LRN authors, with every gradient; and laws of the tagger."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import Vectors, matching
from golden_checks import call, close
from torch import Tensor

import linnet
from linnet.models.tagger import Spelling, Tagger, TaggerConfig, Words
from linnet.tasks.tag import TagMetrics, entities

Parameters = dict[str, Tensor]
# The units as the authors' tagger has them, and the parameters of the paper's models without the word table.
UNITS: dict[str, tuple[dict[str, Any], int]] = {
    "lstm": ({"second_bias": False}, 245_155),
    "gru": ({"form": "before"}, 192_405),
    "atr": ({"activation": "identity"}, 87_155),
    "sru": ({"full_bias": True, "rescale": False, "skip": "matrix"}, 160_655),
    "lrn": ({}, 128_655),
}


def check_gradients(v: Vectors, loss: Tensor, prefix: str = "") -> None:
    leaves = {key: v[key] for key in v.gradients}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    for key, gradient in zip(leaves, found, strict=True):
        close(gradient, v[f"{prefix}grad.{key}"], f"{prefix}gradient of {key}")


def crf_parameters(v: Vectors, prefix: str) -> Parameters:
    """Their energies are our scores with the other sign."""
    return {
        "start_transitions": -v[f"{prefix}left"],
        "transitions": -v[f"{prefix}U"],
        "end_transitions": -v[f"{prefix}right"],
    }


def released_loss(likelihood: Tensor, lengths: Tensor, steps: int, labels: int) -> Tensor:
    """-log p / length of each sequence, with the constant that padding adds to it in the authors' code."""
    return (-likelihood + (steps - lengths).double() * math.log(labels)) / lengths


# --------------------------------------------------------------------------------------------- CRF


@pytest.mark.parametrize("path", matching("ner_crf*"), ids=lambda path: path.stem)
@pytest.mark.parametrize("form", ["released", "intended"])
def test_the_crf_is_the_authors(path: Path, form: str):
    v = Vectors(path)
    labels, intended = v.meta["labels"], form == "intended"
    crf = linnet.CRF(labels, batch_first=True, use_end=intended)
    x, lengths = -(v["x"] @ v["w.W"] + v["w.b"]), v["mask"].sum(1).long()
    likelihood, best = call(
        crf,
        crf_parameters(v, "w."),
        function=lambda crf: (
            crf(x, v["y"], lengths=lengths, reduction="none"),
            crf.viterbi(x, lengths=lengths).tags,
        ),
    )
    if intended:
        prefix, loss = "intended.", -likelihood / lengths
        close(-likelihood, v["intended.nll"], "nll")
    else:
        prefix, loss = "", released_loss(likelihood, lengths, x.shape[1], labels)
        close(-likelihood, v["nll_true"], "nll")
        close(loss, v["nll_per_token_released"], "released nll")
    assert torch.equal(best, v[f"{prefix}path"])
    close(loss.mean(), v[f"{prefix}loss"], "loss")
    check_gradients(v, loss.mean(), prefix)


# ------------------------------------------------------------------------------------------ cells


def cell_lstm(w: Parameters, size: int) -> Parameters:
    i, f, o, content = w["kernel"].T.chunk(4)
    b_i, b_f, b_o, b_content = w["kernel_bias"].chunk(4)
    weight = torch.cat([content, i, f, o])
    return {
        "input.weight": weight[:, :size],
        "input.bias": torch.cat([b_content, b_i, b_f, b_o]),
        "recurrent.weight": weight[:, size:],
    }


def cell_gru(w: Parameters, size: int) -> Parameters:
    return {
        "input.weight": torch.cat([w["kernel"][:size], w["candidate"][:size]], 1).T,
        "input.bias": torch.cat([w["kernel_bias"], w["candidate_bias"]]),
        "recurrent.weight": w["kernel"][size:].T,
        "candidate.weight": w["candidate"][size:].T,
    }


def cell_atr(w: Parameters, size: int) -> Parameters:
    """One matrix reads x, the other h; the rows tell which."""
    x, h = sorted(("kernel", "candidate"), key=lambda name: len(w[name]) != size)
    return {
        "input.weight": w[x].T,
        "input.bias": w[f"{x}_bias"],
        "recurrent.weight": w[h].T,
        "recurrent.bias": w[f"{h}_bias"],
    }


def cell_sru(w: Parameters, size: int) -> Parameters:
    f, u, r, skip = w["kernel"].T.chunk(4)
    b_f, b_u, b_r, b_skip = w["kernel_bias"].chunk(4)
    return {
        "input.weight": torch.cat([skip, u, f, r]),
        "input.bias": torch.cat([b_skip, b_u, b_f, b_r]),
        "v_f": w["kernel_vf"].flatten(),
        "v_r": w["kernel_vr"].flatten(),
    }


def cell_lrn(w: Parameters, size: int) -> Parameters:
    return {"input.weight": w["kernel"].T, "input.bias": w["kernel_bias"]}


CELLS = {"lstm": cell_lstm, "gru": cell_gru, "atr": cell_atr, "sru": cell_sru, "lrn": cell_lrn}


def layer(v: Vectors, name: str, ours: str, size: int) -> Parameters:
    """The parameters of both directions of a layer."""
    found = {}
    for direction, theirs in enumerate(("fw", "bw")):
        prefix = f"{name}.{theirs}."
        weights = {key.removeprefix(prefix): t for key, t in v.weights().items() if key.startswith(prefix)}
        for key, tensor in CELLS[v.meta["unit"]](weights, size).items():
            found[f"{ours}.directions.{direction}.cell.{key}"] = tensor
    return found


def tagger(v: Vectors) -> tuple[Tagger, Parameters]:
    (words, size), (characters, character_size) = v["w.word_emb"].shape, v["w.char_emb"].shape
    read = v["char_feature"].shape[-1]
    config = TaggerConfig(
        unit=v.meta["unit"],
        unit_options=UNITS[v.meta["unit"]][0],
        embedding_size=size,
        hidden_size=v.meta["hidden"],
        character_size=character_size,
        character_hidden=read // 2,
        dense_size=v["w.dense.W"].shape[1],
        released_crf=True,
    )
    parameters = {
        "embedding.trained": v["w.word_emb"],
        "characters.embedding.weight": v["w.char_emb"],
        **layer(v, "char", "characters.layer", character_size),
        **layer(v, "word", "layers.0", size + read),
        "dense.weight": v["w.dense.W"].T,
        "dense.bias": v["w.dense.b"],
        "output.weight": -v["w.crf.W"].T,
        "output.bias": -v["w.crf.b"],
        **{f"decoder.{name}": tensor for name, tensor in crf_parameters(v, "w.crf.").items()},
    }
    return Tagger(words, v.meta["labels"] - 1, config, characters=characters).eval(), parameters


@pytest.mark.usefixtures("_backends")
@pytest.mark.parametrize("path", matching("ner_full_*"), ids=lambda path: path.stem)
def test_the_tagger_is_the_authors(path: Path):
    v = Vectors(path)
    tokens, real = v["w"].T, v["w"].T != 0
    lengths, spelling = real.sum(0), every_word(v["c"].transpose(0, 1))

    def run(model: Tagger) -> Any:
        y = model.encode(Words(tokens, spelling), lengths=lengths).output
        scores = model(tokens, lengths, spelling)
        assert model.dense is not None
        return (
            (model.characters(spelling), y, torch.tanh(model.dense(y))),  # type: ignore[misc]
            model.decoder(scores, v["y"].T, lengths=lengths, reduction="none"),
            model.decoder.viterbi(scores, lengths=lengths).tags,  # type: ignore[operator]
        )

    model, parameters = tagger(v)
    inside, likelihood, best = call(model, parameters, function=run)
    for name, ours in zip(("char_feature", "seq", "energy_input"), inside, strict=True):
        close(ours[real], v[name].transpose(0, 1)[real], name)
    assert torch.equal(best, v["path"].T)
    loss = released_loss(likelihood, lengths, len(tokens), v.meta["labels"])
    close(loss, v["nll_per_token_released"], "released nll")
    close(loss.mean(), v["loss"], "loss")
    check_gradients(v, loss.mean())


def every_word(characters: Tensor) -> Spelling:
    """[T, B, C] as a table in which no word is shared."""
    return Spelling(
        characters.flatten(0, 1), torch.arange(characters[..., 0].numel()).view(characters.shape[:2])
    )


def test_every_unit_of_the_paper_has_a_mapping():
    assert set(CELLS) == set(UNITS)


# -------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("unit", UNITS)
def test_parameters_are_those_of_table_6(unit: str):
    options, expected = UNITS[unit]
    config = TaggerConfig(unit=unit, unit_options=options, released_crf=True)
    model = Tagger(50, 9, config, characters=517, device="meta")
    assert model.count() - 50 * 100 == expected


@pytest.mark.parametrize("unit", linnet.UNITS)
@pytest.mark.parametrize("options", [{"bidirectional": False}, {"decoder": "softmax", "character_size": 0}])
def test_padding_changes_nothing(unit: str, options: dict[str, Any]):
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"embedding_size": 4, "hidden_size": 6, "character_hidden": 2, "dense_size": 3}
    config = TaggerConfig(unit=unit, **sizes, **options)
    model = Tagger(10, 3, config, characters=7, fixed_words=5).double().eval()
    tokens, characters = torch.randint(15, (5, 2)), torch.randint(1, 7, (5, 2, 4))
    lengths, tags = torch.tensor([5, 3]), torch.randint(3, (5, 2))
    scores = model(tokens, lengths, every_word(characters))
    alone = model(tokens[:3, 1:], None, every_word(characters[:3, 1:]))
    torch.testing.assert_close(scores[:3, 1:], alone, rtol=1e-12, atol=1e-12)
    both = model.decoder(scores, tags, lengths=lengths, reduction="none")
    one = model.decoder(alone, tags[:3, 1:], lengths=[3], reduction="none")
    torch.testing.assert_close(both[1:], one, rtol=1e-12, atol=1e-12)
    assert model.decoder.decode(scores, lengths=lengths)[1] == model.decoder.decode(alone, lengths=[3])[0]  # type: ignore[operator]
    total = model.decoder.marginals(scores, lengths=lengths).sum(-1)  # type: ignore[operator]
    torch.testing.assert_close(total, (torch.arange(5)[:, None] < lengths).double())


def test_words_that_occur_twice_are_read_once_with_the_same_result():
    torch.manual_seed(1)
    config = TaggerConfig(unit="lrn", embedding_size=4, hidden_size=6, input_dropout=0.0)
    model = Tagger(10, 3, config, characters=7).double()
    tokens, table, index = torch.randint(10, (4, 2)), torch.randint(1, 7, (3, 5)), torch.randint(3, (4, 2))
    grads = []
    for spelling in (Spelling(table, index), every_word(table[index])):
        model.zero_grad()
        model(tokens, None, spelling).sum().backward()
        grads.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_fixed_words_are_no_parameters_and_are_read_like_the_others():
    config = TaggerConfig(unit="lrn", embedding_size=3)
    model = Tagger(4, 2, config, characters=5, fixed_words=2)
    vectors = torch.arange(18.0).view(6, 3)
    model.embedding.set_rows(vectors)
    assert torch.equal(model.embedding(torch.tensor([[0, 3, 4, 5]]))[0], vectors[[0, 3, 4, 5]])
    assert model.embedding.trained.shape == (4, 3)
    assert "embedding.fixed" in model.state_dict()
    with pytest.raises(ValueError, match=r"vectors must be \[6, 3\], a row for each word; got \[6, 4\]"):
        model.embedding.set_rows(torch.zeros(6, 4))


def test_a_tagger_of_characters_needs_the_spelling():
    model = Tagger(4, 2, TaggerConfig(unit="lrn"), characters=5)
    with pytest.raises(ValueError, match="give the spelling"):
        model(torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="released_crf is an option of the CRF"):
        TaggerConfig(decoder="softmax", released_crf=True)


# ---------------------------------------------------------------------------------------- entities


METRICS = matching("metrics*", suffix=".json")


@pytest.mark.parametrize("path", METRICS, ids=lambda path: path.stem)
def test_entities_and_f1_are_those_of_seqeval(path: Path):
    case = json.loads(path.read_text(encoding="utf-8"))["ner"]
    metrics = TagMetrics([])
    for right, predicted in zip(case["gold"], case["pred"], strict=True):
        metrics.add(right, predicted)
    for name in ("gold", "pred"):
        found = [sorted(map(list, entities(tags))) for tags in case[name]]
        assert found == [sorted(each) for each in case[f"{name}_entities"]]
    figures = metrics.compute()
    for name in ("precision", "recall", "f1"):
        assert figures[name] == pytest.approx(case[name], abs=1e-15)
