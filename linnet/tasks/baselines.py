"""Baselines without a neural network: what a result must beat before it means anything.

Each takes the training set and the targets of another split, and returns figures with the names that the
metrics of its task have. They are quick: of large training sets, they read the first part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

ORDER = 5
"""Of the longest n-grams."""
DISCOUNT = 0.75
MOST_TOKENS = 5_000_000
MOST_TEXTS = 20_000
MOST_CLASSES = 100
Ids = np.ndarray  # int64


class Baseline(NamedTuple):
    """The figures of answers that need no training of a network."""

    name: str
    about: str  # one sentence for the reader
    figures: dict[str, float]


# -------------------------------------------------------------------------------------- classification


def majority(train: Sequence[Hashable], labels: Sequence[Hashable]) -> Baseline:
    """Always the most frequent class of the training set."""
    (answer, _), *_ = Counter(train).most_common(1)
    share = sum(label == answer for label in labels) / len(labels)
    # F1 of the other classes is 0; like ClassMetrics, it is a mean over the classes that occur.
    f1 = 2 * share / (1 + share) / len({answer, *labels})
    about = "Always the most frequent class of the training set."
    return Baseline("majority", about, {"accuracy": share, "f1": f1})


def tfidf(
    train: Sequence[Sequence[str]],
    labels: Sequence[str],
    texts: Sequence[Sequence[str]],
    right: Sequence[str],
) -> Baseline | None:
    """TF-IDF of words and logistic regression, by scikit-learn's defaults.

    None if that is not installed, or if classes are too many to learn in seconds or have one text each.
    """
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score
    except ImportError:
        return None
    if len(set(labels)) > min(MOST_CLASSES, len(labels) // 2):
        return None
    weights = TfidfVectorizer(analyzer=lambda words: words)
    seen = weights.fit_transform(train[:MOST_TEXTS])
    model = LogisticRegression(max_iter=200).fit(seen, labels[:MOST_TEXTS])
    answers = model.predict(weights.transform(texts))
    figures = {"accuracy": float(np.mean(answers == np.array(right)))}
    figures["f1"] = float(f1_score(right, answers, average="macro"))
    about = "Logistic regression over the weighted counts of words, by scikit-learn with its defaults."
    if len(train) > MOST_TEXTS:
        about += f" It learns from the first {MOST_TEXTS:,} texts."
    return Baseline("TF-IDF + logistic regression", about, figures)


# -------------------------------------------------------------------------------------------- tagging


def frequent_tags(
    words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]
) -> tuple[dict[str, str], str]:
    """Return the most frequent tag of each word, and that of all words."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence, marks in zip(words, tags, strict=True):
        for word, tag in zip(sentence, marks, strict=True):
            counts[word][tag] += 1
    every = sum(counts.values(), Counter())
    return {word: found.most_common(1)[0][0] for word, found in counts.items()}, every.most_common(1)[0][0]


# ----------------------------------------------------------------------------------- language models


def ngram_losses(train: Tensor, text: Tensor, vocabulary_size: int) -> dict[str, float]:
    """Return the mean of -log p of the tokens of `text`, in nats, by n-grams of one token and of five.

    The five-grams are interpolated Kneser-Ney models. All n-grams of both texts get numbers, so that the
    counts of those in the training text are arrays.
    """
    known = train[:MOST_TOKENS].numpy().astype(np.int64)
    tokens = np.concatenate([known, text.numpy().astype(np.int64)])
    asked = np.arange(len(known) + 1, len(tokens))
    ids = numbered_ngrams(tokens, vocabulary_size)
    counted = [np.arange(order, len(known)) for order in range(ORDER)]
    unigrams = np.bincount(ids[0][: len(known)], minlength=vocabulary_size)[ids[0][asked]]
    smoothed = (unigrams + 1) / (len(known) + vocabulary_size)
    probabilities = np.full(len(asked), 1 / vocabulary_size)
    for order in range(ORDER):
        # The highest order counts occurrences, the others count how many n-grams they end.
        places = counted[order]
        if order + 1 < ORDER:
            places = np.unique(ids[order + 1][counted[order + 1]], return_index=True)[1] + order + 1
        probabilities = interpolated(ids, order, places, asked, probabilities)
    return {"unigram": -float(np.log(smoothed).mean()), "5-gram": -float(np.log(probabilities).mean())}


def numbered_ngrams(tokens: Ids, vocabulary_size: int) -> list[Ids]:
    """Return for each order the number of the n-gram that ends at each token; -1 where none does."""
    ids = [tokens]
    for order in range(1, ORDER):
        before, found = ids[-1][order - 1 : -1], np.full(len(tokens), -1)
        found[order:] = np.unique(before * vocabulary_size + tokens[order:], return_inverse=True)[1]
        ids.append(found)
    return ids


def interpolated(ids: list[Ids], order: int, places: Ids, asked: Ids, lower: np.ndarray) -> np.ndarray:
    """Return p(token | order tokens before it) at `asked`: discounted counts, and the rest by `lower`.

    places   where an n-gram of the training text counts once
    """
    size = int(ids[order].max()) + 1
    counts = np.bincount(ids[order][places], minlength=size)
    first = np.unique(ids[order][places], return_index=True)[1]
    if order:
        context, wanted, contexts = (
            ids[order - 1][places - 1],
            ids[order - 1][asked - 1],
            ids[order - 1].max() + 1,
        )
    else:
        context, wanted, contexts = np.zeros_like(places), np.zeros_like(asked), 1
    totals = np.bincount(context, minlength=contexts)[wanted]
    kinds = np.bincount(context[first], minlength=contexts)[wanted]
    known = np.maximum(totals, 1)
    direct = np.maximum(counts[ids[order][asked]] - DISCOUNT, 0) / known
    return np.where(totals > 0, direct + DISCOUNT * kinds / known * lower, lower)


def text_baselines(losses: dict[str, float], bits: str) -> list[Baseline]:
    """Return the baselines of a text; `bits` is the name of the loss in bits."""
    about = {
        "unigram": "The frequency of each token in the training text.",
        "5-gram": "The four tokens before, by interpolated Kneser-Ney counts of the training text.",
    }
    return [Baseline(name, about[name], text_figures(loss, bits)) for name, loss in losses.items()]


def text_figures(loss: float, bits: str) -> dict[str, float]:
    return {"loss": loss, "perplexity": math.exp(min(loss, 700)), bits: loss / math.log(2)}
