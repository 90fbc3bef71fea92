"""Did-you-mean: the known name that is closest to a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or "" if no known name is close to `name`."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.4)
    return f"; did you mean {found[0]!r}?" if found else ""


def no_such(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the message for an unknown name: "no unit 'sur'; did you mean 'sru'? choose from sru, lrn"."""
    known = list(known)
    return f"no {kind} {name!r}{did_you_mean(str(name), known) or ';'} choose from {', '.join(known)}"
