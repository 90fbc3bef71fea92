"""Which folder is a run, and which of its files may be deleted: those that Linnet wrote, by their names.

A folder may hold other files, for example the training data of a run in ".". They are never deleted, and no
run begins in a folder that has any.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from linnet.runs.checkpoints import FILES, MANIFEST
from linnet.runs.config import RunConfig, to_json
from linnet.runs.errors import Damaged
from linnet.runs.records import claim, read_config, write_atomically
from linnet.runs.status import LOG, STATUS
from linnet.runs.untrusted import has_folder, read_json, unsealed
from linnet.tasks import TASKS

NAMES = (
    *("environment.json", "metrics.jsonl", "metrics.csv", "speed.jsonl", "speed.json", "result.json"),
    *("details.json", "charts.json", "sample.txt", "report.html", "lens.html"),
    *("next.csv", STATUS, LOG),
)
"""The files of a run, without config.json and the files of its task."""
CHECKPOINTS = tuple(
    f"{name}{end}{damaged}"
    for name in ("last", "best")
    for end in ("", ".new", ".old")
    for damaged in ("", ".damaged")
)
EVENTS = ("events.out.tfevents.*", "hparams.yaml", "version_*/metrics.csv", "version_*/hparams.yaml")
"""What loggers write in the folder events/; Weights & Biases has a folder of its own there."""
# A file that `write_atomically` has not renamed yet, and the lock of `claim`.
UNFINISHED = re.compile(r"\..+\.[0-9]+\.[0-9]+")
LOCK = ".lock"


def is_run(folder: Path) -> bool:
    """Return whether Linnet made this folder: it has the settings of a run, or a sealed checkpoint."""
    return has_settings(folder) or any(has_seal(folder / name) for name in CHECKPOINTS)


def has_settings(folder: Path) -> bool:
    try:
        read_config(folder)
    except (OSError, ValueError, Damaged):
        return False
    return True


def has_seal(checkpoint: Path) -> bool:
    try:
        value = read_json(checkpoint / MANIFEST) if has_folder(checkpoint) else None
        return isinstance(value, dict) and bool(unsealed(checkpoint, value))
    except (OSError, Damaged):
        return False


def refuse_occupied(folder: Path) -> None:
    """Raise if the folder is not a run and has files: a run would mix with them."""
    if not folder.is_dir() or is_run(folder):
        return
    others = sorted(
        name
        for name in os.listdir(folder)
        if name not in (LOCK, STATUS, LOG) and not UNFINISHED.fullmatch(name)
    )
    if others:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ValueError(
            f"{folder} is not a run and has other files ({shown}); a run needs a folder of its own: "
            "give another --run-dir"
        )


def delete_run(folder: Path, config: RunConfig) -> None:
    """Delete the files of the run in `folder`, and leave the settings of the run that replaces it.

    Other files remain. The folder has a config.json all the time, so it remains a run if this is interrupted.
    """
    if not is_run(folder):
        raise ValueError(f"{folder} is not a run, so it is not overwritten; give another --run-dir")
    with claim(folder):
        delete_files(folder / name for name in (*NAMES, *assets()))
        delete_files(path for path in folder.iterdir() if UNFINISHED.fullmatch(path.name))
        delete_events(folder / "events")
        for name in CHECKPOINTS:
            delete_checkpoint(folder / name)
        write_atomically(folder / "config.json", to_json(config).encode())


def assets() -> Iterator[str]:
    """Yield the files that tasks keep in a run; of all tasks, because config.json may be damaged."""
    for task in TASKS.values():
        yield from task.files_kept(None)


def delete_files(paths: Iterable[Path]) -> None:
    """Delete files and links; a folder of such a name is not of Linnet."""
    for path in paths:
        if not is_folder(path):
            path.unlink(missing_ok=True)


def delete_checkpoint(path: Path) -> None:
    """Delete the files of a checkpoint, its manifest first: a part of a checkpoint is then not damaged."""
    if is_folder(path):
        delete_files([path / MANIFEST, *(each for each in path.iterdir() if FILES.fullmatch(each.name))])
    delete_rest(path)


def delete_events(path: Path) -> None:
    if is_folder(path):
        delete_files(each for pattern in EVENTS for each in path.glob(pattern))
        shutil.rmtree(path / "wandb", ignore_errors=True)
        for version in path.glob("version_*"):
            delete_rest(version)
    delete_rest(path)


def delete_rest(path: Path) -> None:
    """Delete an empty folder, or a link in its place; a folder with other files remains."""
    delete_files([path])
    if is_folder(path) and not any(path.iterdir()):
        path.rmdir()


def is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
