"""The classes of labelled texts: those of the training set, and checks of the other splits."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from linnet.data.errors import DataError
from linnet.data.labelled import Splits
from linnet.data.tables import Labelled
from linnet.data.text import parse_json

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


def parse_classes(where: str, content: bytes) -> tuple[str, ...]:
    names = parse_json(where, content)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) < 2:
        raise DataError(f"{where} must be a list of two or more names of classes")
    return tuple(names)
