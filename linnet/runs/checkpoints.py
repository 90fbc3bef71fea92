"""Checkpoints: an incomplete or changed one is never read.

A checkpoint is a folder: model.safetensors, more files, and last of all manifest.json, which has the digests
of these files and of itself. It is written under a temporary name, and then renamed:

    write last.new  ->  delete last.old  ->  rename last to last.old  ->  rename last.new to last

So the previous checkpoint is kept, and after an interruption at least one of the three is complete.
There is only one `best`: an older one would give another result.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.base.files import sync_folder
from linnet.base.settings import fingerprint
from linnet.recurrent.int8 import dequantised, quantised
from linnet.recurrent.sizes import sketching, too_large
from linnet.runs import untrusted
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged, Mismatch, missing, room_for
from linnet.runs.records import config_from, refuse_changed, small_json, sync
from linnet.runs.untrusted import (
    check,
    check_count,
    check_figures,
    check_object,
    digest,
    has_file,
    has_folder,
)

MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"
SCALE = ".scale"
"""The end of the name of the scales of a matrix in int8."""
FILES = re.compile(r"model\.safetensors|state\.pt|rank-[0-9]{1,6}\.pt")


class Checkpoint(NamedTuple):
    path: Path
    manifest: dict[str, Any]


class Survey(NamedTuple):
    """The checkpoints of one name: those that are whole, the newest first; why each of the others is not."""

    whole: list[Checkpoint]
    damaged: dict[Path, str]


def stage(folder: Path, name: str) -> Path:
    """Return an empty folder to write a new checkpoint into."""
    new = folder / f"{name}.new"
    if not has_folder(folder / name) and is_whole(new, name):
        # The process ended between two renames: finish them first.
        settle(folder, name)
    discard(new)
    with room_for(new):
        new.mkdir(parents=True)
    return new


def publish(folder: Path, name: str, about: Mapping[str, Any]) -> str:
    """Seal the checkpoint in the staging folder and replace the previous one; return the seal."""
    new = folder / f"{name}.new"
    files = {path.name: digest(path) for path in sorted(new.iterdir())}
    manifest = untrusted.sealed({"name": name, **about, "files": files})
    write_synced(new / MANIFEST, small_json(new / MANIFEST, manifest))
    sync_folder(new)
    settle(folder, name)
    return manifest[untrusted.SEAL]


def settle(folder: Path, name: str) -> None:
    current, new, old = (folder / f"{name}{end}" for end in ("", ".new", ".old"))
    if has_folder(current):
        discard(old)
        os.replace(current, old)
    os.replace(new, current)
    sync_folder(folder)
    if name != "last":
        discard(old)


def discard(path: Path) -> None:
    """Remove a checkpoint, its manifest first: a partly removed one is then not reported as damaged."""
    if has_folder(path):
        if has_file(path / MANIFEST):
            (path / MANIFEST).unlink()
        shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it can be inspected; return its new path."""
    aside = path.with_name(f"{path.name}.damaged")
    if has_folder(aside):
        shutil.rmtree(aside)
    os.replace(path, aside)
    return aside


def write_synced(path: Path, content: bytes) -> None:
    with room_for(path), open(path, "wb") as file:
        file.write(content)
        sync(file)


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    try:
        from safetensors.torch import save
    except ImportError:
        raise missing("a checkpoint", "safetensors") from None
    write_synced(
        path, save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()})
    )


def write_tensors(path: Path, value: Any) -> None:
    with room_for(path), open(path, "wb") as file:
        try:
            torch.save(value, file)
        except RuntimeError as error:
            # torch reports a full disk as an error of its archive.
            raise OSError(28, f"No space left on device: {error}") from None
        sync(file)


# ------------------------------------------------------------------------------------- reading


def survey(folder: Path, name: str) -> Survey:
    found = Survey([], {})
    for end in ("", ".new", ".old"):
        path = folder / f"{name}{end}"
        # A folder without a manifest was being written or removed, unless it has the final name.
        if has_folder(path) and (not end or has_file(path / MANIFEST)):
            try:
                found.whole.append(read(path, name))
            except Damaged as error:
                found.damaged[path] = str(error)
    # The sort keeps the order of those of one step: last, last.new, last.old.
    found.whole.sort(key=lambda each: -each.manifest["step"])
    return found


def find(folder: Path, name: str) -> Checkpoint | None:
    """Return the newest complete checkpoint of this name."""
    return next(iter(survey(folder, name).whole), None)


def must_find(folder: Path, name: str) -> Checkpoint:
    """Return the checkpoint of this name; an older one would give another result."""
    whole, damaged = survey(folder, name)
    # A complete one that was not yet renamed is newer than the one with the final name.
    chosen = next((each for each in whole if each.path != folder / f"{name}.old"), None)
    if chosen is not None:
        return chosen
    if damaged:
        raise Damaged(f"{folder} has no whole checkpoint {name!r}: {'; '.join(damaged.values())}")
    raise Mismatch(f"{folder} has no whole checkpoint {name!r}: {folder / name} is missing")


def is_whole(path: Path, name: str) -> bool:
    try:
        return has_folder(path) and bool(read(path, name))
    except Damaged:
        return False


