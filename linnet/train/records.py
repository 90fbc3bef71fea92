"""A run directory: what is in it, how it is written, how it is read.

config.json        the settings, written before the first step
environment.json   versions, machine, threads, the command
metrics.jsonl      one row for each evaluation and each stretch of training: the same, to the last
                   digit, whenever the same run is made on the same machine
metrics.csv        the same numbers, one to a line
speed.jsonl        seconds and tokens a second: not the same twice, so kept apart
result.json        the figures of the finished run
best/, last/       checkpoints
events/            for TensorBoard, if asked for
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from linnet.train.config import LATER, RunConfig, differences, from_json, to_json
from linnet.train.errors import Mismatch, room_for

COLUMNS = ("step", "epoch", "split", "name", "value")
PACKAGES = ("linnet", "torch", "numpy", "lightning-fabric", "safetensors")

Row = dict[str, Any]


def write_atomically(path: Path, content: bytes) -> None:
    """The old file or the new one, whole, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with room_for(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                sync(file)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2) + "\n").encode())


def sync(file: IO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """A rename is safe only when its folder is."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Rows:
    """metrics.jsonl and metrics.csv, which can be cut back to where a checkpoint was written."""

    def __init__(self, folder: Path):
        self.jsonl, self.csv = folder / "metrics.jsonl", folder / "metrics.csv"

    def add(self, row: Row) -> None:
        append(self.jsonl, json.dumps(row) + "\n")
        text = "" if self.csv.exists() and self.csv.stat().st_size else csv_line(COLUMNS)
        append(self.csv, text + "".join(map(csv_line, long(row))))

    def lengths(self) -> list[int]:
        """In bytes, and safe on the disk: a checkpoint is about to rely on them."""
        return [synced_length(path) for path in (self.jsonl, self.csv)]

    def cut(self, lengths: list[int]) -> None:
        for path, length in zip((self.jsonl, self.csv), lengths, strict=True):
            cut(path, length)


def long(row: Row) -> list[tuple]:
    """One line for each number of a row."""
    place = tuple(row.get(name, "") for name in COLUMNS[:3])
    return [(*place, name, repr(value)) for name, value in row.items() if name not in COLUMNS]


def csv_line(cells: tuple) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def append(path: Path, text: str) -> None:
    with room_for(path), open(path, "a", encoding="utf-8") as file:
        file.write(text)


def synced_length(path: Path) -> int:
    with room_for(path), open(path, "ab") as file:
        sync(file)
        return file.tell()


def cut(path: Path, length: int) -> None:
    with open(path, "ab") as file:
        if file.tell() < length:
            raise Mismatch(
                f"{path} has {file.tell()} bytes and its checkpoint knows {length}: rows are missing"
            )
        file.truncate(length)
        sync(file)


# ---------------------------------------------------------------------------------- opening a run


def environment() -> Row:
    import torch

    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda
        and [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def make_folder(folder: Path) -> None:
    with room_for(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError) as error:
            raise ValueError(
                f"{folder} cannot be a run directory ({error.strerror}); give another --run-dir"
            ) from None


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Within this, the folder is this process's; however the process ends, it no longer is."""
    try:
        ours = FileLock(folder / ".lock").acquire(blocking=False)
    except Timeout:
        raise Mismatch(
            f"another process is training in {folder}; wait for it, or give another --run-dir"
        ) from None
    with ours:
        yield


def open_run(folder: Path, config: RunConfig) -> None:
    """Write the settings, before the first step."""
    write_atomically(folder / "config.json", to_json(config).encode())
    write_json(folder / "environment.json", environment())


def refuse_other(folder: Path, config: RunConfig) -> None:
    """A directory that holds a run holds this one, or one that may become it by going on for longer."""
    if not (folder / "config.json").exists():
        return
    changed = differences(read_config(folder), config, ignore=LATER)
    if changed:
        text = "; ".join(f"{name} was {old!r} and is now {new!r}" for name, (old, new) in changed.items())
        raise Mismatch(
            f"{folder} holds another run: {text}. Give another --run-dir, or --overwrite to begin anew"
        )


# ------------------------------------------------------------------------------------- reading


def read_config(folder: Path) -> RunConfig:
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder} is no run: it has no config.json")
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_rows(path: Path) -> list[Row]:
    """The whole rows; one that is being written is left out."""
    if not Path(path).exists():
        return []
    lines = Path(path).read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def read_metrics(folder: Path, split: str | None = None) -> list[Row]:
    rows = read_rows(Path(folder) / "metrics.jsonl")
    return [row for row in rows if split is None or row["split"] == split]


def read_json(path: Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else None


def read_result(folder: Path) -> Mapping[str, Any] | None:
    return read_json(Path(folder) / "result.json")
