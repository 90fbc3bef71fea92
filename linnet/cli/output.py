"""What commands print."""

from __future__ import annotations

import os
from collections.abc import Mapping

from linnet.runs.untrusted import harmless


def is_first_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def say(*words: object) -> None:
    """Print, in the first process only."""
    if is_first_process():
        print(*map(harmless, words), flush=True)


def result_line(split: str, numbers: Mapping[str, float]) -> str:
    return f"{split}: " + "  ".join(f"{name} {value:.5g}" for name, value in numbers.items())
