"""What a run writes while it trains: rows of metrics, its speed, events for TensorBoard."""

from __future__ import annotations

import json
from typing import Any

from linnet.runs.errors import missing
from linnet.runs.records import Row, Rows, append
from linnet.runs.untrusted import has_folder
from linnet.train.context import Context
from linnet.train.progress import Progress, Silent


class Recorder:
    """Writes in the first process only."""

    def __init__(self, context: Context, progress: Progress):
        self.context = context
        self.progress = progress if context.is_first else Silent()
        self.rows = Rows(context.folder)
        self.writer: Any = None

    def record(self, split: str, numbers: Row) -> None:
        """Add a row of metrics."""
        if not self.context.is_first:
            return
        here, row = self.context.here, self.row(split, numbers)
        self.rows.add(row)
        self.record_speed()
        if self.context.config.loop.tensorboard:
            self.add_events(split, numbers)
        self.progress.row(row, here.tokens / max(here.seconds, 1e-9))

    def row(self, split: str, numbers: Row) -> Row:
        here = self.context.here
        return {"step": here.step, "epoch": here.epoch, "split": split, **numbers}

    def record_speed(self, **more: bool) -> None:
        here = self.context.here
        speed = {"step": here.step, "tokens": here.tokens, "seconds": here.seconds, **more}
        append(self.context.folder / "speed.jsonl", json.dumps(speed) + "\n")

    def add_events(self, split: str, numbers: Row) -> None:
        step = self.context.here.step
        if self.writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise missing("tensorboard", error) from None
            has_folder(self.context.folder / "events")
            self.writer = SummaryWriter(str(self.context.folder / "events"), purge_step=step)
        for name, value in numbers.items():
            self.writer.add_scalar(f"{split}/{name}", value, step)
        self.writer.flush()

    def close(self) -> None:
        self.progress.end()
        if self.writer is not None:
            self.writer.close()
