"""Read a trained run back: its settings, its task, its model. The data set it was trained on is not needed.

run = linnet.load("runs/kjv-sru")
run.predict(["In the beginning"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from linnet.data.errors import DataError, MissingDataError
from linnet.runs import checkpoints
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Mismatch, room_for
from linnet.runs.ready import local_run
from linnet.runs.records import read_config, write_atomically
from linnet.runs.remote import is_url
from linnet.runs.stored import fetch
from linnet.runs.stream import RunStream
from linnet.runs.untrusted import LARGE, check, has_file, read_bytes
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.tasks.evaluation import collect, evaluate
from linnet.tasks.results import Section


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A trained model with everything that is needed to use it."""

    folder: Path
    config: RunConfig
    task: Task
    model: nn.Module
    step: int  # the update after which these weights were saved

    def __repr__(self) -> str:
        size = sum(weight.numel() for weight in self.model.parameters())
        unit = self.task.unit_name(self.config.model)
        what = f"{self.config.task} with {unit}, {size:,} parameters, update {self.step:,}"
        return f"TrainedRun({str(self.folder)!r}: {what})"

    def predict(self, raw: Sequence[Any] | str, **options: Any) -> list[Any]:
        """Return one answer for each input; the options are those of the task's `predict`."""
        return self.task.predict(self.model, [raw] if isinstance(raw, str) else raw, **options)

    def stream(self) -> RunStream:
        """Return a stream of one series: `push` reads one step and returns the answer after it."""
        step = self.task.stream_step(self.model)
        if step is None:
            raise ValueError(
                f"{self.folder} is a run of {self.config.task!r}, which has no stream of numbers; `predict` "
                "answers whole inputs, and linnet.stream(rnn) steps a stack of units"
            )
        return RunStream(step)

    def evaluate(self, split: str = "test", **data: Any) -> dict[str, float]:
        """Return the figures on a split; `data` changes data settings: evaluate("all", path="a.txt")."""
        return evaluate(self.on(**data).task, self.model, split)

    def examine(self, split: str = "test", **data: Any) -> tuple[dict[str, float], list[Section]]:
        """Return the figures on a split, and further tables such as a confusion matrix."""
        task = self.on(**data).task
        metrics = collect(task, self.model, split)
        return metrics.compute(), task.details(split, metrics)

    def on(self, **data: Any) -> TrainedRun:
        """Return the same model for other data: on(path="other.txt"). The vocabulary is that of the run."""
        if not data:
            return self
        config = override(self.config, self.task.implied(data))
        task = type(self.task)(config.data, config.model, config.loop.seed, self.task.assets())
        return TrainedRun(self.folder, config, task, self.model, self.step)

    @property
    def vocabulary(self) -> Any:
        """The vocabulary, where the task has one."""
        return getattr(self.task, "vocabulary", None)


def load(folder: str | Path, checkpoint: str = "best") -> TrainedRun:
    """Return the trained run in a directory, in a store by its URL, or of the package: "ready:NAME".

    checkpoint   "best" or "last"

    The directory may come from a stranger: nothing in it is executed, and what was changed after it was
    written is refused with a `Damaged` or a `Mismatch`.
    """
    folder = fetch(str(folder), checkpoint) if is_url(folder) else local_run(folder)
    config = read_config(folder)
    found = checkpoints.must_find(folder, checkpoint)
    task = task_of(folder, config)
    return TrainedRun(
        folder, config, task, checkpoints.load_model(found, config, task), found.manifest["step"]
    )


def task_of(folder: Path, config: RunConfig) -> Task:
    """Return the task of a run with the files that it kept."""
    cls = TASKS[config.task]
    assets = {name: read_asset(folder / name) for name in cls.files_kept(config.model)}
    try:
        return cls(config.data, config.model, config.loop.seed, assets)
    except MissingDataError:
        raise
    except DataError as error:
        raise Damaged(f"{folder}: {error}") from None


def read_asset(path: Path) -> bytes:
    content = read_bytes(path, LARGE)
    check(content is not None, path, "it is missing")
    return content or b""


def keep_assets(folder: Path, assets: Mapping[str, bytes]) -> None:
    """Write the files of a task into its run directory, or check that existing ones are the same."""
    for name, content in assets.items():
        if not has_file(folder / name):
            with room_for(folder / name):
                write_atomically(folder / name, content)
        elif read_asset(folder / name) != content:
            raise Mismatch(
                f"{folder / name} differs from what the data gives now: the data or the options that read it "
                "have changed since the run began. Give another --run-dir, or --overwrite to start over"
            )
