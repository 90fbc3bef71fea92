"""The shared encoder in both directions, pooling, pretrained vectors: padding never changes a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import liven, same

import linnet
from linnet.data.padded import Example, collate
from linnet.layers.characters import CharacterMax
from linnet.layers.class_output import smoothed_cross_entropy
from linnet.layers.convolution import MaxConvolution
from linnet.layers.embedding import WordEmbedding, use_vectors
from linnet.layers.pooling import POOLINGS, AttentivePooling
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.encoder import Text

V, CLASSES = 11, 3
SEQUENCES = [[1, 2, 3, 4, 5], [6], [7, 8, 9], [10, 1]]


def make_new(**given: Any) -> Classifier:
    sizes = {"embedding_size": 60, "hidden_size": 40}
    return Classifier(V, CLASSES, ClassifierConfig(**sizes, **given), characters=9)


def make(unit: str = "lstm", **given: Any) -> Classifier:
    config = ClassifierConfig(unit=unit, **{"embedding_size": 6, "hidden_size": 4, **given})
    return liven(Classifier(V, CLASSES, config, characters=9)).eval()


@pytest.mark.parametrize("pooling", [*POOLINGS, "attentive"])
@pytest.mark.parametrize("unit", linnet.UNITS)
def test_padding_changes_nothing_in_either_direction(unit: str, pooling: str):
    model = make(unit, bidirectional=True, pooling=pooling)
    batch = collate([Example(sequence) for sequence in SEQUENCES]).inputs
    alone = [model(torch.tensor(sequence)[:, None])[0] for sequence in SEQUENCES]
    same(model(batch.steps, batch.lengths), torch.stack(alone))
    # What the padded steps hold does not matter, and neither does more padding.
    junk = torch.cat([torch.where(batch.mask, batch.steps, 5), torch.full((2, 4), 9)])
    same(model(junk, batch.lengths), torch.stack(alone))


@pytest.mark.parametrize("zero_pads", [0, 4])
def test_padding_changes_nothing_in_a_convolution(zero_pads: int):
    """Also where a sequence or the whole batch is shorter than a filter."""
    model = make("cnn", unit_options={"widths": (2, 4), "zero_pads": zero_pads})
    for sequences in (SEQUENCES, SEQUENCES[1:]):
        batch = collate([Example(sequence) for sequence in sequences]).inputs
        alone = torch.stack([model(torch.tensor(sequence)[:, None])[0] for sequence in sequences])
        same(model(batch.steps, batch.lengths), alone)
        junk = torch.cat([torch.where(batch.mask, batch.steps, 5), torch.full((2, len(sequences)), 9)])
        same(model(junk, batch.lengths), alone)


def test_the_first_of_equal_windows_gets_the_gradient():
    """As in max_pool1d, on which the SRU authors' code is built: four windows of the first text are equal."""
    layer, words = liven(MaxConvolution(5, 4, (2, 3))), torch.arange(-7, 8).view(3, 5).double()
    for weight in layer.filters:
        # Sums of whole numbers have no rounding, so equal windows have equal values.
        weight.data.mul_(8).round_()
    x = words[torch.tensor([[0] * 5 + [1, 2], [1, 2, 1, 2, 1, 2, 0]]).T].requires_grad_()
    steps = x.permute(1, 2, 0)
    maps = [
        F.conv1d(steps, weight.unflatten(1, (width, 5)).transpose(1, 2), bias).relu()
        for weight, bias, width in zip(layer.filters, layer.bias.split(4), (2, 3), strict=True)
    ]
    pooled = torch.cat([F.max_pool1d(each, each.shape[-1])[..., 0] for each in maps], 1)
    weights = torch.linspace(1, 2, 16).double().view_as(pooled)
    expected, found = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (pooled, layer(x)))
    same(layer(x), pooled)
    same(found, expected)
    with torch.no_grad():
        same(layer(x), pooled)


