"""Progress of a run: a bar with speed and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, Protocol

from linnet.base.tables import short
from linnet.runs.records import Row


class Progress(Protocol):
    """What the training loop reports."""

    def say(self, line: str) -> None: ...
    def part(self, name: str, done: int, total: int) -> None: ...
    def begin(self, parameters: int, done: int, total: int | None) -> None: ...
    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None: ...
    def row(self, row: Row, speed: float) -> None: ...
    def end(self) -> None: ...


class Silent:
    """Prints nothing."""

    def say(self, line: str) -> None:
        pass

    def part(self, name: str, done: int, total: int) -> None:
        """Report how far a part of the work before training is."""

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        pass

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        pass

    def row(self, row: Row, speed: float) -> None:
        pass

    def end(self) -> None:
        pass


class Plain(Silent):
    """A line for each evaluation, and one every `every` seconds."""

    def __init__(self, every: float = 15.0, name: str = ""):
        self.every, self.name = every, f"{name}: " if name else ""
        self.total: int | None = None
        self.last_part, self.said_part = "", -math.inf

    def say(self, line: str) -> None:
        print(f"{self.name}{line}", flush=True)

    def part(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if name != self.last_part or now - self.said_part >= self.every or done == total:
            self.last_part, self.said_part = name, now
            self.say(f"{name}: {done:,} of {total:,}")

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.total, self.first, self.started = total, done, time.monotonic()
        self.said = self.started
        print(f"{self.name}{parameters:,} parameters, {steps_of(done, total)} steps done", flush=True)

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        now = time.monotonic()
        if now - self.said >= self.every:
            self.said = now
            left = time_left(step - self.first, step, self.total, now - self.started)
            speed = tokens / max(seconds, 1e-9)
            position = f"{self.name}step {steps_of(step, self.total)}"
            print(f"{position}  loss {loss:.4f}  {speed:,.0f} tokens/s  {left}", flush=True)

    def row(self, row: Row, speed: float) -> None:
        if row["split"] != "train":
            print(f"{self.name}{sentence(row)}  {speed:,.0f} tokens/s", flush=True)


class Bar(Silent):
    """A progress bar, drawn by rich."""

    def __init__(self, name: str = "", console: Any = None):
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import (
            Progress as RichProgress,
        )

        self.name, self.console = name, console or Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.bar = RichProgress(*columns, console=self.console, auto_refresh=False, speed_estimate_period=120)
        self.drawn = 0.0
        self.parts: dict[str, Any] = {}

    def say(self, line: str) -> None:
        self.console.print(f"{self.name} {line}".strip(), highlight=False, markup=False)

    def part(self, name: str, done: int, total: int) -> None:
        if name not in self.parts:
            self.parts[name] = self.bar.add_task(name, total=total, speed="")
            self.bar.start()
        self.bar.update(self.parts[name], completed=done, refresh=True)
        if done == total:
            self.bar.stop()

    def begin(self, parameters: int, done: int, total: int | None) -> None:
        self.task = self.bar.add_task(self.name or "training", total=total, completed=done, speed="")
        self.console.print(f"{self.name} {parameters:,} parameters".strip())
        self.bar.start()

    def step(self, step: int, tokens: int, seconds: float, loss: float, rate: float) -> None:
        speed = f"loss {loss:.3f}  {tokens / max(seconds, 1e-9):,.0f} tokens/s"
        self.bar.update(self.task, completed=step, speed=speed)
        # Drawing costs a millisecond; a step may cost less than ten.
        now = time.monotonic()
        if now - self.drawn >= 0.25:
            self.drawn = now
            self.bar.refresh()

    def row(self, row: Row, speed: float) -> None:
        if row["split"] != "train":
            self.console.print(sentence(row), highlight=False)

    def end(self) -> None:
        self.bar.stop()


def choose(name: str = "") -> Progress:
    """A bar on a terminal, plain lines elsewhere."""
    if not sys.stdout.isatty():
        return Plain(name=name)
    try:
        return Bar(name)
    except ImportError:
        return Plain(name=name)


def sentence(row: Row) -> str:
    numbers = "  ".join(f"{k} {short(v, 4)}" for k, v in row.items() if k not in ("step", "epoch", "split"))
    return f"epoch {row['epoch']}  step {row['step']}  {row['split']}: {numbers}"


def steps_of(step: int, total: int | None) -> str:
    return f"{step}/{total}" if total else str(step)


def time_left(done: int, step: int, total: int | None, seconds: float) -> str:
    if not total or not done:
        return ""
    left = int(seconds / done * (total - step))
    return f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
