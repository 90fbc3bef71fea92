"""From which checkpoint a run continues, and what it says about those that are damaged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from linnet.runs import checkpoints
from linnet.runs.checkpoints import Checkpoint
from linnet.runs.errors import Damaged, Mismatch, log
from linnet.runs.records import Row, Rows, read_result
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
from linnet.train.context import Position

LOST = "Restore the damaged files from a copy, or give --overwrite to delete the run and start over"
CHECKPOINT_WRITTEN = b'"checkpoint": true'


def choose_checkpoint(folder: Path, rows: Rows) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the newest checkpoint to continue from, or None; and why others cannot be used."""
    found = checkpoints.survey(folder, "last")
    reasons = dict(found.damaged)
    for checkpoint in found.whole:
        try:
            check_whole(folder, rows, checkpoint)
        except Mismatch as error:
            reasons[checkpoint.path] = str(error)
        else:
            return checkpoint, reasons
    refuse_lost(folder, rows, list(reasons.values()))
    return None, reasons


def check_whole(folder: Path, rows: Rows, checkpoint: Checkpoint) -> None:
    """Raise unless everything that a continued run reads is as it was when the checkpoint was written."""
    path, manifest = checkpoint
    check_manifest(path / checkpoints.MANIFEST, manifest)
    rows.check(manifest["rows"], manifest["rows_sha256"])
    if manifest["position"]["history"]:
        best = checkpoints.must_find(folder, "best")
        # One that was kept after this checkpoint will be kept again, and will then be the same.
        newer = best.manifest["step"] > manifest["position"]["evaluated"]
        same = manifest["best"] == checkpoints.seal_of(best)
        check(same or newer, best.path, f"it is not the one with which {path} was written")


# ---------------------------------------------------------------------------------------- damage


def report_damage(folder: Path, rows: Rows, chosen: Checkpoint, reasons: dict[Path, str]) -> None:
    """Say what is damaged, and what the run therefore computes again."""
    last, step = folder / "last", chosen.manifest["step"]
    for reason in reasons.values():
        log.warning("%s", harmless(reason))
    if last in reasons:
        log.warning("%s is kept as %s", last, checkpoints.set_aside(last))
    elif chosen.path.name == "last.old" and not has_folder(last):
        log.warning("%s is missing", last)
    elif not reasons:
        return
    cut = rows.count(chosen.manifest["rows"][0])
    again = f"; the {cut} rows of metrics.jsonl that were written after it are computed again" if cut else ""
    log.warning("the run continues from %s, of step %d%s", chosen.path, step, again)


def refuse_lost(folder: Path, rows: Rows, reasons: list[str]) -> None:
    """Raise if the run had a checkpoint: it does not start over by itself."""
    speed = read_bytes(folder / "speed.jsonl", LARGE) or b""
    if not reasons and CHECKPOINT_WRITTEN in speed:
        reasons = [f"{folder / 'last'} is missing, and speed.jsonl says that it was written"]
    if not reasons and read_result(folder):
        reasons = [f"{folder / 'last'} is missing, and result.json says that the run is finished"]
    if reasons:
        raise Damaged(f"{folder} has no checkpoint to continue from: {'; '.join(reasons)}. {LOST}")
    if cut := rows.count():
        log.warning(
            "%s has no checkpoint yet: it starts from step 0, and its %d rows of metrics.jsonl with it",
            folder,
            cut,
        )


# ------------------------------------------------------------------------------------- checks


def check_manifest(path: Path, manifest: Row) -> None:
    """Raise unless the values of a manifest have the types that a run writes."""
    check_object(path, "it", manifest, ("position", "rows", "rows_sha256", "world", "guard", "best", "data"))
    check_object(path, "data", manifest["data"])
    check_position(path, manifest["position"], manifest["step"])
    check_count(path, "world", manifest["world"], least=1)
    check(manifest["world"] <= len(manifest["files"]), path, f"it has {manifest['world']} processes")
    for name in ("state.pt", *(f"rank-{rank}.pt" for rank in range(manifest["world"]))):
        check(name in manifest["files"], path, f"it does not have the digest of {name}")
    check(isinstance(manifest["rows"], list) and len(manifest["rows"]) == 2, path, "rows are two lengths")
    for length in manifest["rows"]:
        check_count(path, "the length of rows", length)
    digests = manifest["rows_sha256"]
    check(isinstance(digests, list) and len(digests) == 2, path, "rows_sha256 are two digests")


def check_position(path: Path, position: Any, step: int) -> None:
    names = [each.name for each in dataclasses.fields(Position)]
    check_object(path, "position", position, names)
    check(set(position) == set(names), path, f"position has other fields than {', '.join(names)}")
    check(position["step"] == step, path, "its two steps differ")
    for name in ("batch", "step", "tokens", "epoch"):
        check_count(path, name, position[name], least=int(name == "epoch"))
    check_count(path, "evaluated", position["evaluated"], least=-1)
    check(isinstance(position["history"], list), path, "history is not a list")
    for number in (position["seconds"], position["spent"], position["evaluated_at"], *position["history"]):
        check_finite(path, "a number of position", number)