def read(path: Path, name: str) -> Checkpoint:
    """Return a checkpoint after checking that its manifest and files are as they were written."""
    where = path / MANIFEST
    value = untrusted.read_json(where)
    check(value is not None, where, "it is missing")
    manifest = untrusted.unsealed(where, value)
    check(manifest.get("name") == name, where, f"it is that of another checkpoint than {name!r}")
    check_object(where, "it", manifest, ("step", "files"))
    check_count(where, "step", manifest["step"])
    if name == "best":
        check_object(where, "it", manifest, ("metrics",))
        check_figures(where, "metrics", manifest["metrics"])
    check_object(where, "files", manifest["files"], (WEIGHTS,))
    for file, code in manifest["files"].items():
        check_file(path, file, code)
    return Checkpoint(path, manifest)


def check_file(path: Path, name: str, code: Any) -> None:
    """Check a file; only names that Linnet writes are opened."""
    known = FILES.fullmatch(name) is not None
    check(known, path / MANIFEST, f"it names {name!r}, which is not a file of a checkpoint")
    check(has_file(path / name), path / name, "it is missing")
    check(digest(path / name) == code, path / name, f"its digest is not that of {MANIFEST}")


def guard_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the run that wrote the checkpoint recorded about its model and data."""
    manifest = checkpoint.path / MANIFEST
    check_object(manifest, "it", checkpoint.manifest, ("guard",))
    check_object(manifest, "guard", checkpoint.manifest["guard"])
    return checkpoint.manifest["guard"]


def seal_of(checkpoint: Checkpoint) -> str:
    return untrusted.seal_of(checkpoint.manifest)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint in floating point; some may be stored in int8."""
    return expanded(path / WEIGHTS, untrusted.read_safetensors(path / WEIGHTS))


def rounded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with each matrix in int8 and a scale for each row: a quarter of the size."""
    made = dict(weights)
    for name, tensor in weights.items():
        if tensor.is_floating_point() and tensor.dim() > 1:
            made[name], made[name + SCALE] = quantised(tensor)
    return made


def expanded(where: Path, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights with each matrix in int8 as the numbers that it stands for."""
    made = dict(weights)
    for name, numbers in weights.items():
        if numbers.dtype == torch.int8 and name + SCALE in weights:
            scales = made.pop(name + SCALE)
            fits = scales.is_floating_point() and scales.shape == numbers.shape[:-1]
            check(fits, where, f"{name + SCALE!r} has no scale for each row of {name!r}")
            made[name] = dequantised(numbers, scales)
    return made


def read_tensors(path: Path) -> Any:
    return untrusted.read_torch(path)


def load_weights(path: Path, model: nn.Module) -> None:
    weights = read_weights(path)
    refuse_other_shapes(path / WEIGHTS, weights, model)
    model.load_state_dict(weights)


def load_model(checkpoint: Checkpoint, config: RunConfig, task: Any) -> Any:
    """Return the model of a checkpoint, if it fits the task and the settings of its run.

    Memory is allocated only when the weights are known to fit: the settings may be a stranger's, of any size.
    """
    weights, settings = read_weights(checkpoint.path), checkpoint.path.parent / "config.json"
    if wrong := too_large(dataclasses.asdict(config.model), weights):
        raise Mismatch(f"{settings} has {wrong}")
    try:
        with sketching():
            sketch = task.build()
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise Damaged(f"{settings} describes a model that cannot be built: {error}") from None
    here = {**task.describe(), "weights": shape_code(sketch.state_dict())}
    files = "".join(
        f"; {name} was changed or is that of another run" for name in task.files_kept(config.model)
    )
    refuse_foreign(checkpoint.path, guard_of(checkpoint), here, files)
    refuse_other_settings(checkpoint, config)
    refuse_other_shapes(checkpoint.path / WEIGHTS, weights, sketch)
    model = task.build()
    model.load_state_dict(weights)
    return model.eval()


def refuse_other_settings(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Raise if config.json was changed after the checkpoint."""
    path = checkpoint.path / MANIFEST
    check_object(path, "it", checkpoint.manifest, ("settings",))
    there = config_from(f"{path}, settings", checkpoint.manifest["settings"])
    refuse_changed(f"{path} was written with other settings than those of config.json:", there, config)


def refuse_other_shapes(path: Path, weights: Mapping[str, Tensor], model: nn.Module) -> None:
    there = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    here = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = sorted(name for name in {**there, **here} if there.get(name) != here.get(name))
    if wrong:
        first, more = wrong[0], f" and {len(wrong) - 1} more" * (len(wrong) > 1)
        raise Mismatch(
            f"{path} has the weights of another model: {first!r} has the shape {there.get(first)} there and "
            f"{here.get(first)} here{more}"
        )


def shape_code(weights: Mapping[str, Tensor]) -> str:
    """Return a code that two models share if the weights of one fit the other."""
    return fingerprint({name: list(tensor.shape) for name, tensor in weights.items()})


def refuse_foreign(path: Path, there: Mapping[str, Any], here: Mapping[str, Any], files: str = "") -> None:
    """Raise unless the task of a checkpoint and this task describe themselves in the same way."""
    wrong = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if wrong:
        text = "; ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in wrong)
        raise Mismatch(f"the checkpoint {path} is of another model or vocabulary: {text}{files}")
