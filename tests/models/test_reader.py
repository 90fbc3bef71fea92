"""Readers: padding never changes an answer unless it is read as the SRU authors do; the papers' sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, same
from torch import nn

import linnet
from linnet.layers.spans import SpanLogits
from linnet.models.reader import OWN_OPTIONS, DocumentReader, Passage, ReaderConfig, RNet

V, TAGS, LETTERS = 11, (5, 3), 9
LENGTHS, ASKED = torch.tensor([6, 2, 4]), torch.tensor([1, 4, 3])
SMALL = {"embedding_size": 6, "hidden_size": 4, "num_layers": 2}


def draw(highest: int, *shape: int) -> torch.Tensor:
    return torch.randint(1, highest, shape, generator=torch.Generator().manual_seed(0))


def texts() -> tuple[Passage, Passage]:
    """Full of words at padded steps too: what is there must not matter."""
    features = torch.rand(6, 3, 2, generator=torch.Generator().manual_seed(1)).double()
    tags = tuple(draw(count, 6, 3) for count in TAGS)
    passage = Passage(draw(V, 6, 3), LENGTHS, features, tags, draw(LETTERS, 6, 3, 5))
    return passage, Passage(draw(V, 4, 3), ASKED, characters=draw(LETTERS, 4, 3, 5))


def alone(text: Passage, number: int, lengths: torch.Tensor) -> Passage:
    """One text of a batch without its padding."""

    def cut(x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None else x[: lengths[number], number : number + 1]

    tags = tuple(cut(tags) for tags in text.tags)
    return Passage(cut(text.tokens), None, cut(text.features), tags, cut(text.characters))


def make(form: str, unit: str = "sru", **given: Any) -> nn.Module:
    config = ReaderConfig(form=form, unit=unit, **{**SMALL, **given})
    if form == "rnet":
        return liven(RNet(V, config, characters=LETTERS)).eval()
    return liven(DocumentReader(V, config, features=2, tags=TAGS)).eval()


def answers_alone(model: nn.Module) -> list[SpanLogits]:
    passage, question = texts()
    return [model(alone(passage, n, LENGTHS), alone(question, n, ASKED)) for n in range(3)]


@pytest.mark.parametrize("unit", linnet.UNITS)
@pytest.mark.parametrize("form", ["drqa", "rnet"])
def test_padding_changes_nothing(form: str, unit: str):
    model = make(form, unit, joined=form == "drqa")
    found = model(*texts())
    for number, expected in enumerate(answers_alone(model)):
        same(found.start[number, : LENGTHS[number]], expected.start[0])
        same(found.end[number, : LENGTHS[number]], expected.end[0])
        assert found.start[number, LENGTHS[number] :].isinf().all()


@pytest.mark.parametrize("joined", [False, True])
def test_encoders_of_different_depths(joined: bool):
    model = make("drqa", num_layers=3, question_layers=1, question_merge="avg", joined=joined)
    assert [len(each.stack) for each in (model.passage_encoder, model.question_encoder)] == [3, 1]
    assert model.spans.start.weight.shape == ((24 if joined else 8), 8)
    for number, expected in enumerate(answers_alone(model)):
        same(model(*texts()).end[number, : LENGTHS[number]], expected.end[0])


def test_the_mean_of_a_question_is_attention_with_equal_scores():
    attention, mean = (make("drqa", question_layers=1, question_merge=each) for each in ("attention", "avg"))
    weights = attention.state_dict()
    mean.load_state_dict({name: weight for name, weight in weights.items() if "merge" not in name})
    nn.init.zeros_(attention.merge.score.weight)
    same(mean(*texts()).start, attention(*texts()).start)


@pytest.mark.parametrize("name", [name for names in OWN_OPTIONS.values() for name in names])
def test_an_option_of_the_other_form_is_refused(name: str):
    form = "rnet" if name in OWN_OPTIONS["drqa"] else "drqa"
    value = {"question_merge": "avg", "joined": True, "tag_sizes": [3], "read_dropout": 0.5}.get(name, 3)
    with pytest.raises(ValueError, match=f"{name} is an option of form=.*; form='{form}' has none, leave it"):
        make(form, **{name: value})


def test_question_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="question_layers counts layers of hidden_size"):
        make("drqa", question_layers=1, hidden_sizes=(3, 4))
    with pytest.raises(ValueError, match="question_layers must be at least 0; got -1"):
        make("drqa", question_layers=-1)
    with pytest.raises(ValueError, match="question_merge must be one of 'attention', 'avg'; got 'mean'"):
        make("drqa", question_merge="mean")


@pytest.mark.parametrize("joined", [False, True])
def test_the_last_dropout_is_that_of_what_is_returned(joined: bool):
    model = make("drqa", joined=joined, output_dropout=0.5).train()
    x, encoder = torch.ones(4, 3, 6).double(), model.question_encoder
    mask = torch.full((4, 3, encoder.output_size), 3.0)
    encoder.layer_dropouts[-1].fixed = mask
    encoded = encoder.encode(x)
    same(encoded.output, 3 * torch.cat(encoded.layers if joined else encoded.layers[-1:], -1))


def test_padding_is_read_on_request():
    model = make("drqa", padding="read")
    found, expected = model(*texts()), answers_alone(model)[1]
    assert (found.start[1, :2] - expected.start[0]).abs().max() > 1e-6


def test_words_that_are_not_tuned_get_no_gradient():
    model = make("drqa", tuned="special", tuned_words=4)
    model(*texts()).loss(torch.zeros(3).long(), torch.ones(3).long()).sum().backward()
    assert model.embedding.special.grad[1:3].any(-1).all()
    assert not model.embedding.weight.requires_grad


@pytest.mark.parametrize("padding", ["masked", "read"])
def test_the_vector_of_padding_is_not_read(padding: str):
    model, (passage, question) = make("drqa", padding=padding, tuned="all"), texts()
    tokens = passage.tokens.masked_fill(torch.arange(6)[:, None] >= LENGTHS, 0)
    asked = question.tokens.masked_fill(torch.arange(4)[:, None] >= ASKED, 0)
    logits = model(passage._replace(tokens=tokens), question._replace(tokens=asked))
    logits.loss(torch.zeros(3).long(), torch.ones(3).long()).sum().backward()
    assert not model.embedding.weight.grad[0].any()
    assert model.embedding.weight.grad[tokens[0]].any(-1).all()


def test_what_is_missing_is_named():
    reader, (passage, question) = make("drqa"), texts()
    with pytest.raises(ValueError, match="built with features=2; a passage has 0"):
        reader(passage._replace(features=None), question)
    with pytest.raises(ValueError, match="built for 2 kinds of tags; a passage has 1"):
        reader(passage._replace(tags=passage.tags[:1]), question)
    with pytest.raises(ValueError, match=r"expected Passage\.characters"):
        make("rnet")(passage._replace(characters=None), question)
    with pytest.raises(ValueError, match="tag_sizes has 1 sizes for 2 kinds of tags"):
        make("drqa", tag_sizes=(4,))


def test_weights_can_be_seen():
    passage, question = texts()
    _, weights = make("drqa").attend(passage, question)
    assert weights.shape == (3, 1, 6, 4)
    found = make("rnet").attend(passage, question)
    assert found.weights.shape == (3, 1, 6, 4)
    assert found.self_weights.shape == (3, 1, 6, 6)
    assert not found.self_weights[1, :, :, 2:].any()


# ------------------------------------------------------------------------------- the papers' sizes


@pytest.mark.parametrize(
    ("layers", "size", "total"),
    [
        (3, 300, 2_020_710),
        (4, 300, 2_415_974),
        (6, 300, 3_206_502),
        (3, 50, 1_164_960),
        (4, 50, 1_560_224),
        (6, 50, 2_350_752),
    ],
)
def test_sizes_of_the_sru_paper(layers: int, size: int, total: int):
    config = ReaderConfig(unit="sru", num_layers=layers, embedding_size=size, tuned="none")
    reader = DocumentReader(100, config, features=4, tags=(56, 19), device="meta")
    assert count(reader) == total


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# Table 4 without the 8 parameters of each character. The authors add two biases to each gate of LSTM and GRU,
# in each of ten cells; our GRU of this form has one.
RNETS = {
    "lstm": (2_655_825, 0, {}),
    "gru": (2_298_075, 10 * 3 * 75, {"form": "before"}),
    "atr": (1_582_575, 0, {}),
    "sru": (2_429_325, 0, {"skip": "matrix", "full_bias": True, "rescale": False}),
    "lrn": (2_127_075, 0, {}),
}


@pytest.mark.parametrize("unit", RNETS)
def test_sizes_of_rnet(unit: str):
    total, second_biases, options = RNETS[unit]
    config = ReaderConfig(form="rnet", unit=unit, unit_options=options, hidden_size=75, tuned="none")
    model = RNet(100, config, characters=1300, device="meta")
    assert count(model) - 8 * 1300 == total - second_biases


def test_passage_and_question_share_the_masks_of_the_encoder():
    model = make("rnet", "lrn", read_dropout=0.5).train()
    # Characters have masks of their own.
    model.characters.dropout.rate = 0.0
    question = texts()[1]
    one, other = model.encode(question, question)
    same(one.output, other.output)
    assert not torch.allclose(one.output, model.encode(question, question)[0].output)
