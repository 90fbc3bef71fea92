"""Checkpoints that are whole or are not read.

A checkpoint is a folder: model.safetensors, more files, and last of all manifest.json, which has the digests
of these files and of itself. It is written under a temporary name, and takes its place by renaming:

    write last.new  ->  last.old goes  ->  last becomes last.old  ->  last.new becomes last

So the checkpoint before the last is kept, and whenever this is cut off, at least one of the three is whole.
Of `best` there is one only: an older one would be another result.
"""

from __future__ import annotations

import dataclasses
import json
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
from linnet.runs import untrusted
from linnet.runs.config import RunConfig
from linnet.runs.errors import Damaged, Mismatch, log, missing, room_for
from linnet.runs.records import config_from, refuse_changed, sync
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
FILES = re.compile(r"model\.safetensors|state\.pt|rank-[0-9]{1,6}\.pt")
ANY_MODEL = 100_000
"""Sizes up to this cost next to nothing to try."""
# What Linnet 0.1.0 wrote into a manifest, which it did not seal.
OLD_NAMES = {
    "last": ("step", "position", "rows", "world", "guard", "files"),
    "best": ("step", "metrics", "guard", "files"),
}


# What Linnet 0.1.0 compared as well: a digest of the model's settings, which has since got more fields.
OLD_GUARDS = ("model",)


class Checkpoint(NamedTuple):
    path: Path
    manifest: dict[str, Any]


class Survey(NamedTuple):
    """The checkpoints of one name: those that are whole, the newest first; why each of the others is not."""

    whole: list[Checkpoint]
    damaged: dict[Path, str]


def stage(folder: Path, name: str) -> Path:
    """The empty folder into which a checkpoint is written before it counts."""
    new = folder / f"{name}.new"
    if not has_folder(folder / name) and is_whole(new, name):
        # It was cut off between two renames: what is being replaced is not yet in its place.
        settle(folder, name)
    discard(new)
    with room_for(new):
        new.mkdir(parents=True)
    return new


def publish(folder: Path, name: str, about: Mapping[str, Any]) -> str:
    """Seal what stands in the staging folder, and put it in the place of the one before it; the seal."""
    new = folder / f"{name}.new"
    files = {path.name: digest(path) for path in sorted(new.iterdir())}
    manifest = untrusted.sealed({"name": name, **about, "files": files})
    write_synced(new / MANIFEST, json.dumps(manifest, indent=2).encode())
    sync_folder(new)
    settle(folder, name)
    return manifest[untrusted.SEAL]


def settle(folder: Path, name: str) -> None:
    place, new, old = (folder / f"{name}{end}" for end in ("", ".new", ".old"))
    if has_folder(place):
        discard(old)
        os.replace(place, old)
    os.replace(new, place)
    sync_folder(folder)
    if name != "last":
        discard(old)


