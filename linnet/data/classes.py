"""The classes of labelled texts: those of the training set, and checks of the other splits."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence

from linnet.data.errors import DataError
from linnet.data.labelled import Splits
from linnet.data.tables import Labelled

log = logging.getLogger("linnet")


def classes_of(splits: Splits, noun: str = "text") -> tuple[str, ...]:
    """Return the classes of the training set: numbers by value, others by name.

    noun   what has a class, for messages; its plural, "texts", is that of a regular noun or "series"
    """
    found = {row.label for row in splits.train}
    if len(found) < 2:
        only = f"only {min(found)!r}" if found else f"no {noun}"
        raise DataError(f"the training set has {only}; classification needs at least two classes")
    for split in ("valid", "test"):
        check_split(split, getattr(splits, split), found, noun)
    numbers = all(label.lstrip("-").isdecimal() for label in found)
    return tuple(sorted(found, key=(lambda label: (int(label), label)) if numbers else None))


def check_split(split: str, rows: Sequence[Labelled], known: set[str], noun: str = "text") -> None:
    """Refuse a split without texts or with classes that are not known; name the classes that it lacks."""
    check_rows(split, rows, noun)
    for row in rows:
        check_label(split, row, known, noun)
    if missing := known - {row.label for row in rows}:
        log.warning("the %s set has no %s of the class %s", split, noun, ", ".join(sorted(missing)))


def check_rows(split: str, rows: Sequence[Labelled], noun: str = "text") -> None:
    if not rows:
        several = plural(noun)
        raise DataError(f"the {split} set has no {several}; give more {several} or a file of its own")


def plural(noun: str) -> str:
    return noun if noun.endswith("s") else f"{noun}s"


def check_label(split: str, row: Labelled, known: Collection[str], noun: str = "text") -> None:
    if row.label not in known:
        where = row.where or f"the {split} set"
        listed = ", ".join(sorted(known)[:10])
        raise DataError(
            f"{where} has the class {row.label!r}, which no training {noun} has; expected {listed}"
        )


# ---------------------------------------------------------------------------- several labels, numbers


def labels_of(row: Labelled, separator: str) -> list[str]:
    """Return the labels of a text: none, one or several."""
    return [*dict.fromkeys(label for each in row.label.split(separator) if (label := each.strip()))]


def labels_of_splits(splits: Splits, separator: str) -> tuple[str, ...]:
    """Return the labels of the training set, by name; the other splits must have no others."""
    found = {label for row in splits.train for label in labels_of(row, separator)}
    if not found:
        raise DataError(f"no text of the training set has a label; labels are separated by {separator!r}")
    for split in ("valid", "test"):
        rows = getattr(splits, split)
        check_rows(split, rows)
        for row in rows:
            for label in labels_of(row, separator):
                check_label(split, row._replace(label=label), found)
    return tuple(sorted(found))


def finite_number(row: Labelled) -> float:
    """Return the number that a row has as its label."""
    try:
        value = float(row.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        where = row.where or "a text"
        raise DataError(f"{where} has {row.label!r} where --value expects a number")
    return value