def test_padding_changes_nothing_with_characters():
    model = make(inputs="both", bidirectional=True, pooling="attentive")
    words = [torch.randint(1, 9, (len(sequence), 3)) for sequence in SEQUENCES]
    words[0][:, 2] = 0
    examples = [
        Example(sequence, features={"characters": chars})
        for sequence, chars in zip(SEQUENCES, words, strict=True)
    ]
    batch = collate(examples).inputs
    alone = [
        model(torch.tensor(sequence)[:, None], characters=chars[:, None])[0]
        for sequence, chars in zip(SEQUENCES, words, strict=True)
    ]
    together = model(batch.steps, batch.lengths, batch.features["characters"])
    same(together, torch.stack(alone))
    # More slots than any word of the batch has characters.
    wider = torch.nn.functional.pad(batch.features["characters"], (0, 4))
    same(model(batch.steps, batch.lengths, wider), together)


def test_a_word_that_fills_all_slots_may_have_negative_features():
    feature = liven(CharacterMax(9, 5, slots=3))
    with torch.no_grad():
        feature.embedding.weight.copy_(-feature.embedding.weight.abs())
    assert feature.largest(torch.tensor([[[1, 2, 3]]])).lt(0).all()
    assert feature.largest(torch.tensor([[[1, 2, 0]]])).eq(0).all()
    assert feature.largest(torch.tensor([[[1, 2]]])).eq(0).all()


def test_padding_on_the_left_is_read_like_a_word():
    model = make("sru", padding="left")
    batch = collate([Example(sequence) for sequence in SEQUENCES]).inputs
    filled = [[0] * (5 - len(sequence)) + sequence for sequence in SEQUENCES]
    masked = Classifier(V, CLASSES, replace(model.config, padding="masked")).double().eval()
    masked.load_state_dict(model.state_dict())
    same(model(batch.steps, batch.lengths), masked(torch.tensor(filled).T))
    # At least 5 steps.
    same(model(torch.tensor([[6], [7]])), masked(torch.tensor([[0, 0, 0, 6, 7]]).T))


def test_padding_gets_no_gradient():
    model = make("sru", bidirectional=True, pooling="mean")
    batch = collate([Example([1, 2, 3]), Example([4])]).inputs
    model(batch.steps, batch.lengths).sum().backward()
    assert not model.embedding.weight.grad[0].any()
    assert model.embedding.weight.grad[1].any()


@pytest.mark.parametrize("unit", ["sru", "scrn", "gru"])
def test_layers_are_those_of_a_bidirectional_stack(unit: str):
    """What a unit does by its position in a stack and by its direction, it does here."""
    model = make(unit, bidirectional=True, embedding_size=8, num_layers=3)
    rnn = linnet.UNITS[unit](8, 4, 3, bidirectional=True).double().eval()
    given = [cell.parameters_inside() for layer in model.layers for cell in layer.cells]
    for cell, weights in zip(rnn.cells, given, strict=True):
        for (name, mine), (same_name, weight) in zip(cell.parameters_inside(), weights, strict=True):
            assert name == same_name
            mine.data.copy_(weight)
    tokens, lengths = torch.randint(V, (5, 2)), torch.tensor([5, 3])
    expected, _ = rnn(model.embedding(tokens), lengths=lengths)
    same(model.encode(Text(tokens), lengths=lengths).output, expected)


def test_pooling_worked_out_by_hand():
    y = torch.tensor([[[1.0, 10.0]], [[3.0, 5.0]], [[-9.0, 70.0]]])
    lengths = torch.tensor([2])
    assert POOLINGS["last"](y, lengths, directions=2).tolist() == [[3, 10]]
    assert POOLINGS["last"](y, lengths).tolist() == [[3, 5]]
    assert POOLINGS["max"](y, lengths).tolist() == [[3, 10]]
    assert POOLINGS["mean"](y, lengths).tolist() == [[2, 7.5]]
    assert POOLINGS["meanmax"](y, lengths).tolist() == [[2, 7.5, 3, 10]]
    assert POOLINGS["last"](y, directions=2).tolist() == [[-9, 10]]


