"""The one training loop, on Lightning Fabric.

    for each epoch:  for each update:  step;  now and then a row, a validation, a checkpoint
    in the end:      test the selected weights

The state of the network is carried from batch to batch and reset at the start of an epoch. A checkpoint has
everything that the next update depends on, so a run that was killed continues as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from linnet.base.memory import reuse_memory
from linnet.runs import checkpoints
from linnet.runs.charts import write_charts
from linnet.runs.config import RunConfig
from linnet.runs.errors import NotFinite, room_for
from linnet.runs.load import keep_assets
from linnet.runs.overwrite import refuse_occupied
from linnet.runs.records import (
    Row,
    claim,
    make_folder,
    open_run,
    read_result,
    refuse_other,
    write_details,
    write_result,
)
from linnet.runs.stored import StoredRun, stored_run
from linnet.tasks import TASKS
from linnet.tasks.base import Task
from linnet.tasks.evaluation import charts, collect
from linnet.tasks.results import Metrics
from linnet.train.advice import remedy
from linnet.train.clock import Clock, stopping
from linnet.train.context import Context
from linnet.train.fabric import agreed, make_fabric, threads_of
from linnet.train.noted import Noted
from linnet.train.progress import Progress, Silent
from linnet.train.recorder import Recorder
from linnet.train.schedules import stuck
from linnet.train.state import Store
from linnet.train.update import Updater

Validated = Callable[[Sequence[float]], None]
"""What is called after a validation and its checkpoint, with the costs of all validations so far."""


def train(
    config: RunConfig,
    folder: str | Path,
    progress: Progress | None = None,
    task: Task | None = None,
    validated: Validated | None = None,
    threads: int = 0,
    launcher: str = "",
) -> Row:
    """Make this run in this directory, or continue it; return its result.

    task        the task of another run: the data that it has read is not read again if this run has the same
    validated   is called in the first process after each validation, and first when a run is resumed. What
                it raises ends the run, whose files remain
    threads     the CPU threads of the run where another process knows them (0: see `threads_of`)
    launcher    what has started the run, for its status.json
    """
    fabric, folder = make_fabric(config.loop), Path(folder)
    refuse_other(folder, config)
    refuse_occupied(folder)
    stored = stored_run(config.loop) if fabric.is_global_zero else None
    if agreed(fabric, lambda: bool(stored and stored.bring_back(folder, config))):
        return agreed(fabric, lambda: read_result(folder))
    noted = Noted(progress or Silent(), folder, launcher)
    # Built before anything is written: a wrong name leaves no directory behind.
    run = Run(config, folder, fabric, noted, task, threads)
    run.store.check_source()
    run.validated, run.stored = noted.telling(validated), stored
    run.compute_files()
    with ExitStack() as stack:
        if fabric.is_global_zero:
            make_folder(folder)
            stack.enter_context(claim(folder))
            if stored:
                stack.enter_context(stored.sending(folder))
            stack.enter_context(noted.noting())
        fabric.barrier()
        return run.make()


class Run:
    """A run: epochs, validations and the test. `Updater` makes updates, `Store` saves and restores."""

    validated: Validated | None = None
    stored: StoredRun | None = None

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        fabric: Any,
        progress: Progress,
        task: Task | None = None,
        threads: int = 0,
    ):
        reuse_memory()
        torch.manual_seed(config.loop.seed)
        self.config, self.fabric = config, fabric
        make_task = task.with_settings if task else TASKS[config.task]
        self.task = make_task(config.data, config.model, config.loop.seed)
        if self.task.batches_per_epoch(1) is None and not (config.loop.steps or config.loop.minutes):
            raise ValueError(
                f"the batches of {config.task} never end; give the number of updates (--steps) or a time "
                "budget (--minutes)"
            )
        self.context = Context(config, folder, fabric, self.task)
        self.updater = Updater(self.context)
        torch.set_num_threads(threads or threads_of(config.loop, self.updater.model_size()))
        self.recorder = Recorder(self.context, progress)
        self.store = Store(self.context, self.updater, self.recorder)
        self.told = 0  # validations that `validated` knows
        if fabric.global_rank:
            # Each process draws other dropout masks; the weights are those of the first.
            torch.manual_seed(config.loop.seed + 1_000_003 * fabric.global_rank)

    def compute_files(self) -> None:
        """Compute what the task keeps beside the run; the other processes wait, and then read it."""
        folder, report = self.context.folder, self.recorder.progress.part
        if read_result(folder) is not None:
            return
        for turn in (True, False):
            if self.context.is_first is turn:
                with room_for(folder):
                    self.task.compute_files(folder, report)
            self.fabric.barrier()

    def make(self) -> Row:
        # Nothing is written before it is known that the run can continue in this directory.
        self.store.restore()
        result = agreed(self.fabric, self.known_result)
        folder = self.context.folder
        if self.context.is_first:
            open_run(folder, self.config)
            keep_assets(folder, self.task.assets())
        agreed(self.fabric, self.begin_stored)
        if result:
            return result
        self.store.forget_what_came_after()
        for line in self.task.notes():
            self.recorder.progress.say(line)
        size, done = self.updater.model_size(), self.context.here.step
        self.recorder.progress.begin(size, done, self.context.total_steps)
        self.clock = Clock(self.context)
        try:
            self.tell_validated()
            with stopping(self.fabric) as self.interrupted:
                while not self.finished():
                    self.train_epoch()
            return self.finish()
        finally:
            self.recorder.close()

    def begin_stored(self) -> None:
        """Copy the settings: a store that cannot be written says so now, and not after hours of training."""
        if self.stored:
            self.stored.send(self.context.folder)

    def known_result(self) -> Row | None:
        """Return the result of a run that is finished."""
        result = read_result(self.context.folder)
        if not result or not self.finished() or result["step"] != self.context.here.step:
            return None
        self.recorder.rows.check_end(self.store.row_lengths, self.recorder.row("test", result["test"]))
        return result

    def finished(self) -> bool:
        return bool(self.why_finished())

    def why_finished(self) -> str:
        """Return why the run ends here: its planned length, a time budget, or validations; "": it goes on."""
        loop, here = self.config.loop, self.context.here
        if here.epoch > self.context.epochs or bool(loop.steps and here.step >= loop.steps):
            return "length"
        if self.context.share_spent >= 1:
            return "minutes"
        if self.good_enough():
            return "good enough"
        return "patience" if loop.patience and stuck(here.history, loop.patience) else ""

    def good_enough(self) -> bool:
        loop, history = self.config.loop, self.context.here.history
        if not history:
            return False
        value = self.task.selected_by(self.task.data).value(history[-1])
        return value < loop.stop_below or bool(loop.stop_above and value > loop.stop_above)

    # -------------------------------------------------------------------------------- an epoch

    def train_epoch(self) -> None:
        """Train for the rest of this epoch, or until the run is finished."""
        here = self.context.here
        self.updater.stepper.train()
        batches = self.task.batches("train", here.epoch, here.batch)
        for group in groups(batches, self.config.optimiser.accumulate):
            self.update(group)
            if self.finished():
                return
            self.stop_if_interrupted()
        if not self.context.evaluate_every and here.evaluated != here.step:
            self.evaluate()
        here.epoch, here.batch, self.updater.carry = here.epoch + 1, 0, None
        self.store.save()
        self.tell_validated()
        self.stop_if_interrupted()

    def stop_if_interrupted(self) -> None:
        """After Ctrl-C, end with a checkpoint of this update."""
        if self.interrupted():
            if self.store.saved_step != self.context.here.step:
                self.store.save()
            raise KeyboardInterrupt

    def update(self, group: list[Any]) -> None:
        """Make an update; then a row, a validation and a checkpoint if it is time for them."""
        try:
            made = self.updater.update(group)
        except NotFinite as error:
            raise NotFinite(f"{error}. {remedy(self.config, self.context.folder)}") from None
        here = self.context.here
        self.clock.read()
        self.recorder.progress.step(here.step, here.tokens, here.seconds, made.loss, made.rate)
        if here.step % self.config.loop.log_every == 0:
            self.recorder.record("train", self.updater.take_sums())
        if self.context.is_validation_due:
            self.evaluate()
            self.store.save()
            self.tell_validated()
        elif self.store.is_due():
            self.store.save()

    # ------------------------------------------------------------------------------ evaluation

    def evaluate(self) -> None:
        """Validate, keep the weights if they are the best, and choose the optimiser that follows."""
        here, selects = self.context.here, self.task.selected_by(self.task.data)
        with self.updater.averaged():
            figures = self.measure("valid").compute()
            self.refuse_nonsense("validation", figures)
            here.history.append(selects.cost(figures))
            self.clock.read()
            here.evaluated, here.evaluated_at = here.step, here.spent
            self.recorder.record("valid", figures)
            # Of several equally good validations, the first is the best.
            if (
                self.config.loop.select == "last"
                or here.history.index(min(here.history)) == len(here.history) - 1
            ):
                self.store.keep_best(figures)
        self.updater.choose_optimiser()

    def tell_validated(self) -> None:
        """Copy the run to its store and call `validated`, if there was a validation since the last time."""
        costs = self.context.here.history
        if len(costs) > self.told:
            self.told = len(costs)
            agreed(self.fabric, lambda: self.after_validation(tuple(costs)))

    def after_validation(self, costs: Sequence[float]) -> None:
        if self.stored:
            self.stored.try_to_send(self.context.folder)
        if self.validated:
            self.validated(costs)

    def refuse_nonsense(self, split: str, figures: Row) -> None:
        """Raise if the loss is not finite: after NaN in the weights, an accuracy still is."""
        for name in ("loss", self.task.selected_by(self.task.data).name):
            if not math.isfinite(figures[name]):
                raise NotFinite(
                    f"the {split} {name} is {figures[name]:g} after step {self.context.here.step}. "
                    f"{remedy(self.config, self.context.folder)}"
                )

    def measure(self, split: str) -> Metrics:
        """Evaluate the model; each process evaluates its share."""
        return collect(self.task, self.updater.model, split, self.fabric)

    def finish(self) -> Row:
        """Validate if that is still to be done, and test the selected weights."""
        here, folder = self.context.here, self.context.folder
        if here.evaluated != here.step:
            self.evaluate()
            self.store.save()
            self.tell_validated()
        path, manifest = agreed(self.fabric, lambda: checkpoints.must_find(folder, "best"))
        checkpoints.load_weights(path, self.updater.model)
        metrics = self.measure("test")
        test = metrics.compute()
        self.refuse_nonsense("test", test)
        self.recorder.record("test", test)
        result = self.result(manifest, test)
        if self.context.is_first:
            write_details(folder, self.task.details("test", metrics))
            write_charts(folder, charts(self.task, self.updater.model, "test", metrics))
            found = self.task.baselines("test", test)
            result["baselines"] = [dict(each._asdict()) for each in found]
            write_result(folder, result)
        return result

    def result(self, best: Row, test: Row) -> Row:
        here = self.context.here
        return {
            "step": here.step,
            "epoch": here.last_epoch,
            "tokens": here.tokens,
            "parameters": self.updater.model_size(),
            "best_step": best["step"],
            "stopped_by": self.why_finished(),
            "planned_steps": self.context.total_steps,
            "valid": best["metrics"],
            "test": test,
            "seconds": here.seconds,
            "spent": here.spent,
            "tokens_per_second": here.tokens / max(here.seconds, 1e-9),
        }


def groups(batches: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield `size` batches at a time; the last group may have fewer."""
    source = iter(batches)
    while group := list(islice(source, size)):
        yield group