def discard(path: Path) -> None:
    """Remove a checkpoint, its manifest first: what is half removed is then not taken for damaged."""
    if has_folder(path):
        if has_file(path / MANIFEST):
            (path / MANIFEST).unlink()
        shutil.rmtree(path, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Out of the way of the next checkpoint, for whoever wants to look at it."""
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
        # Without a manifest it is one that was being written or removed, unless it stands in its place.
        if has_folder(path) and (not end or has_file(path / MANIFEST)):
            try:
                found.whole.append(read(path, name))
            except Damaged as error:
                found.damaged[path] = str(error)
    # The sort keeps the order of those of one step: last, last.new, last.old.
    found.whole.sort(key=lambda each: -each.manifest["step"])
    return found


def find(folder: Path, name: str) -> Checkpoint | None:
    """The newest whole checkpoint of this name."""
    return next(iter(survey(folder, name).whole), None)


def must_find(folder: Path, name: str) -> Checkpoint:
    """The checkpoint of this name, not one before it: another checkpoint would be another result."""
    whole, damaged = survey(folder, name)
    # One that is whole and was not yet renamed is newer than what stands in its place.
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
    """A checkpoint whose manifest and files are all as they were written."""
    place = path / MANIFEST
    value = untrusted.read_json(place)
    check(value is not None, place, "it is missing")
    manifest = untrusted.unsealed(place, value, OLD_NAMES[name])
    check(manifest.get("name", name) == name, place, f"it is that of another checkpoint than {name!r}")
    if "name" not in manifest:
        log.warning("%s was written by Linnet 0.1.0, without a seal: damage to it is not noticed", place)
    check_object(place, "it", manifest, ("step", "files"))
    check_count(place, "step", manifest["step"])
    if name == "best":
        check_object(place, "it", manifest, ("metrics",))
        check_figures(place, "metrics", manifest["metrics"])
    check_object(place, "files", manifest["files"], (WEIGHTS,))
    for file, code in manifest["files"].items():
        check_file(path, file, code)
    return Checkpoint(path, manifest)


def check_file(path: Path, name: str, code: Any) -> None:
    """Only what Linnet writes is opened, whatever a manifest names."""
    known = FILES.fullmatch(name) is not None
    check(known, path / MANIFEST, f"it names {name!r}, which is no file of a checkpoint")
    check(has_file(path / name), path / name, "it is missing")
    check(digest(path / name) == code, path / name, f"its digest is not that of {MANIFEST}")


def guard_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What the run that wrote it said of its model and its data."""
    place = checkpoint.path / MANIFEST
    check_object(place, "it", checkpoint.manifest, ("guard",))
    check_object(place, "guard", checkpoint.manifest["guard"])
    return checkpoint.manifest["guard"]


def seal_of(checkpoint: Checkpoint) -> str:
    return untrusted.seal_of(checkpoint.manifest)


def read_weights(path: Path) -> dict[str, Tensor]:
    return untrusted.read_safetensors(path / WEIGHTS)


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
    refuse_larger(settings, dataclasses.asdict(config.model), sum(each.numel() for each in weights.values()))
    try:
        with torch.device("meta"):
            sketch = task.build()
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise Damaged(f"{settings} describes a model that cannot be built: {error}") from None
    here = {**task.describe(), "weights": shape_code(sketch)}
    files = "".join(f"; {name} was changed or is that of another run" for name in task.asset_files)
    refuse_foreign(checkpoint.path, guard_of(checkpoint), here, files)
    refuse_other_settings(checkpoint, config)
    refuse_other_shapes(checkpoint.path / WEIGHTS, weights, sketch)
    model = task.build()
    model.load_state_dict(weights)
    return model.eval()


def refuse_larger(settings: Path, model: Mapping[str, Any], count: int) -> None:
    """Each size of a model is the least number of parameters it can have, so the weights bound them all."""
    sizes = {**model, **model.get("unit_options", {})}
    for name, value in sizes.items():
        for size in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(size, int) and size > max(count, ANY_MODEL):
                raise Mismatch(f"{settings} has {name}={size:,}, and there are {count:,} weights in all")


def refuse_other_settings(checkpoint: Checkpoint, config: RunConfig) -> None:
    """A checkpoint has the settings it was written with; those of 0.1.0 had not."""
    path = checkpoint.path / MANIFEST
    if "settings" in checkpoint.manifest:
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


def shape_code(model: nn.Module) -> str:
    """The same for two models when the weights of one fit the other."""
    return fingerprint({name: list(tensor.shape) for name, tensor in model.state_dict().items()})


def refuse_foreign(path: Path, there: Mapping[str, Any], here: Mapping[str, Any], files: str = "") -> None:
    """A checkpoint fits a task when the task describes itself as the one that wrote it did."""
    names = [name for name in {**there, **here} if name not in OLD_GUARDS]
    wrong = [name for name in names if there.get(name) != here.get(name)]
    if wrong:
        text = "; ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in wrong)
        raise Mismatch(f"the checkpoint {path} is of another model or vocabulary: {text}{files}")
