"""What can be wrong with data: each answers with what was expected, what came, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.base.suggest import no_such


class DataError(ValueError):
    """Data, or a wish about it, that cannot be used as it is."""


class MissingDataError(DataError, FileNotFoundError):
    """A file that is in none of the places where it was looked for."""

    # OSError's own would look for an errno; ours is a sentence.
    __str__ = Exception.__str__


def unknown(kind: str, name: str, known: Iterable[str]) -> DataError:
    """The error for a name that is not in a list, with the nearest that is."""
    return DataError(no_such(kind, name, known))
