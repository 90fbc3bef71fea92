"""The classes of labelled texts: those of the training set, and checks of the other splits."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence

from linnet.data.errors import DataError
from linnet.data.labelled import Splits
from linnet.data.tables import Labelled

log = logging.getLogger("linnet")


def classes_of(splits: Splits) -> tuple[str, ...]:
    """Return the classes of the training set: numbers by value, others by name."""
    found = {row.label for row in splits.train}
    if len(found) < 2:
        only = f"only {min(found)!r}" if found else "no text"
        raise DataError(f"the training set has {only}; classification needs at least two classes")
    for split in ("valid", "test"):
        check_split(split, getattr(splits, split), found)
    numbers = all(label.lstrip("-").isdecimal() for label in found)
    return tuple(sorted(found, key=(lambda label: (int(label), label)) if numbers else None))


def check_split(split: str, rows: Sequence[Labelled], known: set[str]) -> None:
    """Refuse a split without texts or with classes that are not known; name the classes that it lacks."""
    if not rows:
        raise DataError(f"the {split} set has no texts; give more texts or a file of its own")
    for row in rows:
        check_label(split, row, known)
    if missing := known - {row.label for row in rows}:
        log.warning("the %s set has no text of the class %s", split, ", ".join(sorted(missing)))


def check_label(split: str, row: Labelled, known: Collection[str]) -> None:
    if row.label not in known:
        where = row.where or f"the {split} set"
        listed = ", ".join(sorted(known)[:10])
        raise DataError(f"{where} has the class {row.label!r}, which no training text has; expected {listed}")


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
        if not rows:
            raise DataError(f"the {split} set has no texts; give more texts or a file of its own")
        for row in rows:
            for label in labels_of(row, separator):
                check_label(split, row._replace(label=label), found)
    return tuple(sorted(found))


def finite_number(row: Labelled) -> float:
    """Return the number of a text."""
    try:
        value = float(row.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        where = row.where or "a text"
        raise DataError(f"{where} has {row.label!r} where --value expects a number")
    return value
