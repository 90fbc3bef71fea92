"""The table of a comparison: live on a terminal, plain elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from linnet.analysis.report import figures_of, heading
from linnet.analysis.runs import Recorded
from linnet.base.tables import text_table
from linnet.runs.records import Row
from linnet.train.progress import Plain, Progress, Silent, time_left

COLUMNS = ("unit", "parameters", "steps", "tokens/s", "train loss", "valid loss", "test loss", "left")


def table_of(runs: Sequence[Recorded]) -> str:
    return text_table([heading(runs), *(figures_of(run) for run in runs)])


class Board:
    """All runs of a comparison at a glance."""

    def __init__(self, names: Sequence[str]):
        self.rows: dict[str, dict[str, str]] = {name: {"unit": name} for name in names}
        self.live: Any = None
        self.drawn = 0.0

    def __enter__(self) -> Board:
        if sys.stdout.isatty():
            try:
                from rich.live import Live
            except ImportError:
                return self
            self.live = Live(self.table(), auto_refresh=False)
            self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.live:
            self.draw(now=True)
            self.live.stop()

    def table(self) -> Any:
        from rich.table import Table

        made = Table(*COLUMNS)
        for row in self.rows.values():
            made.add_row(*(row.get(name, "") for name in COLUMNS))
        return made

    def draw(self, now: bool = False) -> None:
        moment = time.monotonic()
        if self.live and (now or moment - self.drawn >= 0.25):
            self.drawn = moment
            self.live.update(self.table(), refresh=True)

    def progress(self, name: str) -> Progress:
        return Line(self, self.rows[name]) if self.live else Plain(name=name)

    def finished(self, name: str, result: Row) -> None:
        self.rows[name] |= {
            "parameters": f"{result['parameters']:,}",
            "steps": str(result["step"]),
            "tokens/s": f"{result['tokens_per_second']:,.0f}",
            "valid loss": f"{result['valid']['loss']:.4g}",
            "test loss": f"{result['test']['loss']:.4g}",
            "left": "done",
        }
        self.draw(now=True)


class Line(Silent):
    """A run as a line of the board."""

    def __init__(self, board: Board, cells: dict[str, str]):
        self.board, self.cells = board, cells

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.first, self.total, self.started = done, total, time.monotonic()
        self.cells["parameters"] = f"{parameters:,}"

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        left = time_left(step - self.first, step, self.total, time.monotonic() - self.started)
        speed = f"{tokens / max(seconds, 1e-9):,.0f}"
        self.cells |= {"steps": f"{step}/{self.total or '?'}", "tokens/s": speed, "left": left}
        self.cells["train loss"] = f"{loss:.4g}"
        self.board.draw()

    def row(self, row: Row, speed: float) -> None:
        if row["split"] == "valid":
            self.cells["valid loss"] = f"{row['loss']:.4g}"
