"""The overhead of the training loop over the model that it trains.

The same model is trained on the same windows by the training loop, with its records and checks, and by a
minimal loop: forward, backward, gradient clipping and the optimiser's step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import Book, Row
from benchmarks.settings import Settings
from benchmarks.targets import judged, target_of
from linnet.bench.timing import Call, Times, race
from linnet.data.batches import Window
from linnet.runs.config import RunConfig, override
from linnet.runs.records import open_run
from linnet.train.fabric import make_fabric
from linnet.train.loop import Run
from linnet.train.progress import Silent

TO = "forward, backward and step"
UPDATES = 5  # updates in one call; the loop writes one row of training in each call


def measure(settings: Settings, book: Book) -> list[Row]:
    rows: list[Row] = []
    for unit in (unit for unit in ("sru", "lstm", "scrn") if unit in settings.units):
        with tempfile.TemporaryDirectory() as folder:
            builders = {"loop": partial(training_loop, unit, Path(folder)), TO: partial(minimal_loop, unit)}
            times = race(builders, settings.rounds, settings.threads, settings.seconds, book.say)
        rows += book.add(*(row(unit, name, times, settings) for name in times))
    return rows


def config_of(unit: str) -> RunConfig:
    chosen = {"unit": unit, "embedding_size": 128, "hidden_size": 256, "num_layers": 2, "clip": 1.0}
    return override(RunConfig(), {**chosen, "optimiser": "adam", "lr": 0.001, "log_every": UPDATES})


def run_of(unit: str, folder: Path) -> Run:
    config = config_of(unit)
    open_run(folder, config)
    return Run(config, folder, make_fabric(config.loop), Silent())


def training_loop(unit: str, folder: Path) -> Call:
    run = run_of(unit, folder)
    run.updater.stepper.train()
    batches = windows_of(run)

    def call() -> None:
        for _ in range(UPDATES):
            run.update([next(batches)])

    return call


def windows_of(run: Any) -> Iterator[Window]:
    """Yield the batches of the first epoch in an endless cycle; the state is carried on."""
    return cycle(run.task.batches("train", 1))


def minimal_loop(unit: str) -> Call:
    with tempfile.TemporaryDirectory() as folder:
        run = run_of(unit, Path(folder))
    model: Any = run.updater.model.train()
    batches, carry = windows_of(run), None
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001)

    def call() -> None:
        nonlocal carry
        for _ in range(UPDATES):
            window = next(batches)
            parts = model.loss(window.inputs, window.targets, carry)
            carry = parts.state
            parts.objective.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()

    return call


def row(unit: str, name: str, times: dict[str, Times], settings: Settings) -> dict[str, Any]:
    data, model = config_of(unit).data, config_of(unit).model
    known: dict[str, Any] = {"what": "loop", "unit": unit, "backend": name, "mode": "training"}
    known |= {"L": data.length, "B": data.batch, "d": model.hidden_size, **times[name].columns()}
    if name == TO or TO not in times:
        return known
    shape = settings.growing._replace(L=data.length, B=data.batch, d=model.hidden_size)
    ratio = times[name].p50 / times[TO].p50
    return {**known, **judged(ratio, TO, target_of(unit, "training", shape, TO))}
