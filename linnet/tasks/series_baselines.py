"""Baselines of labelled series: the most frequent class or the mean, and linear models of summaries.

A summary of a channel is its mean, deviation, smallest and largest value, quartiles, first and last value,
slope, and the mean size of its changes. Where each step has an answer, the linear model reads the values of
the step, their changes, and the mean of the steps before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from linnet.tasks.baselines import Baseline, has_sklearn, majority, mean_value, sample, value_figures

MOST_CLASSES = 100
MOST_INPUTS = 20_000
"""Numbers of a summary: with more channels, only their means and deviations are read."""
BEFORE = 10
"""Steps before a step whose mean is read."""
SUMMARY = "the mean, spread, extremes, quartiles, ends, slope and changes of each channel"
STEP = f"the values of the step, their changes and the mean of the {BEFORE} steps before"


def class_baselines(
    train: np.ndarray, labels: Sequence[str], asked: np.ndarray, right: Sequence[str], reads: str
) -> list[Baseline]:
    """Return baselines of classes, for features [examples, inputs] and what these are, for the reader."""
    found = [majority(labels, right)]
    if has_sklearn() and 1 < len(set(labels)) <= MOST_CLASSES:
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score

        answers = fitted(LogisticRegression(max_iter=1000), train, labels, asked)
        figures = {"accuracy": float(np.mean(answers == np.array(right)))}
        figures["f1"] = float(f1_score(right, answers, average="macro"))
        found.append(linear_baseline("logistic regression", reads, figures))
    return found


def value_baselines(
    train: np.ndarray, values: Sequence[float], asked: np.ndarray, right: Sequence[float], reads: str
) -> list[Baseline]:
    """Return baselines of numbers, as `class_baselines` does of classes."""
    found = [mean_value(values, right)]
    if has_sklearn():
        from sklearn.linear_model import Ridge

        answers = fitted(Ridge(), train, values, asked)
        found.append(linear_baseline("ridge regression", reads, value_figures(answers, np.array(right))))
    return found


def linear_baseline(model: str, reads: str, figures: dict[str, float]) -> Baseline:
    about = f"{model.capitalize()}, by scikit-learn, that reads {reads}."
    return Baseline(f"summaries + {model}", about, figures)


def fitted(model: Any, train: np.ndarray, answers: Sequence[Any], asked: np.ndarray) -> np.ndarray:
    """Return the answers of a model that reads standardised features."""
    mean, deviation = train.mean(0), train.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    with warnings.catch_warnings():
        # A baseline whose weights still move is a baseline all the same.
        warnings.simplefilter("ignore")
        model.fit(sample((train - mean) / deviation), sample(np.array(answers)))
        return model.predict((asked - mean) / deviation)


# --------------------------------------------------------------------------------------- features


def summaries(series: Sequence[np.ndarray], mean: np.ndarray) -> np.ndarray:
    """Return a row of features for each series [T, channels]; `mean` replaces missing values."""
    small = 11 * len(mean) > MOST_INPUTS
    measures = MEASURES[:2] if small else MEASURES
    rows = [np.where(np.isnan(each), mean, each) for each in series]
    return np.stack([np.concatenate([measure(each) for measure in measures]) for each in rows])


def slope(x: np.ndarray) -> np.ndarray:
    """Return the slope of a straight line through each channel, over the whole series."""
    steps = np.linspace(-0.5, 0.5, len(x))
    squares = float((steps**2).sum())
    return steps @ (x - x.mean(0)) / squares if squares else np.zeros(x.shape[1])


def mean_change(x: np.ndarray) -> np.ndarray:
    return np.abs(np.diff(x, axis=0)).mean(0) if len(x) > 1 else np.zeros(x.shape[1])


MEASURES: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda x: x.mean(0),
    lambda x: x.std(0),
    lambda x: x.min(0),
    lambda x: x.max(0),
    lambda x: np.quantile(x, 0.25, axis=0),
    lambda x: np.quantile(x, 0.5, axis=0),
    lambda x: np.quantile(x, 0.75, axis=0),
    lambda x: x[0],
    lambda x: x[-1],
    slope,
    mean_change,
)


def step_features(series: Sequence[np.ndarray], mean: np.ndarray) -> np.ndarray:
    """Return a row of features for each step of each series."""
    rows = (np.where(np.isnan(each), mean, each) for each in series)
    return np.concatenate([np.concatenate([x, changes(x), means_before(x)], 1) for x in rows])


def changes(x: np.ndarray) -> np.ndarray:
    return np.diff(x, axis=0, prepend=x[:1])


def means_before(x: np.ndarray) -> np.ndarray:
    """Return the mean of each step and the steps before it."""
    sums = np.cumsum(np.concatenate([np.zeros((1, x.shape[1])), x]), 0)
    ends = np.arange(1, len(x) + 1)
    starts = np.maximum(ends - BEFORE, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)[:, None]
