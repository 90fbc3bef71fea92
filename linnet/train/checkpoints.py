"""Checkpoints that are whole or are not there.

A checkpoint is a folder: model.safetensors, more files, and last of all manifest.json with the digest of
each. It is written beside the one before it under a temporary name, and takes its place by renaming:

    write last.new  ->  last becomes last.old  ->  last.new becomes last  ->  last.old goes

Whenever this is cut off, at least one of the three is whole, and the newest whole one is what is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from linnet.train.config import fingerprint
from linnet.train.errors import Mismatch, missing, room_for
from linnet.train.records import sync, sync_folder

MANIFEST = "manifest.json"
WEIGHTS = "model.safetensors"


def stage(folder: Path, name: str) -> Path:
    """The empty folder into which a checkpoint is written before it counts."""
    new = folder / f"{name}.new"
    if not (folder / name).exists() and whole(new):
        # It was cut off between two renames: what is being replaced is not yet in its place.
        settle(folder, name)
    shutil.rmtree(new, ignore_errors=True)
    with room_for(new):
        new.mkdir(parents=True)
    return new


def publish(folder: Path, name: str, about: Mapping[str, Any]) -> None:
    """Seal what stands in the staging folder, and put it in the place of the one before it."""
    new = folder / f"{name}.new"
    files = {path.name: digest(path) for path in sorted(new.iterdir())}
    write_synced(new / MANIFEST, json.dumps({**about, "files": files}, indent=2).encode())
    sync_folder(new)
    settle(folder, name)


def settle(folder: Path, name: str) -> None:
    place, new, old = (folder / f"{name}{end}" for end in ("", ".new", ".old"))
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.replace(place, old)
    os.replace(new, place)
    sync_folder(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_synced(path: Path, content: bytes) -> None:
    with room_for(path), open(path, "wb") as file:
        file.write(content)
        sync(file)


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise missing("safetensors", error) from None
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


def digest(path: Path) -> str:
    made = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            made.update(piece)
    return made.hexdigest()


def whole(path: Path) -> dict[str, Any] | None:
    """The manifest of a checkpoint whose files are all as they were written; None for any other."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        right = all(digest(path / name) == code for name, code in manifest["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return manifest if right else None


def find(folder: Path, name: str) -> tuple[Path, dict[str, Any]] | None:
    """The newest whole checkpoint of this name."""
    places = [folder / f"{name}{end}" for end in ("", ".new", ".old")]
    found = [(path, manifest) for path in places if (manifest := whole(path))]
    return max(found, key=lambda pair: pair[1]["step"], default=None)


def read_weights(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise missing("safetensors", error) from None
    return load_file(path / WEIGHTS)


def read_tensors(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def shape_code(model: nn.Module) -> str:
    """The same for two models when the weights of one fit the other."""
    return fingerprint({name: list(tensor.shape) for name, tensor in model.state_dict().items()})


def refuse_foreign(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """A checkpoint fits a task when the task describes itself as the one that wrote it did."""
    wrong = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    if wrong:
        text = "; ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in wrong)
        raise Mismatch(f"the checkpoint {path} is of another model or vocabulary: {text}")


# ------------------------------------------------------------------------- states as plain values


def plain(state: Any) -> Any:
    """Nested tuples, named tuples, lists and dicts of tensors, as what torch.load reads without trust."""
    if isinstance(state, dict):
        return {"dict": {key: plain(value) for key, value in state.items()}}
    if isinstance(state, tuple):
        cls = type(state)
        name = None if cls is tuple else f"{cls.__module__}:{cls.__qualname__}"
        return {"tuple": [plain(each) for each in state], "class": name}
    if isinstance(state, list):
        return {"list": [plain(each) for each in state]}
    return {"value": state.detach().cpu() if isinstance(state, Tensor) else state}


def rebuilt(value: Any, device: torch.device) -> Any:
    """The state that `plain` took apart. A named tuple's class must have been imported already."""
    if "dict" in value:
        return {key: rebuilt(each, device) for key, each in value["dict"].items()}
    if "tuple" in value:
        parts = [rebuilt(each, device) for each in value["tuple"]]
        return named(value["class"])(*parts) if value["class"] else tuple(parts)
    if "list" in value:
        return [rebuilt(each, device) for each in value["list"]]
    leaf = value["value"]
    return leaf.to(device) if isinstance(leaf, Tensor) else leaf


def named(name: str) -> type:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise Mismatch(f"the checkpoint carries a state of {name}, which is no named tuple here")
    return found
