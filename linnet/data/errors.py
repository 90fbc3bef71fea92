"""Errors about data. A message says what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.base.suggest import no_such


class DataError(ValueError):
    """Data, or an option of the data, that cannot be used."""


class MissingDataError(DataError, FileNotFoundError):
    """A file that was not found in any of the searched places."""

    # OSError's __str__ expects an errno; our message is a sentence.
    __str__ = Exception.__str__


def unknown(kind: str, name: str, known: Iterable[str]) -> DataError:
    """Return the error for an unknown name, with the nearest known one."""
    return DataError(no_such(kind, name, known))