def test_pretrained_vectors_replace_their_rows_and_may_be_frozen():
    model = make()
    before = model.embedding.weight.detach().clone()
    use_vectors(model.embedding, torch.ones(2, 6), rows=torch.tensor([3, 5]))
    assert model.embedding.weight[[3, 5]].eq(1).all()
    assert torch.equal(model.embedding.weight[4], before[4])
    with pytest.raises(ValueError, match=r"vectors must be \[N, 6\].*got \(2, 50\): set embedding_size=50"):
        use_vectors(model.embedding, torch.ones(2, 50))
    with pytest.raises(ValueError, match="there are 2 vectors for 11 tokens"):
        use_vectors(model.embedding, torch.ones(2, 6))


@pytest.mark.parametrize(
    ("tuned", "trained"), [("all", [0, 1, 2, 3, 4]), ("special", [0, 1, 2]), ("none", [])]
)
def test_the_rows_that_are_trained(tuned: str, trained: list[int]):
    embedding = WordEmbedding(5, 4, tuned)
    use_vectors(embedding, torch.arange(20.0).reshape(5, 4))
    assert embedding(torch.arange(5)).tolist() == torch.arange(20.0).reshape(5, 4).tolist()
    before = embedding.rows()
    if trained:
        optimiser = torch.optim.SGD(embedding.parameters(), lr=0.5)
        embedding(torch.arange(5)).sum().backward()
        optimiser.step()
    assert (embedding.rows() != before).any(1).nonzero().flatten().tolist() == trained
    assert sum(weight.numel() for weight in embedding.parameters()) == 4 * len(trained)
    assert WordEmbedding(5, 4, tuned).load_state_dict(embedding.state_dict())


def test_vectors_of_the_sru_authors_have_norm_one():
    embedding = WordEmbedding(6, 4, "none")
    use_vectors(embedding, torch.full((1, 4), 3.0), torch.tensor([2]), spread=0.25, unit_norm=True)
    torch.testing.assert_close(embedding.rows().norm(dim=1), torch.ones(6))
    assert embedding.rows()[2].tolist() == [0.5] * 4


def test_words_without_a_vector_are_drawn_or_left():
    embedding = WordEmbedding(6, 50)
    before = embedding.rows()
    use_vectors(embedding, torch.ones(1, 50), torch.tensor([2]))
    assert torch.equal(embedding.rows()[3:], before[3:])
    use_vectors(embedding, torch.ones(1, 50), torch.tensor([2]), spread=0.25)
    assert 0.2 < embedding.rows()[3:].abs().max() <= 0.25
    assert embedding.rows()[2].eq(1).all()


def test_vectors_are_used_on_meta_too():
    """Where the parameters of a model are counted."""
    with torch.device("meta"):
        model = make_new(tuned="special")
        use_vectors(model.embedding, torch.ones(1, 60), torch.tensor([2]), spread=0.25, unit_norm=True)
    assert model.embedding.weight.is_meta


def test_each_step_draws_its_own_mask_on_the_query():
    pooling = AttentivePooling(4, 3, query_size=50, query_dropout=0.5)
    masked = pooling.dropped(torch.ones(2, 50), 3)
    assert masked.shape == (3, 2, 50)
    assert not torch.equal(masked[0], masked[1])
    assert torch.equal(pooling.eval().dropped(torch.ones(2, 50), 3), torch.ones(2, 50))


@pytest.mark.parametrize("rate", ["pooled_dropout", "output_dropout", "input_dropout", "character_dropout"])
def test_dropouts_act_while_training_only(rate: str):
    model = make(inputs="both", pooling="attentive", **{rate: 0.5})
    tokens, characters = torch.ones(4, 3, dtype=torch.int64), torch.ones(4, 3, 2, dtype=torch.int64)
    inputs = tokens, None, characters
    assert torch.equal(model(*inputs), model(*inputs))
    model.train()
    assert not torch.equal(model(*inputs), model(*inputs))


