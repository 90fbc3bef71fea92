"""The pair classifier: padding never changes a result, the released dropout, the paper's sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, same

import linnet
from linnet.data.padded import Example, collate
from linnet.models.encoder import Text
from linnet.models.pair import PairClassifier, PairConfig
from linnet.runs.config import RunConfig, override
from linnet.train.recipes import RECIPES

V, CLASSES = 11, 3
PREMISES = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]
HYPOTHESES = [[9, 1], [2, 3, 4, 1], [5]]


def make(unit: str = "lrn", **given: Any) -> PairClassifier:
    sizes = {"embedding_size": 6, "hidden_size": 4, "heads": 2}
    return liven(PairClassifier(V, CLASSES, PairConfig(unit=unit, **{**sizes, **given}))).eval()


def batch() -> tuple[Any, Any]:
    return tuple(collate([Example(tokens) for tokens in side]).inputs for side in (PREMISES, HYPOTHESES))


@pytest.mark.parametrize("norm", [None, "rms"])
@pytest.mark.parametrize("unit", linnet.UNITS)
def test_padding_changes_nothing(unit: str, norm: str | None):
    model = make(unit, norm=norm)
    premise, hypothesis = batch()
    lengths = premise.lengths, hypothesis.lengths
    alone = torch.cat(
        [
            model(*(Text(torch.tensor(tokens)[:, None]) for tokens in pair))
            for pair in zip(PREMISES, HYPOTHESES, strict=True)
        ]
    )
    same(model(Text(premise.steps), Text(hypothesis.steps), *lengths), alone)
    junk = [torch.cat([torch.where(side.mask, side.steps, 5), side.steps[:2]]) for side in batch()]
    same(model(*map(Text, junk), *lengths), alone)


def test_attention_of_each_word_can_be_seen():
    premise, hypothesis = batch()
    found = make().compare(Text(premise.steps), Text(hypothesis.steps), premise.lengths, hypothesis.lengths)
    assert found.weights.shape == (3, 2, 4, 5)
    same(found.weights.sum(-1), torch.ones(3, 2, 4).double())
    assert not found.weights[1, :, :, 1:].any()


def test_the_released_dropout_stays_on_at_test_time():
    premise, hypothesis = batch()
    inputs = Text(premise.steps), Text(hypothesis.steps), premise.lengths, hypothesis.lengths
    quiet, released = (make(output_dropout=0.5, dropout_at_test=on) for on in (False, True))
    same(quiet(*inputs), quiet(*inputs))
    assert (released(*inputs) - released(*inputs)).abs().max() > 1e-3


def test_it_starts_as_the_authors_do():
    config = PairConfig(
        unit="sru", inputs="both", tuned="special", hidden_size=20, norm="rms", init="uniform"
    )
    model = PairClassifier(V, CLASSES, config, characters=30)
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            assert weight.eq(1).all()
        elif name.endswith(".bias"):
            assert not weight.any()
        elif name != "characters.embedding.weight":
            assert 0 < weight.abs().max() <= 0.08
    assert model.characters.embedding.weight.abs().max() > 0.08


# Table 1 without the 64 parameters of each character. The authors add two biases to each gate of LSTM and
# GRU, in each of eight cells; our GRU of this form has one.
SIZES = {
    "lstm": (8_360_814, 0),
    "gru": (6_408_114, 8 * 3 * 300),
    "atr": (2_863_314, 0),
    "sru": (5_476_014, 0),
    "lrn": (4_240_914, 0),
}


@pytest.mark.parametrize("unit", SIZES)
def test_sizes_of_the_paper(unit: str):
    recipe = RECIPES[f"lrn-snli-{unit}"].settings
    config = override(RunConfig(task="nli"), {**recipe, "embedding_size": 300}).model
    total, second_biases = SIZES[unit]
    model = PairClassifier(5000, 3, config, characters=80, device="meta")
    assert model.count() - 64 * 80 == total - second_biases


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"heads": 3}, "multiple of heads; got 8 and heads=3"),
        ({"norm": "batch"}, "norm must be one of None, 'layer', 'rms'"),
        ({"unit_options": {"bidirectional": True}}, "it reads in both directions"),
        (
            {"unit_options": {"zoneout": 0.1}},
            "not a unit option of a pair classifier: word-by-word attention",
        ),
    ],
)
def test_settings_that_do_not_fit_answer(given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        make(**given)
