"""Translators: stepping equals running, padding changes nothing, a beam of 1 is greedy; the papers' sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, same

import linnet
from linnet.layers.beam import EOS
from linnet.models.translator import Translator, TranslatorConfig, make_translator

WORDS = 13
SOURCES = [[5, 4, 3, 7, EOS], [9, EOS], [12, 3, 8, EOS]]
TARGETS = [[6, EOS], [11, 3, 4, EOS], [7, 8, EOS]]
LENGTHS, TARGET_LENGTHS = torch.tensor([5, 2, 4]), torch.tensor([2, 4, 3])

FORMS: dict[str, dict[str, Any]] = {
    "relu": {"form": "transformer"},
    "unit": {"form": "transformer", "feed_forward": "unit", "unit": "sru"},
    "lstm unit": {"form": "transformer", "feed_forward": "unit", "unit": "lstm"},
    "both directions": {
        "form": "transformer",
        "feed_forward": "unit",
        "unit": "sru",
        "bidirectional": True,
    },
    **{unit: {"unit": unit} for unit in ("lrn", "olrn", "atr", "sru", "gru", "lstm", "ran")},
    "lrn of the paper": {"unit": "lrn", "unit_options": {"activation": "identity"}, "decoder_layers": 1},
    "without norms": {"unit": "gru", "norm": None, "decoder_layers": 3},
}


def make(form: str, **given: Any) -> Translator:
    small = {"hidden_size": 8, "num_layers": 2, "heads": 2, "inner_size": 12, "dropout": 0.0}
    config = TranslatorConfig(**{**small, **FORMS[form], **given})
    return liven(make_translator(WORDS, WORDS, config)).eval()


def pad(sentences: list[list[int]], word: int = 0, more: int = 0) -> torch.Tensor:
    longest = max(map(len, sentences)) + more
    return torch.tensor([words + [word] * (longest - len(words)) for words in sentences]).T


@pytest.mark.parametrize("form", FORMS)
def test_stepping_equals_running(form: str):
    model, target = make(form), pad(TARGETS, word=3)
    whole = model.attend(pad(SOURCES), LENGTHS, target)
    state, previous = model.start(pad(SOURCES), LENGTHS), torch.zeros(3, dtype=torch.long)
    for t, words in enumerate(target):
        found = model.step(previous, state)
        same(found.logits, whole.logits[t])
        if found.weights is not None:
            same(found.weights, whole.weights[:, :, t])
        state, previous = found.state, words


@pytest.mark.parametrize("form", FORMS)
def test_padding_changes_nothing(form: str):
    model = make(form)
    junk = model(pad(SOURCES, 6, 2), LENGTHS, pad(TARGETS, 5, 3), TARGET_LENGTHS)
    found = model(pad(SOURCES), LENGTHS, pad(TARGETS), TARGET_LENGTHS)
    for number, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        alone = model(pad([source]), None, pad([target]))[:, 0]
        same(found[: len(target), number], alone)
        same(junk[: len(target), number], alone)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_sentence_is_translated_alike_alone_and_in_a_batch(form: str, beam: int):
    model = make(form)
    found = model.translate(pad(SOURCES, 7, 1), LENGTHS, beam=beam, extra=3)
    for number, source in enumerate(SOURCES):
        alone = model.translate(pad([source]), beam=beam, extra=3)
        same(found.scores[number], alone.scores[0])
        length = alone.tokens.shape[-1]
        assert torch.equal(found.tokens[number, :, :length], alone.tokens[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_beam_of_one_is_greedy(form: str):
    model = make(form)
    found = model.translate(pad(SOURCES), LENGTHS, beam=1, extra=3).tokens[:, 0]
    for number, source in enumerate(SOURCES):
        state, previous, words = model.start(pad([source])), torch.tensor([0]), []
        while len(words) < len(source) + 3 and EOS not in words:
            step = model.step(previous, state)
            state, logits = step.state, step.logits.clone()
            if not words:
                logits[:, EOS] = -torch.inf
            previous = logits.argmax(-1)
            words.append(int(previous))
        assert found[number, : len(words)].tolist() == words
        assert not found[number, len(words) :].any()


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_is_used(form: str):
    model = make(form).train()
    model(pad(SOURCES), LENGTHS, pad(TARGETS), TARGET_LENGTHS).log_softmax(-1)[..., 3].sum().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    unused = {
        name for name, gradient in gradients.items() if gradient is None or gradient.abs().max() < 1e-12
    }
    # A shift of all scores changes no softmax; nobody reads the output of the lower SRU of a pair.
    expected = {"decoder.matching.attention.score.bias"}
    if form == "sru":
        expected |= {"encoder.backward_pair.lower.v_r", "decoder.pairs.0.lower.v_r"}
    if FORMS[form].get("form") == "transformer":
        # The same holds for the keys: what is added to all of them is added to all scores.
        expected = {name for name in unused if name.endswith(("past.key.bias", "attention.key.bias"))}
    assert unused == expected


def test_units_read_padding_on_request():
    found, expected = (
        make("both directions", padding=padding)(pad(SOURCES), LENGTHS, pad(TARGETS), TARGET_LENGTHS)
        for padding in ("read", "masked")
    )
    assert (found - expected)[:, 1].abs().max() > 1e-6


def test_the_attention_to_the_source_can_be_seen():
    for form in ("lrn", "relu"):
        weights = make(form).attend(pad(SOURCES), LENGTHS, pad(TARGETS), TARGET_LENGTHS).weights
        assert weights.shape == (3, 2, 4, 5)
        same(weights.sum(-1), torch.ones(3, 2, 4).double())
        assert not weights[1, :, :, 2:].any()


@pytest.mark.parametrize(
    ("form", "given", "answer"),
    [
        ("relu", {"heads": 3}, "multiple of heads"),
        ("both directions", {"inner_size": 13}, "needs an even inner_size; got 13"),
        ("lrn", {"unit": "scrn"}, "scrn has an output of .* use another unit"),
        ("lrn", {"unit_options": {"batch_first": True}}, r"its sequences are \[time, batch\]"),
        (
            "lrn",
            {"unit_options": {"zoneout": 0.1}},
            "not a unit option of a translator: word-by-word attention",
        ),
        ("lrn", {"unit_options": {"weight_drop": 0.1}}, "not a unit option of a translator: set its dropout"),
        ("lrn", {"norm": "batch"}, "norm must be one of None, 'layer', 'rms'"),
    ],
)
def test_settings_that_do_not_fit_answer(form: str, given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        make(form, **given)


def test_one_table_needs_one_vocabulary():
    with pytest.raises(ValueError, match="got 10 and 12 words: set shared=False"):
        make_translator(10, 12, TranslatorConfig(form="transformer"))
    config = TranslatorConfig(form="transformer", shared=False, num_layers=1, hidden_size=8)
    assert make_translator(10, 12, config).source.num_embeddings == 10


# ------------------------------------------------------------------------------- the papers' sizes


@pytest.mark.parametrize(
    ("given", "millions"),
    [
        ({"feed_forward": "relu", "num_layers": 6}, 76.94),
        ({"num_layers": 4}, 79.05),
        ({"num_layers": 5}, 90.62),
        ({"num_layers": 4, "bidirectional": True}, 79.05),
    ],
)
def test_sizes_of_the_transformer_with_sru(given: dict[str, Any], millions: float):
    config = TranslatorConfig(**{"form": "transformer", "unit": "sru", "feed_forward": "unit", **given})
    model = make_translator(32_000, 32_000, config, device="meta")
    assert round(model.count() / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("unit", "millions"), [("gru", 206), ("atr", 122), ("sru", 170), ("lrn", 143), ("olrn", 164)]
)
def test_sizes_of_the_lrn_paper(unit: str, millions: int):
    """Table 3, with about 55,300 words on both sides together."""
    options = {"gru": {"form": "before"}, "sru": {"skip": "matrix"}}.get(unit, {})
    config = TranslatorConfig(unit=unit, unit_options=options, hidden_size=1024, shared=False)
    model = make_translator(27_600, 27_700, config, device="meta")
    assert round(model.count() / 1e6) == millions


def test_all_units_translate():
    for unit in linnet.UNITS:
        if unit != "scrn":  # its output is wider than its hidden size
            model = make("lrn", unit=unit)
            assert model.translate(pad(SOURCES), LENGTHS, beam=2, extra=1).tokens.shape[:2] == (3, 2)
