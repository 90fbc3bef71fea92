"""Names that all languages allow."""

from __future__ import annotations

import re
from functools import cache

from linnet.deploy.source.folder import template


@cache
def reserved() -> frozenset[str]:
    """Names that a variable must not have: words of the languages, and names of the templates."""
    return frozenset(template("reserved.txt").split())


def identifier(path: str) -> str:
    name = re.sub(r"\W+", "_", path, flags=re.ASCII)
    name = f"part{name}" if name[0].isdigit() else name
    return f"{name}_" if name in reserved() else name
