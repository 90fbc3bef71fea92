"""Baselines: their figures by hand, and that every task has one."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from linnet.tasks import baselines
from linnet.tasks.baselines import (
    DISCOUNT,
    frequent_tags,
    majority,
    ngram_losses,
    text_baselines,
    tfidf,
)
from linnet.tasks.targets import macro_f1


def test_majority_is_the_most_frequent_class_of_training():
    found = majority(["a", "a", "b"], ["a", "b", "b", "c"])
    assert found.figures["accuracy"] == 0.25
    confusion = torch.zeros(3, 3)
    for label, count in ((0, 1), (1, 2), (2, 1)):
        confusion[label, 0] = count
    assert found.figures["f1"] == pytest.approx(macro_f1(confusion))


def test_tfidf_learns_a_word_that_decides():
    texts = [["good", "bird"], ["bad", "bird"]] * 10
    labels = ["yes", "no"] * 10
    found = tfidf(texts, labels, [["good"], ["bad"], ["good"]], ["yes", "no", "no"])
    assert found is not None
    assert found.figures["accuracy"] == pytest.approx(2 / 3)


def test_tfidf_learns_all_classes_of_a_sorted_file(monkeypatch: pytest.MonkeyPatch):
    """The first verses of the Bible are all from the Old Testament."""
    monkeypatch.setattr(baselines, "MOST_TEXTS", 10)
    texts = [["good", "bird"]] * 12 + [["bad", "bird"]] * 12
    found = tfidf(texts, ["yes"] * 12 + ["no"] * 12, [["good"], ["bad"]], ["yes", "no"])
    assert found is not None
    assert found.figures["accuracy"] == 1
    assert "10 of the texts" in found.about


def test_tfidf_has_nothing_to_learn_from_one_class():
    assert tfidf([["a"], ["b"]] * 5, ["yes"] * 10, [["a"]], ["yes"]) is None


def test_the_most_frequent_tag_of_each_word_and_of_all():
    known, usual = frequent_tags([["a", "b"], ["a", "c"], ["a"]], [["X", "O"], ["X", "O"], ["O"]])
    assert known == {"a": "X", "b": "O", "c": "O"}
    assert usual == "O"


def kneser_ney(train: list[int], text: list[int], size: int, order: int = 5) -> float:
    """Interpolated Kneser-Ney by its definition, with dictionaries."""

    def counts(n: int) -> Counter:
        found = Counter(tuple(train[i : i + n]) for i in range(len(train) - n + 1))
        if n == order:
            return found
        longer = {tuple(train[i : i + n + 1]) for i in range(len(train) - n)}
        return Counter(each[1:] for each in longer)

    tables = {n: counts(n) for n in range(1, order + 1)}

    def probability(history: tuple, token: int) -> float:
        n = len(history) + 1
        lower = probability(history[1:], token) if history else 1 / size
        follow = {gram: count for gram, count in tables[n].items() if gram[:-1] == history}
        total = sum(follow.values())
        if not total:
            return lower
        direct = max(follow.get((*history, token), 0) - DISCOUNT, 0) / total
        return direct + DISCOUNT * len(follow) / total * lower

    whole = train + text
    losses = [
        -math.log(probability(tuple(whole[place - order + 1 : place]), whole[place]))
        for place in range(len(train) + 1, len(whole))
    ]
    return sum(losses) / len(losses)


def test_five_grams_are_interpolated_kneser_ney():
    generator = torch.Generator().manual_seed(1)
    train = (torch.arange(200) * 3 % 7 + torch.randint(2, (200,), generator=generator)) % 8
    text = torch.cat([train[20:50], torch.randint(8, (20,), generator=generator)])
    found = ngram_losses(train, text, 9)
    assert found["5-gram"] == pytest.approx(kneser_ney(train.tolist(), text.tolist(), 9), rel=1e-12)
    shares = (torch.bincount(train, minlength=9) + 1) / (200 + 9)
    assert found["unigram"] == pytest.approx(-float(shares.double()[text[1:]].log().mean()), rel=1e-6)


def test_text_baselines_have_bits_and_perplexity():
    (one,) = text_baselines({"unigram": math.log(8)}, "bpc")
    assert one.figures == pytest.approx({"loss": math.log(8), "perplexity": 8.0, "bpc": 3.0})
