"""The progress of a comparison: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from linnet.launch.job import Outcome
from linnet.runs.records import Row
from linnet.tasks.results import Figure
from linnet.train.progress import Plain, Progress, Silent, time_left


class Board:
    """All runs of a comparison.

    figure      the figure of an evaluation that the table shows
    validated   called after each validation
    stepped     called whenever the position of a run is shown
    """

    def __init__(
        self,
        names: Sequence[str],
        figure: Figure,
        validated: Callable[[], None] = lambda: None,
        stepped: Callable[[], None] = lambda: None,
    ):
        self.figure, self.validated, self.stepped = figure, validated, stepped
        self.columns = ("unit", "updates", "train loss", self.valid, self.test, "parameters", "left")
        self.rows: dict[str, dict[str, str]] = {name: {"unit": name} for name in names}
        self.live: Any = None
        self.drawn = 0.0

    @property
    def valid(self) -> str:
        return f"valid {self.figure.label}"

    @property
    def test(self) -> str:
        return f"test {self.figure.label}"

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
            self.draw(force=True)
            self.live.stop()

    def table(self) -> Any:
        from rich.table import Table

        table = Table(*self.columns)
        for row in self.rows.values():
            table.add_row(*(row.get(name, "") for name in self.columns))
        return table

    def draw(self, force: bool = False) -> None:
        """Redraw the table, at most four times a second unless `force`."""
        now = time.monotonic()
        if self.live and (force or now - self.drawn >= 0.25):
            self.drawn = now
            self.live.update(self.table(), refresh=True)

    def progress(self, name: str) -> Progress:
        return BoardRow(self, self.rows[name]) if self.live else BoardLines(self, name)

    def ended(self, outcome: Outcome) -> None:
        """Show the result of a run, or that it has none."""
        cells, result = self.rows[outcome.job.folder.name], outcome.result
        if result is None:
            cells["left"] = "failed"
        else:
            cells |= {
                "parameters": f"{result['parameters']:,}",
                "updates": str(result["step"]),
                self.valid: self.figure.show(result["valid"][self.figure.name]),
                self.test: self.figure.show(result["test"][self.figure.name]),
                "left": "done",
            }
        self.draw(force=True)


class BoardRow(Silent):
    """Shows the progress of a run as a row of the board."""

    def __init__(self, board: Board, cells: dict[str, str]):
        self.board, self.cells = board, cells

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.first, self.total, self.started = done, total, time.monotonic()
        self.cells["parameters"] = f"{parameters:,}"

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        left = time_left(step - self.first, step, self.total, time.monotonic() - self.started)
        self.cells |= {"updates": f"{step}/{self.total or '?'}", "left": left}
        self.cells["train loss"] = f"{loss:.4g}"
        self.board.draw()
        self.board.stepped()

    def row(self, row: Row, speed: float) -> None:
        if row["split"] == "valid":
            self.cells[self.board.valid] = self.board.figure.show(row[self.board.figure.name])
            self.board.validated()


class BoardLines(Plain):
    """Prints the progress of a run as lines, if the output is not a terminal."""

    def __init__(self, board: Board, name: str):
        super().__init__(name=name)
        self.board = board

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        super().step(step, tokens, seconds, loss, rate)
        self.board.stepped()

    def row(self, row: Row, speed: float) -> None:
        super().row(row, speed)
        if row["split"] == "valid":
            self.board.validated()
