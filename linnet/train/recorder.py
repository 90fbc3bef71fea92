"""What a run writes while it trains: rows of metrics, its speed, and the same for loggers."""

from __future__ import annotations

import json
from typing import Any

from linnet.runs.config import to_dict
from linnet.runs.records import Row, Rows, append
from linnet.runs.untrusted import has_folder
from linnet.train.context import Context
from linnet.train.loggers import check_installed, close_logger, make_logger
from linnet.train.progress import Progress, Silent


class Recorder:
    """Writes in the first process only."""

    def __init__(self, context: Context, progress: Progress):
        self.context = context
        self.progress = progress if context.is_first else Silent()
        self.rows = Rows(context.folder)
        self.loggers: dict[str, Any] | None = None
        for name in context.config.loop.logger:
            check_installed(name)

    def record(self, split: str, numbers: Row) -> None:
        """Add a row of metrics."""
        if not self.context.is_first:
            return
        here, row = self.context.here, self.row(split, numbers)
        self.rows.add(row)
        self.record_speed()
        self.log(split, numbers)
        self.progress.row(row, here.tokens / max(here.seconds, 1e-9))

    def row(self, split: str, numbers: Row) -> Row:
        here = self.context.here
        return {"step": here.step, "epoch": here.last_epoch, "split": split, **numbers}

    def record_speed(self, **more: bool) -> None:
        here = self.context.here
        speed = {"step": here.step, "tokens": here.tokens, "seconds": here.seconds, **more}
        append(self.context.folder / "speed.jsonl", json.dumps(speed) + "\n")

    def log(self, split: str, numbers: Row) -> None:
        if self.loggers is None:
            self.loggers = self.make_loggers()
        for logger in self.loggers.values():
            logger.log_metrics({f"{split}/{name}": value for name, value in numbers.items()}, self.step)
            logger.save()

    def make_loggers(self) -> dict[str, Any]:
        config, folder = self.context.config, self.context.folder
        if config.loop.logger:
            has_folder(folder / "events")
        return {name: make_logger(name, folder, self.step, to_dict(config)) for name in config.loop.logger}

    @property
    def step(self) -> int:
        return self.context.here.step

    def close(self) -> None:
        self.progress.end()
        for name, logger in (self.loggers or {}).items():
            close_logger(name, logger)
