"""Pages of which a part, between two markers, is written by a program."""

from __future__ import annotations

import re
from pathlib import Path


def filled(page: Path, body: str, begin: str, end: str) -> str:
    """Return the page with `body` between the two markers, and nothing else changed."""
    return filled_text(str(page), page.read_text(encoding="utf-8"), body, begin, end)


def filled_text(name: str, old: str, body: str, begin: str, end: str) -> str:
    """Return the text of the page `name` with `body` between the two markers, and nothing else changed."""
    if old.count(begin) != 1 or old.count(end) != 1:
        raise ValueError(f"{name} must hold once each: {begin} and {end}")
    between = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    return between.sub(lambda _: f"{begin}\n\n{body}\n\n{end}", old)
