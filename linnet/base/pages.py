"""Pages of which a part, between two markers, is written by a program."""

from __future__ import annotations

import re
from pathlib import Path


def filled(page: Path, body: str, begin: str, end: str) -> str:
    """Return the page with `body` between the two markers, and nothing else changed."""
    old = page.read_text(encoding="utf-8")
    if old.count(begin) != 1 or old.count(end) != 1:
        raise ValueError(f"{page} must hold once each: {begin} and {end}")
    between = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    return between.sub(lambda _: f"{begin}\n\n{body}\n\n{end}", old)
