"""The one training loop, on Lightning Fabric.

    for each epoch:  for each update:  step;  now and then a row, a validation, a checkpoint
    in the end:      test the selected weights

The state of the network is carried from batch to batch and forgotten at the start of an epoch. Everything the
next update depends on is in a checkpoint, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from linnet.runs import checkpoints
from linnet.runs.checkpoints import Checkpoint
from linnet.runs.config import LoopConfig, RunConfig, to_dict
from linnet.runs.errors import Damaged, Mismatch, NotFinite, Stopped, log, missing
from linnet.runs.load import keep_assets
from linnet.runs.records import (
    Row,
    Rows,
    append,
    claim,
    make_folder,
    open_run,
    read_result,
    refuse_other,
    write_result,
)
from linnet.runs.untrusted import (
    LARGE,
    check,
    check_count,
    check_finite,
    check_object,
    harmless,
    has_folder,
    read_bytes,
)
from linnet.tasks import TASKS
from linnet.tasks.evaluation import evaluate
from linnet.train import optimisers
from linnet.train.advice import advice
from linnet.train.progress import Progress, Silent
from linnet.train.schedules import Place, factor, stuck

MEANING = ("vocabulary", "weights")
"""What must agree for the weights of one run to mean something in another."""
LOST = "Restore what is damaged from a copy, or give --overwrite to delete the run and start over"
"""What to do with a run that has no checkpoint to go on from."""
CHECKPOINT_WRITTEN = b'"checkpoint": true'


def train(config: RunConfig, folder: str | Path, progress: Progress | None = None) -> Row:
    """Make this run in this directory, or go on with it; its figures."""
    fabric, folder = make_fabric(config.loop), Path(folder)
    refuse_other(folder, config)
    # Built before anything is written: a wrong name leaves no directory behind.
    run = Run(config, folder, fabric, progress or Silent())
    run.check_source()
    with ExitStack() as stack:
        if fabric.is_global_zero:
            make_folder(folder)
            stack.enter_context(claim(folder))
        fabric.barrier()
        return run.make()


def make_fabric(settings: LoopConfig) -> Any:
    """One process, or those that torchrun has started."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise missing("lightning-fabric", error) from None
    refuse_half_on_cpu(settings)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    world, local = (int(os.environ.get(name, 1)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    fabric = Fabric(
        accelerator=settings.device,
        devices=local,
        num_nodes=max(world // local, 1),
        strategy="ddp" if world > 1 else "auto",
        precision=settings.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    if world > 1:
        leave_group_at_exit()
    if fabric.device.type == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    return fabric


@cache
def leave_group_at_exit() -> None:
    """gloo's threads must end before the process does: else it may abort although its run is complete."""
    atexit.register(leave_group)


def leave_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def refuse_half_on_cpu(settings: LoopConfig) -> None:
    """Fabric would take bf16-mixed instead, and the run would not be what its settings say."""
    on_cpu = settings.device == "cpu" or (settings.device == "auto" and not torch.accelerator.is_available())
    if settings.precision == "16-mixed" and on_cpu:
        raise ValueError("precision 16-mixed needs a GPU and there is none; on a CPU take bf16-mixed")


@dataclass
class Position:
    """How far a run is. Epochs count from 1, `batch` is the next one of its epoch."""

    epoch: int = 1
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    evaluated: int = -1
    history: list[float] = field(default_factory=list)


class Given:
    """What a step reads, in an object of its own: what wraps a model would take tuples apart."""

    def __init__(self, batch: Any, carry: Any):
        self.batch, self.carry = batch, carry


class Found:
    """What a step finds, likewise: a state that was converted to another precision would not fit any more."""

    def __init__(self, result: Any):
        self.total, self.count, self.tokens = float(result.total), int(result.count), int(result.tokens)
        self.extra, self.carry = result.extra, result.carry
        self.length = 0.0  # counted targets of each sequence


class Stepper(nn.Module):
    """A model and its task as one module: whatever wraps it, DDP or autocast, sees one forward."""

    def __init__(self, task: Any, model: nn.Module):
        super().__init__()
        self.task, self.model = task, model

    def forward(self, given: Given) -> tuple[Tensor, Found]:
        result = self.task.step(self.model, given.batch, given.carry)
        return result.objective, Found(result)


class Run:
    """A run under way."""

    def __init__(self, config: RunConfig, folder: Path, fabric: Any, progress: Progress):
        self.config, self.folder, self.fabric = config, folder, fabric
        self.progress = progress if fabric.is_global_zero else Silent()
        self.rows, self.here, self.carry = Rows(folder), Position(), None
        self.sums: dict[str, float] = {}
        torch.manual_seed(config.loop.seed)
        self.task = TASKS[config.task](config.data, config.model, config.loop.seed)
        if self.task.batches_per_epoch(1) is None and not config.loop.steps:
            raise ValueError(f"{config.task} has no end; give the number of updates (--steps)")
        self.model = self.task.build()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.stepper = fabric.setup_module(Stepper(self.task, self.model))
        self.writer: Any = None
        self.stage = ""
        self.optimiser: Any = None
        self.choose_optimiser()
        ema = config.optimiser
        self.average = optimisers.Average(self.parameters, ema.ema, ema.ema_warmup) if ema.ema else None
        self.saved, self.row_lengths = (0, time.monotonic()), [0, 0]
        # Of the manifest of the best checkpoint, by which the last one knows it.
        self.best_seal: str | None = None
        if fabric.global_rank:
            # Each process drops other units; the weights are those of the first.
            torch.manual_seed(config.loop.seed + 1_000_003 * fabric.global_rank)

    def make(self) -> Row:
        # Nothing is written before it is known that the directory can be gone on with.
        self.restore()
        result = self.agreed(self.known_result)
        if self.fabric.is_global_zero:
            open_run(self.folder, self.config)
            keep_assets(self.folder, self.task.assets())
        if result:
            return result
        self.forget_what_came_after()
        self.progress.begin(self.model_size(), self.here.step, self.total_steps())
        try:
            while not self.finished():
                self.train_epoch()
            return self.finish()
        finally:
            self.progress.end()
            if self.writer is not None:
                self.writer.close()

    def known_result(self) -> Row | None:
        """The figures, where the run came to its end."""
        result = read_result(self.folder)
        if not result or not self.finished() or result["step"] != self.here.step:
            return None
        self.rows.check_end(self.row_lengths, self.row("test", result["test"]))
        return result

    def agreed(self, decide: Callable[[], Any]) -> Any:
        """What the first process decides or is stopped by, in every process."""
        outcome: Any = None
        if self.fabric.is_global_zero:
            try:
                outcome = decide()
            except Stopped as error:
                outcome = error
        outcome = self.fabric.broadcast(outcome) if self.fabric.world_size > 1 else outcome
        if isinstance(outcome, Stopped):
            raise outcome
        return outcome

    def forget_what_came_after(self) -> None:
        """Rows that were written after the checkpoint will be written again."""
        if self.fabric.is_global_zero:
            (self.folder / "result.json").unlink(missing_ok=True)
            self.rows.cut(self.row_lengths)

    def finished(self) -> bool:
        loop, here = self.config.loop, self.here
        enough = here.epoch > loop.epochs or bool(loop.steps and here.step >= loop.steps)
        return enough or self.good_enough() or bool(loop.patience and stuck(here.history, loop.patience))

    def good_enough(self) -> bool:
        loop, history = self.config.loop, self.here.history
        if not history:
            return False
        value = self.task.selects.value(history[-1])
        return value < loop.stop_below or bool(loop.stop_above and value > loop.stop_above)

    # -------------------------------------------------------------------------------- an epoch

    def train_epoch(self) -> None:
        """The rest of this epoch, or as much of it as is still to be done."""
        here = self.here
        self.stepper.train()
        batches = self.task.batches("train", here.epoch, here.batch)
        for group in groups(batches, self.config.optimiser.accumulate):
            self.update(group)
            self.now_and_then()
            if self.finished():
                return
        if not self.config.loop.evaluate_every:
            self.evaluate()
        here.epoch, here.batch, self.carry = here.epoch + 1, 0, None
        self.save()

    def now_and_then(self) -> None:
        loop, step = self.config.loop, self.here.step
        if step % loop.log_every == 0:
            self.log()
        if loop.evaluate_every and step % loop.evaluate_every == 0:
            self.evaluate()
            self.save()
        elif self.checkpoint_is_due():
            self.save()

    def checkpoint_is_due(self) -> bool:
        loop, (step, when) = self.config.loop, self.saved
        by_steps = bool(loop.checkpoint_steps) and self.here.step - step >= loop.checkpoint_steps
        by_time = bool(loop.checkpoint_seconds) and time.monotonic() - when >= loop.checkpoint_seconds
        # All processes must agree, and their clocks do not.
        return (
            self.fabric.broadcast(by_steps or by_time) if self.fabric.world_size > 1 else by_steps or by_time
        )

    # ------------------------------------------------------------------------------- an update

    def update(self, group: list[Any]) -> None:
        """One step of the optimiser, by the mean of the gradients of a few batches."""
        started = time.perf_counter()
        steps = [self.backward(batch, len(group), last=batch is group[-1]) for batch in group]
        norm = self.clip()
        loss = sum(step.total for step in steps) / max(sum(step.count for step in steps), 1)
        self.refuse_nonsense(loss, norm)
        rate = self.rate(sum(step.length for step in steps) / len(steps))
        optimisers.set_rate(self.optimiser, rate)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.here.step += 1
        if self.average:
            self.average.update(self.here.step)
        self.advance(len(group), sum(step.tokens for step in steps), time.perf_counter() - started)
        self.sums |= {"lr": rate, "gradient_norm": norm}
        self.progress.step(self.here.step, self.here.tokens, self.here.seconds, loss, rate)

    def backward(self, batch: Any, size: int, last: bool) -> Found:
        """Add a batch's gradient; what was found."""
        shared = self.fabric.world_size > 1
        if shared:
            batch = batch.columns(self.fabric.global_rank, self.fabric.world_size)
        given = Given(batch.to(self.fabric.device), self.carry)
        with self.fabric.no_backward_sync(self.stepper, enabled=not last) if shared else nullcontext():
            objective, found = self.stepper(given)
            self.carry = found.carry
            found.length = found.count / len(batch)
            over = found.length if self.config.optimiser.loss_over == "sequences" else 1.0
            self.fabric.backward(objective * (over * self.weight(found.count) / size))
        for name, value in {"nll": found.total, "count": found.count, **found.extra}.items():
            self.sums[name] = self.sums.get(name, 0) + float(value)
        self.sums["batches"] = self.sums.get("batches", 0) + 1
        return found

    def weight(self, count: int) -> float:
        """Processes with more targets weigh more: their mean is then that of one process."""
        if self.fabric.world_size == 1:
            return 1.0
        total = self.fabric.all_reduce(torch.tensor(float(count)), reduce_op="sum")
        return count * self.fabric.world_size / max(float(total), 1.0)

    def clip(self) -> float:
        most = self.config.optimiser.clip
        if not most:
            self.fabric.strategy.precision.unscale_gradients(self.optimiser.optimizer)
            return float(optimisers.gradient_norm(self.parameters))
        return float(
            self.fabric.clip_gradients(
                self.stepper, self.optimiser, max_norm=most, norm_type=2.0, error_if_nonfinite=False
            )
        )

    def refuse_nonsense(self, loss: float, norm: float) -> None:
        # In 16 bits a gradient overflows now and then, and its scaler deals with that.
        if math.isfinite(loss) and (math.isfinite(norm) or self.config.loop.precision == "16-mixed"):
            return
        raise NotFinite(
            f"the loss is {loss:g} and the norm of the gradient {norm:g} at step {self.here.step + 1} "
            f"(epoch {self.here.epoch}, batch {self.here.batch + 1}, learning rate {self.rate(1.0):g}). "
            f"The weights were left as they were. {self.remedy()}"
        )

    def remedy(self) -> str:
        """What is left, and what to do, when the numbers have gone wrong."""
        if not checkpoints.find(self.folder, "last"):
            return f"There is no checkpoint yet. {advice(self.config)} with --overwrite"
        again = ""
        if checkpoints.find(self.folder, "best"):
            again = f"; --start-from {self.folder} begins with its best weights"
        return (
            f"The last checkpoint, of step {self.saved[0]}, is in {self.folder / 'last'}. "
            f"{advice(self.config)} in another --run-dir{again}"
        )

    def rate(self, length: float) -> float:
        """The learning rate of the next update, whose windows are so long."""
        settings, here = self.config.schedule, self.here
        rate = self.config.optimiser.lr * factor(settings, Place(here.epoch, here.step + 1, here.history))
        return rate * length / self.config.data.length if settings.scale_by_length else rate

    def advance(self, batches: int, tokens: int, seconds: float) -> None:
        self.here.batch += batches
        self.here.tokens += tokens * self.fabric.world_size
        self.here.seconds += seconds

    def choose_optimiser(self) -> None:
        """The one that these validations ask for; it starts afresh when it is another one."""
        wanted = optimisers.current(self.config.optimiser, self.here.history)
        if wanted != self.stage:
            made = optimisers.make(wanted, self.config.optimiser, self.parameters)
            self.stage, self.optimiser = wanted, self.fabric.setup_optimizers(made)

    # -------------------------------------------------------------------------------- the record

    def log(self) -> None:
        """A row of the training loss since the last one."""
        sums, self.sums = self.sums, {}
        lr, norm = sums.pop("lr"), sums.pop("gradient_norm")
        if self.fabric.world_size > 1:
            names = sorted(sums)
            values = torch.tensor([sums[name] for name in names], dtype=torch.float64)
            total = self.fabric.all_reduce(values, reduce_op="sum")
            sums = dict(zip(names, total.tolist(), strict=True))
        nll, count, batches = (sums.pop(name) for name in ("nll", "count", "batches"))
        means = {name: value / batches for name, value in sums.items()}
        self.record("train", {"loss": nll / max(count, 1.0), "lr": lr, "gradient_norm": norm, **means})

    def record(self, split: str, numbers: Row) -> None:
        if not self.fabric.is_global_zero:
            return
        here, row = self.here, self.row(split, numbers)
        self.rows.add(row)
        self.record_speed()
        if self.config.loop.tensorboard:
            self.events(split, numbers)
        self.progress.row(row, here.tokens / max(here.seconds, 1e-9))

    def row(self, split: str, numbers: Row) -> Row:
        return {"step": self.here.step, "epoch": self.here.epoch, "split": split, **numbers}

    def record_speed(self, **more: bool) -> None:
        here = self.here
        speed = {"step": here.step, "tokens": here.tokens, "seconds": here.seconds, **more}
        append(self.folder / "speed.jsonl", json.dumps(speed) + "\n")

    def events(self, split: str, numbers: Row) -> None:
        if self.writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise missing("tensorboard", error) from None
            has_folder(self.folder / "events")
            self.writer = SummaryWriter(str(self.folder / "events"), purge_step=self.here.step)
        for name, value in numbers.items():
            self.writer.add_scalar(f"{split}/{name}", value, self.here.step)
        self.writer.flush()

    def evaluate(self) -> None:
        """Validate, keep the weights if they are the best, and let schedule and optimiser know."""
        stand_in = optimisers.averages(self.optimiser, self.average, self.parameters)
        with optimisers.standing_in(self.parameters, stand_in):
            metrics, selects = self.measure("valid"), self.task.selects
            if not math.isfinite(cost := selects.cost(metrics)):
                raise NotFinite(
                    f"the validation {selects.name} is {metrics[selects.name]:g} after step "
                    f"{self.here.step}. {self.remedy()}"
                )
            self.here.history.append(cost)
            self.here.evaluated = self.here.step
            self.record("valid", metrics)
            if self.config.loop.select == "last" or cost <= min(self.here.history):
                self.keep_best(metrics)
        self.choose_optimiser()

    def measure(self, split: str) -> Row:
        """Return the task's figures, to which each process contributes."""
        return evaluate(self.task, self.model, split, self.fabric)

    def finish(self) -> Row:
        """Validate what was not validated yet, and test the selected weights."""
        if self.here.evaluated != self.here.step:
            self.evaluate()
            self.save()
        path, manifest = self.agreed(lambda: checkpoints.must_find(self.folder, "best"))
        checkpoints.load_weights(path, self.model)
        test = self.measure("test")
        self.record("test", test)
        here = self.here
        result = {
            **{
                "step": here.step,
                "epoch": here.epoch,
                "tokens": here.tokens,
                "parameters": self.model_size(),
            },
            **{"best_step": manifest["step"], "valid": manifest["metrics"], "test": test},
            **{"seconds": here.seconds, "tokens_per_second": here.tokens / max(here.seconds, 1e-9)},
        }
        if self.fabric.is_global_zero:
            write_result(self.folder, result)
        return result

    def model_size(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def total_steps(self) -> int | None:
        loop = self.config.loop
        # Epochs of varied windows differ a little; for a bar that is good enough.
        size = self.task.batches_per_epoch(1)
        if size is None:
            return loop.steps or None
        total = loop.epochs * math.ceil(size / self.config.optimiser.accumulate)
        return min(total, loop.steps) if loop.steps else total

    # ------------------------------------------------------------------------------ checkpoints

    def guard(self) -> Row:
        """What a checkpoint must have been made for to be read here."""
        return {**self.task.describe(), "weights": checkpoints.shape_code(self.model)}

    def circumstances(self) -> Row:
        """What a checkpoint was made by and for; the settings seal those of config.json."""
        return {"guard": self.guard(), "settings": to_dict(self.config)}

    def keep_best(self, metrics: Row) -> None:
        if self.fabric.is_global_zero:
            new = checkpoints.stage(self.folder, "best")
            checkpoints.write_weights(new / checkpoints.WEIGHTS, self.model.state_dict())
            about = {"step": self.here.step, "metrics": metrics, **self.circumstances()}
            self.best_seal = checkpoints.publish(self.folder, "best", about)

    def save(self) -> None:
        """Everything that the next update depends on, of all processes; the first one writes it."""
        owned = self.gathered(
            {"random": random_states(), "carry": checkpoints.plain(self.carry), "sums": self.sums}
        )
        if self.fabric.is_global_zero:
            self.write(checkpoints.stage(self.folder, "last"), owned)
        self.fabric.barrier()
        self.saved = (self.here.step, time.monotonic())

    def gathered(self, own: Row) -> list[Row]:
        """What each process has to say, by rank; the first one hears it."""
        if self.fabric.world_size == 1:
            return [own]
        heard: list[Any] = [None] * self.fabric.world_size
        torch.distributed.gather_object(own, heard if self.fabric.is_global_zero else None)
        return heard

    def write(self, new: Path, owned: list[Row]) -> None:
        checkpoints.write_weights(new / checkpoints.WEIGHTS, self.model.state_dict())
        shadows = self.average.shadows if self.average else None
        # Of what keeps gradients of 16 bits in range; nothing in other precisions.
        scaler = self.fabric.strategy.precision.state_dict()
        state = {"optimiser": self.optimiser.state_dict(), "average": shadows, "scaler": scaler}
        checkpoints.write_tensors(new / "state.pt", state)
        for rank, own in enumerate(owned):
            checkpoints.write_tensors(new / f"rank-{rank}.pt", own)
        lengths = self.rows.lengths()
        about = {
            "step": self.here.step,
            "position": dataclasses.asdict(self.here),
            "rows": lengths,
            "rows_sha256": self.rows.digests(lengths),
            "world": self.fabric.world_size,
            "best": self.best_seal,
            **self.circumstances(),
        }
        checkpoints.publish(self.folder, "last", about)
        self.record_speed(checkpoint=True)

    def restore(self) -> None:
        """Go on from the last checkpoint that is whole, or begin."""
        chosen, reasons = self.agreed(self.choose_checkpoint)
        if chosen is None:
            return self.begin()
        path, manifest = chosen
        checkpoints.refuse_foreign(path, checkpoints.guard_of(chosen), self.guard())
        checkpoints.refuse_other_settings(chosen, self.config)
        self.refuse_other_world(manifest["world"])
        if self.fabric.is_global_zero:
            self.tell_damage(chosen, reasons)
        self.here = Position(**manifest["position"])
        checkpoints.load_weights(path, self.model)
        self.choose_optimiser()
        self.load_states(path)
        self.row_lengths, self.best_seal = manifest["rows"], manifest.get("best")
        self.saved = (self.here.step, time.monotonic())
        # All have read it before one of them may put another in its place.
        self.fabric.barrier()
        return None

    def choose_checkpoint(self) -> tuple[Checkpoint | None, dict[Path, str]]:
        """The newest from which the run can go on, or None if it has none yet; why others cannot be used."""
        found = checkpoints.survey(self.folder, "last")
        reasons = dict(found.damaged)
        for checkpoint in found.whole:
            try:
                self.check(checkpoint)
            except Mismatch as error:
                reasons[checkpoint.path] = str(error)
            else:
                return checkpoint, reasons
        self.refuse_lost(list(reasons.values()))
        return None, reasons

    def check(self, checkpoint: Checkpoint) -> None:
        """A checkpoint can be gone on from if all that a run then reads is as it was when it was written."""
        path, manifest = checkpoint
        check_manifest(path / checkpoints.MANIFEST, manifest)
        self.rows.check(manifest["rows"], manifest.get("rows_sha256"))
        if manifest["position"]["history"]:
            best = checkpoints.must_find(self.folder, "best")
            # One that was kept after the checkpoint will be kept again, and is the same then.
            newer = best.manifest["step"] > manifest["position"]["evaluated"]
            same = manifest.get("best") in (None, checkpoints.seal_of(best))
            check(same or newer, best.path, f"it is not the one with which {path} was written")

    def tell_damage(self, chosen: Checkpoint, reasons: dict[Path, str]) -> None:
        """Say what is not whole, and what the run therefore does again."""
        last, step = self.folder / "last", chosen.manifest["step"]
        for reason in reasons.values():
            log.warning("%s", harmless(reason))
        if last in reasons:
            log.warning("%s is kept as %s", last, checkpoints.set_aside(last))
        elif chosen.path.name == "last.old" and not has_folder(last):
            log.warning("%s is missing", last)
        elif not reasons:
            return
        cut = self.rows.count(chosen.manifest["rows"][0])
        rows = (
            f"; the {cut} rows of metrics.jsonl that were written after it are computed again" if cut else ""
        )
        log.warning("the run goes on from %s, of step %d%s", chosen.path, step, rows)

    def refuse_lost(self, reasons: list[str]) -> None:
        """A run that had a checkpoint does not start over by itself."""
        speed = read_bytes(self.folder / "speed.jsonl", LARGE) or b""
        if not reasons and CHECKPOINT_WRITTEN in speed:
            reasons = [f"{self.folder / 'last'} is missing, and speed.jsonl says that it was written"]
        if not reasons and read_result(self.folder):
            reasons = [f"{self.folder / 'last'} is missing, and result.json says that the run is finished"]
        if reasons:
            raise Damaged(f"{self.folder} has no checkpoint to go on from: {'; '.join(reasons)}. {LOST}")
        if cut := self.rows.count():
            log.warning(
                "%s has no checkpoint yet: it starts from step 0, and its %d rows of metrics.jsonl with it",
                self.folder,
                cut,
            )

    def refuse_other_world(self, there: int) -> None:
        here = self.fabric.world_size
        if there != here:
            raise Mismatch(
                f"{self.folder} was trained by {there} processes and is now to go on with {here}: start "
                "as many (torchrun --nproc-per-node), or give another --run-dir"
            )

    def load_states(self, path: Path) -> None:
        own = f"rank-{self.fabric.global_rank}.pt"
        try:
            self.set_states(checkpoints.read_tensors(path / "state.pt"))
            self.set_own_states(checkpoints.read_tensors(path / own))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            if isinstance(error, Stopped):
                raise
            # Their digests are right, so they were written by something else than this run.
            raise Damaged(
                f"{path}: state.pt or {own} does not hold the states of this run ({error!r}). {LOST}"
            ) from None

    def set_states(self, state: Row) -> None:
        self.optimiser.load_state_dict(state["optimiser"])
        self.fabric.strategy.precision.load_state_dict(state["scaler"])
        if self.average:
            self.average.load(state["average"])

    def set_own_states(self, own: Row) -> None:
        self.carry = checkpoints.rebuilt(own["carry"], self.fabric.device)
        self.sums = {str(name): float(value) for name, value in own["sums"].items()}
        set_random_states(own["random"])

    def begin(self) -> None:
        """From nothing, or from the best weights of another run."""
        if path := self.source():
            checkpoints.load_weights(path, self.model)

    def check_source(self) -> None:
        """A run that has begun no longer needs the one that it started from."""
        if self.config.loop.start_from and not any(checkpoints.survey(self.folder, "last")):
            self.source()

    def source(self) -> Path | None:
        """The weights of another run to begin with."""
        if not self.config.loop.start_from:
            return None
        found = checkpoints.must_find(Path(self.config.loop.start_from), "best")
        # Another corpus, another dropout: the weights fit. Another vocabulary: they would mean nothing.
        guards = checkpoints.guard_of(found), self.guard()
        there, here = ({name: guard.get(name) for name in MEANING} for guard in guards)
        checkpoints.refuse_foreign(found.path, there, here)
        return found.path


def check_manifest(path: Path, manifest: Row) -> None:
    """What a run goes on from has the types that a run writes."""
    check_object(path, "it", manifest, ("position", "rows", "world", "guard"))
    check_position(path, manifest["position"], manifest["step"])
    check_count(path, "world", manifest["world"], least=1)
    check(manifest["world"] <= len(manifest["files"]), path, f"it has {manifest['world']} processes")
    for name in ("state.pt", *(f"rank-{rank}.pt" for rank in range(manifest["world"]))):
        check(name in manifest["files"], path, f"it does not have the digest of {name}")
    check(isinstance(manifest["rows"], list) and len(manifest["rows"]) == 2, path, "rows are two lengths")
    for length in manifest["rows"]:
        check_count(path, "the length of rows", length)
    digests = manifest.get("rows_sha256", ["", ""])
    check(isinstance(digests, list) and len(digests) == 2, path, "rows_sha256 are two digests")


def check_position(path: Path, position: Any, step: int) -> None:
    names = [each.name for each in dataclasses.fields(Position)]
    check_object(path, "position", position, names)
    check(set(position) == set(names), path, f"position has other fields than {', '.join(names)}")
    check(position["step"] == step, path, "its two steps differ")
    for name in ("batch", "step", "tokens", "epoch"):
        check_count(path, name, position[name], least=int(name == "epoch"))
    check_count(path, "evaluated", position["evaluated"], least=-1)
    check(isinstance(position["history"], list), path, "history is no list")
    for number in (position["seconds"], *position["history"]):
        check_finite(path, "a number of position", number)


def groups(batches: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """A few batches at a time; the last group may have fewer."""
    source = iter(batches)
    while group := list(islice(source, size)):
        yield group


def random_states() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
