"""What a text is given: one class, any number of labels, or a number.

    OneClass        --label COLUMN                      cross-entropy; accuracy and macro F1
    SeveralLabels   --label COLUMN --separator ","      binary cross-entropy of each label; micro and macro F1
    Value           --value COLUMN                      squared error; RMSE, MAE and R²

A target says what the label of an example is, what its loss is, how an evaluation is summarised, what an
answer looks like, and what is kept with a run.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from linnet.base.suggest import no_such
from linnet.data.batches import IGNORE
from linnet.data.classes import (
    check_label,
    check_rows,
    classes_of,
    finite_number,
    labels_of,
    labels_of_splits,
)
from linnet.data.errors import DataError
from linnet.data.labelled import Splits
from linnet.data.tables import Labelled
from linnet.data.text import parse_json
from linnet.tasks.baselines import (
    Asked,
    Baseline,
    frequent_labels,
    majority,
    mean_value,
    ridge,
    tfidf,
    tfidf_labels,
    value_figures,
)
from linnet.tasks.results import LOSS, Figure, Metrics, StepResult

MOST_SHOWN = 5  # classes whose probabilities `linnet predict` prints
BALANCED = "balanced"
ACCURACY = Figure(
    "accuracy", "accuracy", "The share of texts with the right class; higher is better.", ".4f", True
)
F1 = Figure(
    "f1", "macro F1", "The mean over the classes of the harmonic mean of precision and recall.", ".4f", True
)
MICRO_F1 = Figure(
    "micro_f1",
    "micro F1",
    "The harmonic mean of precision and recall of all labels of all texts; higher is better.",
    ".4f",
    True,
)
EXACT = Figure("exact", "exact", "The share of texts whose labels are all right.", ".4f", True)
RMSE = Figure("rmse", "RMSE", "The root of the mean squared error; lower is better.")
MAE = Figure("mae", "MAE", "The mean of the absolute errors; lower is better.")
R2 = Figure("r2", "R²", "The share of the variance that is explained: 1 is perfect.", ".4f", True)


class Target(ABC):
    """What a text is given."""

    figures: ClassVar[tuple[Figure, ...]]  # the first one selects the best checkpoint, unless the loss does
    names: tuple[str, ...]  # of the outputs of a model
    noun = "text"  # what is given a class, for messages

    @abstractmethod
    def encode(self, split: str, row: Labelled) -> Any:
        """Return the label of an example."""

    @abstractmethod
    def losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
        """Return the sum of the losses of the texts, and their number."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """Return a new object for one evaluation."""

    @abstractmethod
    def answers(self, logits: Tensor) -> list[dict[str, Any]]:
        """Return the answer to each text, for logits [B, outputs]."""

    @abstractmethod
    def show(self, answer: Mapping[str, Any]) -> str:
        """Return an answer as `linnet predict` prints it."""

    @abstractmethod
    def baselines(self, known: Asked, asked: Asked) -> list[Baseline | None]:
        """Return baselines that learn from `known` and answer `asked`."""

    @abstractmethod
    def kept(self) -> Any:
        """Return what `from_kept` needs, as a JSON value."""

    @classmethod
    @abstractmethod
    def from_kept(cls, where: str, kept: Any) -> Target:
        """Return the target of a trained run."""


# ---------------------------------------------------------------------------------------- one class


class OneClass(Target):
    """The class of a text; `weights` has a factor of the loss for each class."""

    figures = (ACCURACY, F1, LOSS)

    def __init__(self, names: Sequence[str], weights: Sequence[float] | None = None):
        self.names, self.weights = tuple(names), None if weights is None else list(weights)

    @classmethod
    def of(cls, splits: Splits, data: Any, noun: str = "text") -> OneClass:
        names = classes_of(splits, noun)
        counts = Counter(row.label for row in splits.train)
        balanced = [len(splits.train) / len(names) / counts[name] for name in names]
        return cls(names, chosen_weights(data.class_weights, names, balanced))

    def encode(self, split: str, row: Labelled) -> int:
        check_label(split, row, self.names, self.noun)
        return self.names.index(row.label)

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
        total = F.cross_entropy(
            logits,
            labels,
            weight=None if self.weights is None else logits.new_tensor(self.weights),
            reduction="sum",
            ignore_index=IGNORE,
            # LRN shares the rest of the target among the other classes; torch among all, so it needs more.
            label_smoothing=smoothing * len(self.names) / (len(self.names) - 1),
        )
        return total, int((labels != IGNORE).sum())

    def metrics(self) -> Metrics:
        return ClassMetrics(len(self.names))

    def answers(self, logits: Tensor) -> list[dict[str, Any]]:
        return [self.answer(row) for row in logits.double().softmax(-1).tolist()]

    def answer(self, probabilities: list[float]) -> dict[str, Any]:
        rounded = by_name(self.names, probabilities)
        return {"label": max(rounded, key=rounded.__getitem__), "probabilities": rounded}

    def show(self, answer: Mapping[str, Any]) -> str:
        """The class, then the most probable classes."""
        return f"{answer['label']}  ({likely(answer)})"

    def baselines(self, known: Asked, asked: Asked) -> list[Baseline | None]:
        return [
            majority(known.labels, asked.labels),
            tfidf(known.texts, known.labels, asked.texts, asked.labels),
        ]

    def kept(self) -> Any:
        names = list(self.names)
        return names if self.weights is None else {"classes": names, "weights": self.weights}

    @classmethod
    def from_kept(cls, where: str, kept: Any) -> OneClass:
        names, weights = names_and_weights(where, kept)
        if len(names) < 2:
            raise DataError(f"{where} must be a list of two or more names of classes")
        return cls(names, weights)


class ClassMetrics(Metrics):
    """Loss, accuracy and macro F1.

    confusion   int64 [classes, classes]: how many texts of class i were put into class j
    mistakes    for each wrong answer: its probability, the number of the text, its class and the answer
    """

    def __init__(self, classes: int):
        super().__init__()
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self.mistakes: list[tuple[float, int, int, int]] = []

    def update(self, result: StepResult) -> None:
        super().update(result)
        counted = result.outputs[1] != IGNORE
        logits, labels, rows = (each[counted].cpu() for each in result.outputs)
        probabilities, answers = logits.softmax(-1).max(-1)
        self.confusion.index_put_((labels, answers), torch.ones_like(labels), accumulate=True)
        wrong = answers != labels
        found = (each[wrong].tolist() for each in (probabilities, rows, labels, answers))
        self.mistakes += zip(*found, strict=True)

    def compute(self) -> dict[str, float]:
        right = float(self.confusion.diagonal().sum()) / max(self.count, 1)
        return {**super().compute(), "accuracy": right, "f1": macro_f1(self.confusion)}


def macro_f1(confusion: Tensor) -> float:
    """Return the mean F1 of the classes that occur, as a label or as an answer (as scikit-learn does)."""
    both = confusion.sum(0) + confusion.sum(1)
    scores = 2 * confusion.diagonal()[both > 0].double() / both[both > 0]
    return float(scores.mean()) if len(scores) else 0.0


# ------------------------------------------------------------------------------------ several labels


class SeveralLabels(Target):
    """Any number of labels, none included: those with a probability of at least 1/2.

    `weights` has a factor for each label, of the loss of the texts that have it.
    """

    figures = (MICRO_F1, F1, EXACT, LOSS)

    def __init__(self, separator: str, names: Sequence[str], weights: Sequence[float] | None = None):
        self.separator, self.names = separator, tuple(names)
        self.weights = None if weights is None else list(weights)

    @classmethod
    def of(cls, splits: Splits, data: Any) -> SeveralLabels:
        names = labels_of_splits(splits, data.separator)
        counts = Counter(name for row in splits.train for name in labels_of(row, data.separator))
        balanced = [(len(splits.train) - counts[name]) / counts[name] for name in names]
        return cls(data.separator, names, chosen_weights(data.class_weights, names, balanced))

    def encode(self, split: str, row: Labelled) -> list[int]:
        found = labels_of(row, self.separator)
        for label in found:
            check_label(split, row._replace(label=label), self.names)
        return [int(name in found) for name in self.names]

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
        """The mean over the labels of each text: the learning rate does not depend on their number."""
        counted = labels.T != IGNORE
        wanted = labels.T.clamp(min=0).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        weights = None if self.weights is None else logits.new_tensor(self.weights)
        losses = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none", pos_weight=weights)
        return (losses * counted).sum() / len(self.names), int(counted[:, 0].sum())

    def metrics(self) -> Metrics:
        return LabelMetrics(len(self.names))

    def answers(self, logits: Tensor) -> list[dict[str, Any]]:
        rows = [by_name(self.names, row) for row in logits.double().sigmoid().tolist()]
        return [
            {"labels": [name for name, value in row.items() if value >= 0.5], "probabilities": row}
            for row in rows
        ]

    def show(self, answer: Mapping[str, Any]) -> str:
        """The labels, then the most probable ones."""
        found = f"{self.separator} ".join(answer["labels"]) or "no label"
        return f"{found}  ({likely(answer)})"

    def baselines(self, known: Asked, asked: Asked) -> list[Baseline | None]:
        both = [self.flags(each) for each in (known, asked)]
        return [
            frequent_labels(*both),
            tfidf_labels(known.texts, both[0], asked.texts, both[1]),
        ]

    def flags(self, asked: Asked) -> Any:
        rows = [self.encode("test", Labelled("", label)) for label in asked.labels]
        return torch.tensor(rows, dtype=torch.int64).numpy()

    def kept(self) -> Any:
        own = {"separator": self.separator, "classes": list(self.names)}
        return own if self.weights is None else {**own, "weights": self.weights}

    @classmethod
    def from_kept(cls, where: str, kept: Any) -> SeveralLabels:
        separator = kept.get("separator") if isinstance(kept, dict) else None
        if not isinstance(separator, str) or not separator:
            raise DataError(f"{where} must have the separator of several labels; got {separator!r}")
        return cls(separator, *names_and_weights(where, kept))


class LabelMetrics(Metrics):
    """Loss, micro and macro F1, and the share of texts whose labels are all right.

    found    int64 [3, labels]: answers that are right, wrong, and labels that are missing
    """

    def __init__(self, labels: int):
        super().__init__()
        self.found = torch.zeros(3, labels, dtype=torch.int64)
        self.exact = 0

    def update(self, result: StepResult) -> None:
        super().update(result)
        logits, labels = (each.cpu() for each in result.outputs[:2])
        counted = labels[0] != IGNORE
        answers, wanted = logits[counted] >= 0, labels.T[counted] == 1
        parts = answers & wanted, answers & ~wanted, ~answers & wanted
        self.found += torch.stack([part.sum(0) for part in parts])
        self.exact += int((answers == wanted).all(1).sum())

    def compute(self) -> dict[str, float]:
        exact = self.exact / max(self.count, 1)
        return {**super().compute(), **label_f1(self.found), "exact": exact}


def label_f1(found: Tensor) -> dict[str, float]:
    """Return micro and macro F1 for the numbers of right answers, wrong answers and missing labels."""
    right, wrong, missing = found.double()
    scores = 2 * right / (2 * right + wrong + missing).clamp(min=1)
    total = float(2 * right.sum() + wrong.sum() + missing.sum())
    return {"micro_f1": 2 * float(right.sum()) / total if total else 0.0, "f1": float(scores.mean())}


# ------------------------------------------------------------------------------------------- numbers


class Value(Target):
    """A number. The model predicts (number - mean) / deviation, with those of the training set."""

    figures = (RMSE, MAE, R2, LOSS)
    names = ("value",)

    def __init__(self, mean: float, deviation: float):
        self.mean, self.deviation = mean, deviation

    @classmethod
    def of(cls, splits: Splits, data: Any, noun: str = "text") -> Value:
        if data.class_weights:
            raise DataError("--class-weights is for classes, and --value predicts a number; leave one out")
        for split in ("train", "valid", "test"):
            check_rows(split, getattr(splits, split), noun)
        values = torch.tensor([finite_number(row) for row in splits.train], dtype=torch.float64)
        deviation = float(values.std(correction=0))
        if not deviation:
            raise DataError(
                f"all numbers of the training set are {float(values[0]):g}; there is nothing to learn"
            )
        return cls(float(values.mean()), deviation)

    def encode(self, split: str, row: Labelled) -> float:
        return (finite_number(row) - self.mean) / self.deviation

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, int]:
        counted = labels.isfinite()
        errors = logits[:, 0] - labels.to(logits.dtype)
        return errors[counted].square().sum(), int(counted.sum())

    def metrics(self) -> Metrics:
        return ValueMetrics(self.deviation)

    def answers(self, logits: Tensor) -> list[dict[str, Any]]:
        values = self.mean + self.deviation * logits[:, 0].double()
        return [{"value": float(f"{value:.6g}")} for value in values.tolist()]

    def show(self, answer: Mapping[str, Any]) -> str:
        return f"{answer['value']:.5g}"

    def baselines(self, known: Asked, asked: Asked) -> list[Baseline | None]:
        both = [[finite_number(Labelled("", label)) for label in each.labels] for each in (known, asked)]
        return [
            mean_value(*both),
            ridge(known.texts, both[0], asked.texts, both[1]),
        ]

    def kept(self) -> Any:
        return {"mean": self.mean, "deviation": self.deviation}

    @classmethod
    def from_kept(cls, where: str, kept: Any) -> Value:
        found = kept if isinstance(kept, dict) else {}
        mean, deviation = found.get("mean"), found.get("deviation")
        if isinstance(mean, float) and isinstance(deviation, float) and math.isfinite(mean * deviation):
            return cls(mean, deviation)
        raise DataError(f"{where} must have the mean and the deviation of the numbers; got {kept!r}")


class ValueMetrics(Metrics):
    """Loss, and the errors in the unit of the numbers."""

    def __init__(self, deviation: float):
        super().__init__()
        self.pairs: list[tuple[float, float]] = []  # the answer and the number, in deviations from the mean
        self.scale = [deviation]

    def update(self, result: StepResult) -> None:
        super().update(result)
        logits, labels = (each.cpu() for each in result.outputs[:2])
        counted = labels.isfinite()
        self.pairs += zip(logits[counted, 0].tolist(), labels[counted].tolist(), strict=True)

    def compute(self) -> dict[str, float]:
        answers, values = self.scale[0] * np.array(self.pairs).reshape(-1, 2).T
        return {**super().compute(), **value_figures(answers, values)}


# ------------------------------------------------------------------------------------------- helpers

KINDS: dict[str, Any] = {"class": OneClass, "labels": SeveralLabels, "value": Value}
"""By the kind of `linnet.data.tables.Columns`."""


def kind_of(data: Any) -> str:
    """Return the kind of target that the options of the data ask for."""
    return "value" if data.value is not None else "labels" if data.separator is not None else "class"


def parse_target(where: str, content: bytes, data: Any) -> Target:
    return KINDS[kind_of(data)].from_kept(where, parse_json(where, content))


def to_bytes(target: Target) -> bytes:
    return json.dumps(target.kept()).encode()


def names_and_weights(where: str, kept: Any) -> tuple[list[str], list[float] | None]:
    names, weights = (kept.get("classes"), kept.get("weights")) if isinstance(kept, dict) else (kept, None)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
        raise DataError(f"{where} must be a list of two or more names of classes")
    if weights is not None:
        finite = isinstance(weights, list) and all(isinstance(each, (int, float)) for each in weights)
        if not finite or len(weights) != len(names):
            raise DataError(f"{where} must have a weight for each class")
    return names, weights


def chosen_weights(
    given: Sequence[str], names: Sequence[str], balanced: Sequence[float]
) -> list[float] | None:
    """Return the weight of each class by --class-weights: none, `balanced`, or NAME=NUMBER (others are 1)."""
    if not given:
        return None
    if tuple(given) == (BALANCED,):
        return list(balanced)
    known = dict.fromkeys(names, 1.0)
    for each in given:
        name, _, number = each.rpartition("=")
        if name not in known:
            raise DataError(f"--class-weights {each}: there is {no_such('class', name, known)}")
        known[name] = weight_of(each, number)
    return [*known.values()]


def weight_of(given: str, number: str) -> float:
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight) or weight < 0:
        raise DataError(f"--class-weights {given}: expected {BALANCED} or NAME=NUMBER, such as spam=5")
    return weight


def by_name(names: Sequence[str], probabilities: Sequence[float]) -> dict[str, float]:
    # Batches of other sizes differ in the last digits.
    return {name: round(value, 5) for name, value in zip(names, probabilities, strict=True)}


def likely(answer: Mapping[str, Any]) -> str:
    most = sorted(answer["probabilities"].items(), key=lambda pair: -pair[1])[:MOST_SHOWN]
    return ", ".join(f"{name} {value:.3f}" for name, value in most)
