"""A case of tools.compat that needs no project: one contestant works, one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

CONTESTANTS = {"original": 1, "good": 1, "bad": 0}


def check(rnn: int, folder: Path) -> None:
    assert folder.is_dir()
    assert 1 / rnn == 1


def work(rnn: int) -> Callable[[], object]:
    return lambda: time.sleep(0.002 / rnn)
