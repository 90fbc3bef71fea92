"""The shared encoder in both directions, pooling, pretrained vectors: padding never changes a result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, same

import linnet
from linnet.data.padded import Example, collate
from linnet.layers.embedding import use_vectors
from linnet.layers.pooling import POOLINGS
from linnet.models.classifier import Classifier, ClassifierConfig

V, CLASSES = 11, 3
SEQUENCES = [[1, 2, 3, 4, 5], [6], [7, 8, 9], [10, 1]]


def make(unit: str = "lstm", **given: Any) -> Classifier:
    config = ClassifierConfig(unit=unit, **{"embedding_size": 6, "hidden_size": 4, **given})
    return liven(Classifier(V, CLASSES, config)).eval()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("unit", linnet.UNITS)
def test_padding_changes_nothing_in_either_direction(unit: str, pooling: str):
    model = make(unit, bidirectional=True, pooling=pooling)
    batch = collate([Example(sequence) for sequence in SEQUENCES]).inputs
    alone = [model(torch.tensor(sequence)[:, None])[0] for sequence in SEQUENCES]
    same(model(batch.steps, batch.lengths), torch.stack(alone))
    # What the padded steps hold does not matter, and neither does more padding.
    junk = torch.cat([torch.where(batch.mask, batch.steps, 5), torch.full((2, 4), 9)])
    same(model(junk, batch.lengths), torch.stack(alone))


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
    rnn.load_state_dict(
        {
            f"directions.{2 * layer + direction}.{name}": weight
            for layer, one in enumerate(model.layers)
            for direction in range(2)
            for name, weight in one.directions[direction].state_dict().items()
        }
    )
    tokens, lengths = torch.randint(V, (5, 2)), torch.tensor([5, 3])
    expected, _ = rnn(model.embedding(tokens), lengths=lengths)
    same(model.encode(tokens, lengths=lengths).output, expected)


def test_pooling_worked_out_by_hand():
    y = torch.tensor([[[1.0, 10.0]], [[3.0, 5.0]], [[-9.0, 70.0]]])
    lengths = torch.tensor([2])
    assert POOLINGS["last"](y, lengths, directions=2).tolist() == [[3, 10]]
    assert POOLINGS["last"](y, lengths).tolist() == [[3, 5]]
    assert POOLINGS["max"](y, lengths).tolist() == [[3, 10]]
    assert POOLINGS["mean"](y, lengths).tolist() == [[2, 7.5]]
    assert POOLINGS["last"](y, directions=2).tolist() == [[-9, 10]]


def test_pretrained_vectors_replace_their_rows_and_may_be_frozen():
    model = make()
    before = model.embedding.weight.detach().clone()
    use_vectors(model.embedding, torch.ones(2, 6), rows=torch.tensor([3, 5]), frozen=True)
    assert model.embedding.weight[[3, 5]].eq(1).all()
    assert torch.equal(model.embedding.weight[4], before[4])
    assert not model.embedding.weight.requires_grad
    with pytest.raises(ValueError, match=r"vectors must be \[N, 6\].*got \(2, 50\): set embedding_size=50"):
        use_vectors(model.embedding, torch.ones(2, 50))
    with pytest.raises(ValueError, match="there are 2 vectors for 11 tokens"):
        use_vectors(model.embedding, torch.ones(2, 6))


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"pooling": "first"}, "pooling must be one of 'last', 'max', 'mean'"),
        (
            {"unit_options": {"bidirectional": True}},
            "no unit option of a classifier: set its own bidirectional",
        ),
        ({"unit_options": {"dropout": 0.5}}, "set its layer_dropout"),
        (
            {"unit": "scrn", "bidirectional": True, "context_dropout": False},
            "are for models that read in one direction; set bidirectional=False",
        ),
    ],
)
def test_settings_that_do_not_fit_answer(given: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        make(**given)
