"""Baselines without a neural network: what a result must beat before it means anything.

Each takes the training set and the targets of another split, and returns figures with the names that the
metrics of its task have. They are quick: of large training sets, they read the first part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

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


class Asked(NamedTuple):
    """The texts of a split as words, and their labels."""

    texts: Sequence[Sequence[str]]
    labels: Sequence[str]


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

    None if that is not installed, or if there is one class, or so many that each has one text or that they
    cannot be learned in seconds.
    """
    if not has_sklearn() or not 1 < len(set(labels)) <= min(MOST_CLASSES, len(labels) // 2):
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    seen, asked = weighted_counts(train, texts)
    model = LogisticRegression(max_iter=200).fit(seen, sample(labels))
    answers = model.predict(asked)
    figures = {"accuracy": float(np.mean(answers == np.array(right)))}
    figures["f1"] = float(f1_score(right, answers, average="macro"))
    return Baseline("TF-IDF + logistic regression", about_linear("Logistic regression", train), figures)


def has_sklearn() -> bool:
    return find_spec("sklearn") is not None


def weighted_counts(train: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """Return the TF-IDF of the words of the training set and of other texts."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(analyzer=lambda words: words)
    return weights.fit_transform(sample(train)), weights.transform(texts)


def sample(items: Any) -> Any:
    """At most MOST_TEXTS of the texts, or of their labels: evenly spaced, since a file may be sorted."""
    count = len(items)
    if count <= MOST_TEXTS:
        return items
    places = [number * count // MOST_TEXTS for number in range(MOST_TEXTS)]
    return items[places] if isinstance(items, np.ndarray) else [items[place] for place in places]


def about_linear(model: str, train: Sequence[Any]) -> str:
    about = f"{model} over the weighted counts of words, by scikit-learn with its defaults."
    return about + (f" It learns from {MOST_TEXTS:,} of the texts." if len(train) > MOST_TEXTS else "")


# ------------------------------------------------------------------------------------ several labels


def frequent_labels(train: np.ndarray, right: np.ndarray) -> Baseline:
    """Always the labels of most texts, or the most frequent one; both arrays are 0 or 1, [texts, labels]."""
    shares = train.mean(0)
    answer = (shares >= min(0.5, shares.max())).astype(np.int64)
    about = "Always the labels that most training texts have, or the most frequent one."
    return Baseline("frequent labels", about, label_figures(np.tile(answer, (len(right), 1)), right))


def tfidf_labels(
    train: Sequence[Sequence[str]], labels: np.ndarray, texts: Sequence[Sequence[str]], right: np.ndarray
) -> Baseline | None:
    """TF-IDF of words and a logistic regression for each label; None as for `tfidf`."""
    labels = sample(labels)
    if not has_sklearn() or labels.shape[1] > MOST_CLASSES:
        return None
    from sklearn.linear_model import LogisticRegression

    seen, asked = weighted_counts(train, texts)
    answers = np.zeros_like(right)
    for number, column in enumerate(labels.T):
        if column.min() == column.max():
            answers[:, number] = column[0]
        else:
            answers[:, number] = LogisticRegression(max_iter=200).fit(seen, column).predict(asked)
    about = about_linear("Logistic regression of each label", train)
    return Baseline("TF-IDF + logistic regression", about, label_figures(answers, right))


def label_figures(answers: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Return micro and macro F1 and the share of texts whose labels are all right, as `LabelMetrics`."""
    both, total = (answers * right).sum(0), answers.sum(0) + right.sum(0)
    micro = 2 * float(both.sum()) / max(float(total.sum()), 1.0)
    macro = float((2 * both / np.maximum(total, 1)).mean())
    return {"micro_f1": micro, "f1": macro, "exact": float((answers == right).all(1).mean())}


# ------------------------------------------------------------------------------------------- numbers


def mean_value(train: Sequence[float], right: Sequence[float]) -> Baseline:
    answers = np.full(len(right), np.mean(train))
    return Baseline("mean", "Always the mean of the training set.", value_figures(answers, np.array(right)))


def ridge(
    train: Sequence[Sequence[str]],
    values: Sequence[float],
    texts: Sequence[Sequence[str]],
    right: Sequence[float],
) -> Baseline | None:
    """TF-IDF of words and ridge regression, by scikit-learn's defaults; None if that is not installed."""
    if not has_sklearn():
        return None
    from sklearn.linear_model import Ridge

    seen, asked = weighted_counts(train, texts)
    answers = Ridge().fit(seen, sample(values)).predict(asked)
    about = about_linear("Ridge regression", train)
    return Baseline("TF-IDF + ridge regression", about, value_figures(answers, np.array(right)))


def value_figures(answers: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """Return the root of the mean squared error, the mean absolute error, and R²."""
    errors, spread = answers - values, values - values.mean()
    squares = float((errors**2).mean())
    variance = float((spread**2).mean())
    r2 = 1 - squares / variance if variance else 0.0
    return {"rmse": math.sqrt(squares), "mae": float(np.abs(errors).mean()), "r2": r2}


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
