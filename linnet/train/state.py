"""What is saved of a run, and how it is restored: by as many processes as before, or by more or fewer.

A checkpoint has the weights, the states of the optimiser (state.pt), and of each process (rank-0.pt, ...) its
random numbers, the recurrent state of its sequences, and its sums for the next row of training.
"""

from __future__ import annotations

import dataclasses
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from linnet.runs import checkpoints
from linnet.runs.config import to_dict
from linnet.runs.errors import Damaged, Stopped
from linnet.runs.records import Row
from linnet.runs.trees import from_values, joined, share, to_values
from linnet.train.context import Context, Position
from linnet.train.fabric import agreed, gathered
from linnet.train.own_files import digests, refuse_changed_files
from linnet.train.recorder import Recorder
from linnet.train.resume import LOST, choose_checkpoint, report_damage
from linnet.train.update import Updater

MEANING = ("vocabulary", "weights")
"""What must agree for the weights of one run to mean something in another."""


class Store:
    """The checkpoints of a run: "last" to continue from, "best" to use."""

    def __init__(self, context: Context, updater: Updater, recorder: Recorder):
        self.context, self.updater, self.recorder = context, updater, recorder
        self.saved_step, self.saved_time = 0, time.monotonic()
        self.row_lengths = [0, 0]  # of the metrics when the checkpoint was written
        self.best_seal: str | None = None  # by which "last" recognises its "best"

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint; all processes agree, although their clocks do not."""
        loop, step, fabric = self.context.config.loop, self.context.here.step, self.context.fabric
        by_steps = bool(loop.checkpoint_steps) and step - self.saved_step >= loop.checkpoint_steps
        passed = time.monotonic() - self.saved_time
        due = by_steps or (bool(loop.checkpoint_seconds) and passed >= loop.checkpoint_seconds)
        return fabric.broadcast(due) if fabric.world_size > 1 else due

    @cached_property
    def own_files(self) -> dict[str, str]:
        """Digests of the user's files."""
        return digests(self.context.config.data)

    # ---------------------------------------------------------------------------------- saving

    def guard(self) -> Row:
        """Return what must agree for a checkpoint to be read here."""
        weights = checkpoints.shape_code(self.updater.model.state_dict())
        return {**self.context.task.describe(), "weights": weights}

    def circumstances(self) -> Row:
        """Return what a checkpoint was made for; its settings show whether config.json was changed."""
        return {"guard": self.guard(), "settings": to_dict(self.context.config)}

    def keep_best(self, figures: Row) -> None:
        if self.context.is_first:
            new = checkpoints.stage(self.context.folder, "best")
            checkpoints.write_weights(new / checkpoints.WEIGHTS, self.updater.model.state_dict())
            about = {"step": self.context.here.step, "metrics": figures, **self.circumstances()}
            self.best_seal = checkpoints.publish(self.context.folder, "best", about)

    def save(self) -> None:
        """Save everything that the next update depends on, of all processes; the first one writes."""
        carry = to_values(self.updater.carry)
        own = {"random": random_states(), "carry": carry, "sums": self.updater.sums}
        of_all = gathered(self.context.fabric, own)
        if self.context.is_first:
            self.write(checkpoints.stage(self.context.folder, "last"), of_all)
        self.context.fabric.barrier()
        self.saved_step, self.saved_time = self.context.here.step, time.monotonic()

    def write(self, new: Path, of_all: list[Row]) -> None:
        checkpoints.write_weights(new / checkpoints.WEIGHTS, self.updater.model.state_dict())
        checkpoints.write_tensors(new / "state.pt", self.updater.states())
        for rank, own in enumerate(of_all):
            checkpoints.write_tensors(new / f"rank-{rank}.pt", own)
        rows, here = self.recorder.rows, self.context.here
        lengths = rows.lengths()
        about = {
            "step": here.step,
            "position": dataclasses.asdict(here),
            "rows": lengths,
            "rows_sha256": rows.digests(lengths),
            "world": self.context.fabric.world_size,
            "best": self.best_seal,
            "data": self.own_files,
            **self.circumstances(),
        }
        checkpoints.publish(self.context.folder, "last", about)
        self.recorder.record_speed(checkpoint=True)

    # ------------------------------------------------------------------------------- restoring

    def restore(self) -> None:
        """Continue from the last checkpoint that is whole, or begin."""
        folder, fabric, rows = self.context.folder, self.context.fabric, self.recorder.rows
        chosen, reasons = agreed(fabric, lambda: choose_checkpoint(folder, rows))
        if chosen is None:
            return self.begin()
        path, manifest = chosen
        checkpoints.refuse_foreign(path, checkpoints.guard_of(chosen), self.guard())
        checkpoints.refuse_other_settings(chosen, self.context.config)
        refuse_changed_files(manifest["data"], self.own_files, self.context.config.data)
        if self.context.is_first:
            report_damage(folder, rows, chosen, reasons)
        self.context.here = Position(**manifest["position"])
        checkpoints.load_weights(path, self.updater.model)
        self.updater.choose_optimiser()
        self.load_states(path, manifest["world"])
        self.row_lengths, self.best_seal = manifest["rows"], manifest["best"]
        self.saved_step, self.saved_time = self.context.here.step, time.monotonic()
        # All processes have read it before one of them may replace it.
        fabric.barrier()
        return None

    def begin(self) -> None:
        """Start from new weights, or from the best ones of another run."""
        if path := self.source():
            checkpoints.load_weights(path, self.updater.model)

    def load_states(self, path: Path, world: int) -> None:
        """Read the states of the optimiser and of the processes, of which there were `world`."""
        own = f"rank-{min(self.context.fabric.global_rank, world - 1)}.pt"
        try:
            self.updater.load_states(checkpoints.read_tensors(path / "state.pt"))
            self.load_own_states(path, world)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            if isinstance(error, Stopped):
                raise
            # Their digests are right, so something else than this run has written them.
            raise Damaged(
                f"{path}: state.pt or {own} does not hold the states of this run ({error!r}). {LOST}"
            ) from None

    def load_own_states(self, path: Path, world: int) -> None:
        fabric = self.context.fabric
        rank, device = fabric.global_rank, fabric.device
        same = world == fabric.world_size
        ranks = [rank] if same else range(world)
        known = {each: checkpoints.read_tensors(path / f"rank-{each}.pt") for each in ranks}
        carries = [from_values(own["carry"], device) for own in known.values()]
        sums = [{str(name): float(value) for name, value in own["sums"].items()} for own in known.values()]
        if same:
            (self.updater.carry,), (self.updater.sums,) = carries, sums
        else:
            self.updater.carry = share(joined(carries), rank, fabric.world_size)
            self.updater.sums = merged_sums(sums) if self.context.is_first else {}
        if rank in known:
            set_random_states(known[rank]["random"])

    def forget_what_came_after(self) -> None:
        """Remove rows that were written after the checkpoint: they will be written again."""
        if self.context.is_first:
            (self.context.folder / "result.json").unlink(missing_ok=True)
            self.recorder.rows.cut(self.row_lengths)

    # ------------------------------------------------------------------------- another run's weights

    def check_source(self) -> None:
        """Raise if --start-from cannot be used; a run that has begun no longer needs it."""
        if not any(checkpoints.survey(self.context.folder, "last")):
            self.source()

    def source(self) -> Path | None:
        """Return the weights of another run to start from."""
        start = self.context.config.loop.start_from
        if not start:
            return None
        found = checkpoints.must_find(Path(start), "best")
        # Another corpus, another dropout: the weights fit. Another vocabulary: they would mean nothing.
        guards = checkpoints.guard_of(found), self.guard()
        there, here = ({name: guard.get(name) for name in MEANING} for guard in guards)
        checkpoints.refuse_foreign(found.path, there, here)
        return found.path


# --------------------------------------------------------------------- another number of processes


def merged_sums(sums: list[dict[str, float]]) -> dict[str, float]:
    """Return the sums of all processes as one process would have them.

    The loss and its count are of different sequences, so they add up; each process counts every batch.
    """
    merged = dict(sums[0])
    for name in merged:
        total = sum(own.get(name, 0.0) for own in sums)
        merged[name] = total if name in ("nll", "count") else total / len(sums)
    return merged


def random_states() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"]:
        torch.cuda.set_rng_state_all(states["cuda"])
