"""The time that a run has spent, over all its sessions, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from linnet.train.context import Context


class Clock:
    """Counts the seconds of training and validation into the position of a run."""

    def __init__(self, context: Context):
        self.context = context
        self.before, self.started = context.here.spent, time.monotonic()

    def read(self) -> None:
        """All processes agree on the time if it decides something, although their clocks do not."""
        spent, fabric = self.before + time.monotonic() - self.started, self.context.fabric
        shared = fabric.world_size > 1 and self.context.config.loop.minutes
        self.context.here.spent = fabric.broadcast(spent) if shared else spent


@contextmanager
def stopping(fabric: Any) -> Iterator[Callable[[], bool]]:
    """Within this, the first Ctrl-C only makes the yielded function return True; the second one interrupts.

    So the run can finish its update and write a checkpoint. Of several processes, each would stop at another
    update, so there Ctrl-C interrupts at once.
    """
    asked = threading.Event()
    if fabric.world_size > 1 or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        print("\nCtrl-C: a checkpoint is written after this update; again: stop at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
