"""Scores of counted words: the weights are scikit-learn's TF-IDF, and padding changes nothing."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import same

from linnet.data.counts import frequent_pairs, parse_pair_count
from linnet.data.errors import DataError
from linnet.layers.counts import NEW_WORDS, SCALE, CountScores, PairCountScores

WORDS, SPECIAL = 8, 3
TEXTS = [[3, 4, 3, 4, 5], [4, 3, 6], [3, 4, 1, 7, 7, 7], [5]]


def padded(texts: list[list[int]], fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(text) for text in texts])
    steps = torch.full((int(lengths.max()), len(texts)), fill)
    for column, text in enumerate(texts):
        steps[: len(text), column] = torch.tensor(text)
    return steps, lengths


def learned(bigrams: bool = True) -> CountScores:
    arrays = [np.array(text) for text in TEXTS]
    pairs = torch.from_numpy(frequent_pairs(arrays, WORDS, SPECIAL)) if bigrams else torch.zeros(0).long()
    counts = CountScores(WORDS, len(pairs), 2, dtype=torch.float64)
    counts.learn(pairs, [padded(TEXTS[:3]), padded(TEXTS[3:])], SPECIAL)
    torch.nn.init.normal_(counts.weight, generator=torch.Generator().manual_seed(1))
    return counts


def test_the_pairs_of_several_texts_are_counted_and_no_special_word():
    # (3, 4) is in two texts; (4, 3) in two; (7, 7) in one; (4, 1) has an unknown word.
    arrays = [np.array(text) for text in TEXTS]
    assert frequent_pairs(arrays, WORDS, SPECIAL).tolist() == [3 * WORDS + 4, 4 * WORDS + 3]


def test_the_scores_are_those_of_tf_idf():
    text_module = pytest.importorskip("sklearn.feature_extraction.text")

    def terms(text: list[int]) -> list[str]:
        pairs = [f"{a} {b}" for a, b in pairwise(text)]
        return [*(str(word) for word in text if word >= SPECIAL), *pairs]

    names = [*map(str, range(3, WORDS)), "3 4", "4 3"]
    vectors = text_module.TfidfVectorizer(analyzer=terms, vocabulary=names, sublinear_tf=True)
    expected = SCALE * torch.from_numpy(vectors.fit_transform(TEXTS).toarray())
    counts = learned()
    same(counts(*padded(TEXTS)), expected @ counts.weight[SPECIAL:])


def test_the_gradient_of_the_weights_is_that_of_the_sum():
    counts = learned()
    tokens, lengths = padded(TEXTS)
    assert torch.autograd.gradcheck(
        lambda weight: torch.func.functional_call(counts, {"weight": weight}, (tokens, lengths)),
        counts.weight.detach().requires_grad_(),
    )


@pytest.mark.parametrize("bigrams", [True, False])
def test_padding_and_the_rest_of_the_batch_change_nothing(bigrams: bool):
    counts = learned(bigrams)
    alone = torch.cat([counts(torch.tensor(text)[:, None]) for text in TEXTS])
    same(counts(*padded(TEXTS)), alone)
    same(counts(*padded(TEXTS, fill=4)), alone)


def test_texts_without_known_words_have_scores_of_zero():
    counts = learned()
    assert counts(torch.tensor([[0, 1], [1, 2]])).eq(0).all()
    # A text of one word has no pairs.
    same(counts(torch.tensor([[5]])), SCALE * counts.weight[5:6])


def test_a_pair_of_texts_has_the_new_words_of_the_second_and_their_number():
    counts = PairCountScores(WORDS, 1, 3)
    counts.pairs.copy_(torch.tensor([3 * WORDS + 4]))
    premise, hypothesis = padded([[3, 5], [6, 6]]), padded([[3, 4, 6], [6]], fill=7)
    found = counts.features(premise[0], hypothesis[0], premise[1], hypothesis[1])
    start = WORDS + 1  # of the new words
    assert sorted(found[:, 0].tolist()) == sorted([3, 4, 6, 8, 0, 0, start + 4, start + 6, start + WORDS + 2])
    assert sorted(found[:, 1].tolist()) == sorted([6, 0, 0, 0, 0, 0, 0, 0, start + WORDS])
    assert len(counts.weight) == 2 * WORDS + 1 + NEW_WORDS
    many = torch.randint(1, WORDS, (60, 1))
    assert counts.features(torch.zeros(1, 1).long(), many).max() == len(counts.weight) - 1


def test_what_is_not_learned_does_not_count():
    assert CountScores(WORDS, 0, 2)(torch.tensor([[3], [4]])).tolist() == [[0, 0]]
    assert math.isclose(learned().idf[5].item(), math.log(5 / 3) + 1)


@pytest.mark.parametrize("content", [b"3", b'{"pairs": -1}', b'{"pairs": true}', b'{"pairs": 1e9}', b"{}"])
def test_a_damaged_number_of_pairs_is_refused(content: bytes):
    with pytest.raises(DataError, match="must have the number of counted pairs"):
        parse_pair_count("counts.json", content)
    assert parse_pair_count("counts.json", b'{"pairs": 7}') == 7
