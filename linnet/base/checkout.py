"""The commit of the checkout from which this package is run."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


@cache
def loaded_commit() -> str:
    """Return the commit that the checkout had at the first call: that of the code, if this is soon called."""
    return commit()


def commit() -> str:
    """Return the commit of the checkout, with a + if files of the package differ; "" outside a checkout."""
    if not (PACKAGE.parent / ".git").exists():
        return ""
    name, changed = git("rev-parse", "--short", "HEAD"), git("status", "--porcelain", "--", PACKAGE.name)
    return f"{name}+" if changed else name


def git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(PACKAGE.parent), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()
