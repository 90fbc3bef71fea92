"""The progress of a run, shown in its process and noted in status.json, for those who look from elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from linnet.runs.errors import DiskFull
from linnet.runs.records import Row
from linnet.runs.status import FAILED, FINISHED, STOPPED, Status, write_status
from linnet.train.progress import Progress

EVERY = 2.0
"""Seconds between two notes."""


class Noted:
    """Shows progress by another object, and notes it once the run has claimed its folder."""

    def __init__(self, shown: Progress, folder: Path, launcher: str):
        self.shown, self.folder = shown, folder
        self.status, self.noted = Status(launcher=launcher), -math.inf
        self.has_begun = self.was_told_to_end = False
        self.position: dict[str, Any] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Within this, the folder is that of this process; at its end, note how the run has ended."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self.note(state=STOPPED)
            raise
        except Exception as error:
            # On a full disk this may fail as well, and the first error says more.
            with suppress(DiskFull):
                state = STOPPED if self.was_told_to_end else FAILED
                self.note(state=state, error=str(error) or repr(error))
            raise
        if self.has_begun:
            self.note(state=FINISHED)

    def telling(self, validated: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
        """Return `validated`, such that a run which it ends is noted as stopped: a pruned trial."""
        if validated is None:
            return None

        def tell(costs: Any) -> None:
            try:
                validated(costs)
            except Exception:
                self.was_told_to_end = True
                raise

        return tell

    def note(self, **changes: Any) -> None:
        self.status = replace(self.status, changed=time.time(), **self.position, **changes)
        self.noted = time.monotonic()
        write_status(self.folder, self.status)

    def say(self, line: str) -> None:
        self.shown.say(line)

    def part(self, name: str, done: int, total: int) -> None:
        self.shown.part(name, done, total)

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.has_begun, self.position = True, {"step": done}
        self.note(parameters=parameters, resumed_at=done, total=total)
        self.shown.begin(parameters, done, total)

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        known = loss if math.isfinite(loss) else None
        self.position = {"step": step, "tokens": tokens, "seconds": seconds, "loss": known}
        if time.monotonic() - self.noted >= EVERY:
            self.note()
        self.shown.step(step, tokens, seconds, loss, rate)

    def row(self, row: Row, speed: float) -> None:
        self.shown.row(row, speed)

    def end(self) -> None:
        self.shown.end()
