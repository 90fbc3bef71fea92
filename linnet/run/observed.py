"""Which ways calls take, on request.

notes = []
with observing(notes):
    rnn(x)
notes[0].way, notes[0].why
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Note(NamedTuple):
    """One run of a unit over a sequence, or of a part of it.

    way   "loop", "operation", "scan", "step" or "stepwise"; see run/choose.py
    why   what decided it, as a sentence
    """

    unit: str
    way: str
    why: str


notes: ContextVar[list[Note] | None] = ContextVar("linnet_notes", default=None)


@contextmanager
def observing(found: list[Note]) -> Iterator[None]:
    """Within this context, each run appends a note."""
    token = notes.set(found)
    try:
        yield
    finally:
        notes.reset(token)


def note(unit: str, way: str, why: str) -> None:
    found = notes.get()
    if found is not None:
        found.append(Note(unit, way, why))


def is_observing() -> bool:
    return notes.get() is not None