def test_words_are_dropped_while_training_only():
    model = make(word_dropout=0.5)
    tokens = torch.full((200, 3), 7)
    dropped = model.train().word_dropout(tokens)
    assert set(dropped.unique().tolist()) == {0, 7}
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    assert torch.equal(model.eval().word_dropout(tokens), tokens)


def test_output_weights_keep_within_their_norm():
    model = make("cnn", max_norm=0.1)
    model(torch.ones(5, 2, dtype=torch.int64))
    assert model.output.weight.norm(dim=1).tolist() == pytest.approx([0.1] * CLASSES)


def test_uniform_weights_and_biases_of_zero():
    model = make_new(unit="sru", inputs="both", pooling="attentive", init="uniform", init_scale=0.08)
    for name, weight in model.named_parameters():
        if name == "characters.embedding.weight":
            assert weight.abs().max() > 0.08
        elif name.endswith("bias"):
            assert not weight.any()
        else:
            assert 0.05 < weight.abs().max() <= 0.08, name


def test_filters_of_kim_are_small_and_their_biases_zero():
    pooling = make_new(unit="cnn", unit_options={"init_scale": 0.01}).pooling
    assert all(0.009 < weight.abs().max() <= 0.01 for weight in pooling.filters)
    assert not pooling.bias.any()


def test_a_loss_without_smoothing_is_the_cross_entropy():
    logits, targets = torch.randn(4, 3).double(), torch.tensor([0, 2, -100, 1])
    found = smoothed_cross_entropy(logits, targets)
    same(found, torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
    assert smoothed_cross_entropy(logits, targets, 0.1)[2] == 0


def test_a_perfect_answer_to_smoothed_targets_costs_nothing():
    answer = torch.tensor([[0.05, 0.9, 0.05]]).double().log()
    assert smoothed_cross_entropy(answer, torch.tensor([1]), 0.1).item() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"pooling": "first"}, "pooling must be one of 'last', 'max', 'mean', 'meanmax', 'attentive'"),
        (
            {"unit_options": {"bidirectional": True}},
            "not a unit option of a classifier: set its own bidirectional",
        ),
        ({"unit_options": {"dropout": 0.5}}, "set its layer_dropout"),
        ({"unit": "cnn", "unit_options": {"width": 3}}, "cnn has no option 'width'"),
        ({"unit": "cnn", "unit_options": {"widths": []}}, r"such as \(3, 4, 5\); got \[\]"),
        ({"unit": "cmn"}, "no unit 'cmn'"),
        ({"embedding_size": 0}, "needs embedding_size of at least 1; set it, or inputs='characters'"),
        ({"tuned": "some"}, "tuned must be one of 'all', 'special', 'none'"),
        (
            {"unit": "scrn", "bidirectional": True, "context_dropout": False},
            "are for models that read in one direction; set bidirectional=False",
        ),
    ],
)
def test_settings_that_do_not_fit_answer(given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        make(**given)


def test_what_is_read_must_be_given():
    model = make(inputs="both")
    tokens = torch.ones(3, 2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"reads characters, a tensor of torch.int64 .* got NoneType"):
        model(tokens)
    with pytest.raises(ValueError, match=r"1 to 25 characters; got shape \(3, 2, 26\)"):
        model(tokens, None, torch.ones(3, 2, 26, dtype=torch.int64))
    with pytest.raises(IndexError, match="characters has the id 9"):
        model(tokens, None, torch.full((3, 2, 1), 9))
    with pytest.raises(ValueError, match="needs the size of the alphabet; pass characters="):
        Classifier(V, CLASSES, ClassifierConfig(inputs="characters"))
    with pytest.raises(ValueError, match=r"needs a query \[batch, 4\]; got None"):
        AttentivePooling(4, 3, query_size=4)(torch.zeros(3, 2, 4))
