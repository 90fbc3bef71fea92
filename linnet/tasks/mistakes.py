"""Tables of an evaluation of classes: what is confused with what, and the most confident mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from torch import Tensor

from linnet.data.classes import plural
from linnet.tasks.results import Section

MOST_IN_MATRIX = 100  # classes of a confusion matrix
MOST_CONFUSIONS = 100  # for more classes, the pairs of classes that are shown instead
MOST_MISTAKES = 20


def confusion(classes: Sequence[str], counts: Tensor, noun: str = "text") -> Section:
    """Return the confusion matrix, counts [classes, classes]; `noun` is what has a class."""
    if len(classes) > MOST_IN_MATRIX:
        return largest_confusions(classes, counts, noun)
    labels = [*map(shortened, classes)]
    rows = [
        (label, *map(str, row.tolist()), str(int(row.sum())))
        for label, row in zip(labels, counts, strict=True)
    ]
    about = (
        f"Each row has the {plural(noun)} of one class, each column those that the model puts into a class."
    )
    missing = [row[0] for row in rows if row[-1] == "0"]
    if missing:
        about += f" No {noun} of this split has the class {', '.join(missing)}."
    return Section("Confusion matrix", about, ("class", *labels, "all"), tuple(rows))


def largest_confusions(classes: Sequence[str], counts: Tensor, noun: str) -> Section:
    """Return the pairs of classes that are confused most often: a matrix of many classes is too large."""
    wrong = counts.clone().fill_diagonal_(0)
    # A stable order, so that of equal counts the first classes are shown.
    found, places = wrong.flatten().sort(descending=True, stable=True)
    shown = min(MOST_CONFUSIONS, int((found > 0).sum()))
    totals, size = counts.sum(1), len(classes)
    rows = [
        (
            shortened(classes[place // size]),
            shortened(classes[place % size]),
            str(count),
            str(int(totals[place // size])),
        )
        for count, place in zip(found[:shown].tolist(), places[:shown].tolist(), strict=True)
    ]
    about = f"The {shown} most frequent confusions of {size:,} classes, and all {plural(noun)} of the class."
    if empty := int((totals == 0).sum()):
        about += f" {empty:,} of them have no {noun} in this split."
    return Section("Largest confusions", about, ("class", "answer", plural(noun), "all"), tuple(rows))


def class_mistakes(
    classes: Sequence[str],
    found: Sequence[tuple[float, int, int, int]],
    columns: Sequence[str],
    describe: Callable[[int], tuple[str, ...]],
) -> Section:
    """Return the wrong answers with the highest probability.

    found      for each: its probability, the number of the example, its class and the answer
    describe   returns the `columns` of the example of a number
    """

    def row(mistake: tuple[float, int, int, int]) -> tuple[str, ...]:
        probability, number, label, answer = mistake
        names = (shortened(classes[answer]), shortened(classes[label]))
        return (f"{probability:.3f}", *names, *describe(number))

    return most_confident_mistakes(("probability", "answer", "class", *columns), found, row)


def most_confident_mistakes(
    head: tuple[str, ...], wrong: Collection[Any], row: Callable[[Any], tuple[str, ...]]
) -> Section:
    """Return a table of the wrong answers with the highest probability.

    wrong   tuples that start with the probability of an answer
    row     returns the row of one of them, with the columns of `head`
    """
    shown = sorted(wrong, reverse=True)[:MOST_MISTAKES]
    about = f"The {len(shown)} wrong answers with the highest probability, of {len(wrong)} wrong answers."
    if not shown:
        about = "No answer is wrong."
    return Section("Most confident mistakes", about, head, tuple(map(row, shown)))


def shortened(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} ..."
