"""A run directory: what is in it, how it is written, how it is read.

config.json        the settings, written before the first step
environment.json   versions, commit, machine, threads, the command
metrics.jsonl      a row for each evaluation and each interval of training; on the same machine the same
                   run writes the same rows, to the last digit
metrics.csv        the same numbers, one per line
speed.jsonl        seconds and tokens, and when checkpoints were written: these differ between equal runs
speed.json         tokens per second, measured by `linnet compare` for each model alone
status.json        what the run does now, where, and how far (`status.py`); log.txt: what it has printed, if a
                   launcher has started it
result.json        the figures of the finished run
charts.json        charts of its test, such as some forecasts, if its task has any
details.json       tables of its test besides the figures, such as a confusion matrix, if its task has any
best/, last/       checkpoints, and in last.old/ the one before the last
events/            the files of --logger

All of it is read by `untrusted`: a directory may be damaged, or a stranger's.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from linnet.base import files
from linnet.base.checkout import loaded_commit
from linnet.base.machine import installed_version, processor_name
from linnet.runs.config import RunConfig, changeable, differences, from_dict, to_dict, to_json
from linnet.runs.errors import Damaged, Mismatch, room_for
from linnet.runs.untrusted import (
    LARGE,
    SMALL,
    check,
    check_count,
    check_figures,
    check_finite,
    check_number,
    check_object,
    check_text,
    digest,
    has_file,
    open_file,
    parse_json,
    read_bytes,
    read_json,
    sealed,
    unsealed,
)
from linnet.tasks.results import Section

COLUMNS = ("step", "epoch", "split", "name", "value")
POSITION = COLUMNS[:3]
FIGURES = ("step", "epoch", "tokens", "parameters", "best_step", "valid", "test")
TIMES = ("seconds", "tokens_per_second")
PACKAGES = ("linnet-rnn", "torch", "numpy", "lightning-fabric", "safetensors")

Row = dict[str, Any]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file such that after a crash it has the old content or the new, and nothing in between."""
    with room_for(path):
        files.write_atomically(path, content)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, small_json(path, value))


def small_json(path: Path, value: Any) -> bytes:
    """Return the content of a small file, if `read_json` can read it."""
    content = as_json(value)
    if len(content) > SMALL:
        raise ValueError(f"{path} would have {len(content):,} bytes, and such a file has at most {SMALL:,}")
    return content


def as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def sync(file: IO) -> None:
    file.flush()
    os.fsync(file.fileno())


class Rows:
    """metrics.jsonl and metrics.csv, which can be cut back to where a checkpoint was written."""

    def __init__(self, folder: Path):
        self.paths = self.jsonl, self.csv = folder / "metrics.jsonl", folder / "metrics.csv"

    def add(self, row: Row) -> None:
        line, text = lines_of(row)
        append(self.jsonl, line)
        head = "" if has_file(self.csv) and self.csv.stat().st_size else csv_line(COLUMNS)
        append(self.csv, head + text)

    def lengths(self) -> list[int]:
        """Return the lengths in bytes, after everything is on the disk: a checkpoint relies on them."""
        return [synced_length(path) for path in self.paths]

    def digests(self, lengths: list[int]) -> list[str]:
        """Return the digests of the first bytes of both files."""
        return [digest(path, length) for path, length in zip(self.paths, lengths, strict=True)]

    def check(self, lengths: list[int], digests: list[str]) -> None:
        """Raise if the rows before a checkpoint have changed."""
        for path, length in zip(self.paths, lengths, strict=True):
            refuse_shorter(path, length)
        for path, known, found in zip(self.paths, digests, self.digests(lengths), strict=True):
            check(known == found, path, "rows before the last checkpoint are not those that were written")

    def check_end(self, lengths: list[int], row: Row) -> None:
        """Raise unless this row, and nothing else, follows after these lengths."""
        for path, length, text in zip(self.paths, lengths, lines_of(row), strict=True):
            content = read_bytes(path, LARGE) or b""
            check(content[length:] == text.encode(), path, "its last rows are not those of result.json")

    def count(self, length: int = 0) -> int:
        """Return the number of rows after the first `length` bytes."""
        return (read_bytes(self.jsonl, LARGE) or b"")[length:].count(b"\n")

    def cut(self, lengths: list[int]) -> None:
        for path, length in zip(self.paths, lengths, strict=True):
            cut(path, length)


def lines_of(row: Row) -> tuple[str, str]:
    """Return a row as text for metrics.jsonl and for metrics.csv."""
    return json.dumps(row) + "\n", "".join(map(csv_line, long(row)))


def long(row: Row) -> list[tuple]:
    """Return one line for each number of a row."""
    position = tuple(row.get(name, "") for name in POSITION)
    return [(*position, name, repr(value)) for name, value in row.items() if name not in COLUMNS]


def csv_line(cells: tuple) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def append(path: Path, text: str) -> None:
    with room_for(path), open_file(path, "ab") as file:
        file.write(text.encode())


def synced_length(path: Path) -> int:
    with room_for(path), open_file(path, "ab") as file:
        sync(file)
        return file.tell()


def refuse_shorter(path: Path, length: int) -> None:
    found = path.stat().st_size if has_file(path) else 0
    if found < length:
        raise Damaged(f"{path} has {found} bytes and its checkpoint knows {length}: rows are missing")


def cut(path: Path, length: int) -> None:
    refuse_shorter(path, length)
    with open_file(path, "ab") as file:
        file.truncate(length)
        sync(file)


# ---------------------------------------------------------------------------------- opening a run


def environment() -> Row:
    import torch

    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": sys.argv,
        "commit": loaded_commit(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda
        and [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "packages": {name: found for name in PACKAGES if (found := installed_version(name))},
    }


def make_folder(folder: Path) -> None:
    with room_for(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, FileNotFoundError, PermissionError) as error:
            raise ValueError(
                f"{folder} cannot be a run directory ({error.strerror}); give another --run-dir"
            ) from None


def file_lock(path: Path) -> FileLock:
    has_file(path)
    return FileLock(path)


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; it ends with the process, however that ends."""
    try:
        ours = file_lock(folder / ".lock").acquire(blocking=False)
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


def looks_like_a_run(folder: Path) -> bool:
    """Return whether a folder has any file of a run; whether it is one, `overwrite.is_run` says."""
    return any(os.path.lexists(folder / name) for name in ("config.json", "metrics.jsonl", "last"))


def refuse_other(folder: Path, config: RunConfig) -> None:
    """Raise if the directory has a run with other settings, apart from those that may change."""
    if has_file(folder / "config.json"):
        refuse_changed(f"{folder} holds another run: in config.json", read_config(folder), config)


def refuse_changed(what: str, there: RunConfig, here: RunConfig) -> None:
    changed = differences(there, here, ignore=changeable(here))
    if changed:
        text = "; ".join(f"{name} was {old!r} and is now {new!r}" for name, (old, new) in changed.items())
        raise Mismatch(
            f"{what} {text}. Give another --run-dir, or --overwrite to delete the run and start over"
        )


# ------------------------------------------------------------------------------------- reading


def read_config(folder: Path) -> RunConfig:
    path = Path(folder) / "config.json"
    values = read_json(path)
    if values is None:
        raise FileNotFoundError(f"{folder} is not a run: it has no config.json")
    config = config_from(path, values)
    # Other programs have files of this name, and an empty object would be the defaults.
    check_object(path, "it", values, to_dict(config))
    return config


def config_from(where: object, values: Any) -> RunConfig:
    check_object(where, "it", values)
    try:
        return from_dict(values)
    except (ValueError, TypeError, OverflowError) as error:
        raise Damaged(f"{where}: {error}") from None


def read_rows(path: Path) -> list[Row]:
    """Return the complete rows, without one that is being written."""
    lines = (read_bytes(Path(path), LARGE) or b"").split(b"\n")
    rows = [parse_json(f"{path}, line {number}", line) for number, line in enumerate(lines[:-1], 1)]
    for number, row in enumerate(rows, 1):
        check_object(f"{path}, line {number}", "it", row)
    return rows


def read_metrics(folder: Path, split: str | None = None) -> list[Row]:
    path = Path(folder) / "metrics.jsonl"
    rows = read_rows(path)
    for number, row in enumerate(rows, 1):
        check_row(f"{path}, line {number}", row)
    chosen = [row for row in rows if split is None or row["split"] == split]
    for row in chosen if split == "valid" else ():
        check(row.keys() == chosen[0].keys(), path, f"the row of step {row['step']} has other figures")
    return chosen


def check_row(where: str, row: Row) -> None:
    check_object(where, "it", row, (*POSITION, "loss"))
    for name, value in row.items():
        if name == "split":
            check_text(where, name, value)
        elif name in POSITION:
            check_count(where, name, value)
        else:
            check_number(where, repr(name), value)


def write_result(folder: Path, result: Row) -> None:
    write_json(folder / "result.json", sealed(result))


def read_result(folder: Path) -> Row | None:
    """Return the figures of a finished run; None if it has not finished."""
    path = Path(folder) / "result.json"
    value = read_json(path)
    if value is None:
        return None
    result = unsealed(path, value)
    check_object(path, "it", result, (*FIGURES, *TIMES))
    for name in (*FIGURES[:5], *TIMES):
        (check_finite if name in TIMES else check_count)(path, name, result[name])
    for split in FIGURES[5:]:
        check_figures(path, split, result[split])
    check_baselines(path, result.get("baselines", []))
    return result


def check_baselines(path: Path, found: Any) -> None:
    check(isinstance(found, list), path, "baselines is not a list")
    for each in found:
        check_object(path, "a baseline", each, ("name", "about", "figures"))
        check_text(path, "name", each["name"])
        check_text(path, "about", each["about"])
        check_object(path, "a baseline", each["figures"])
        for name, number in each["figures"].items():
            check_number(path, repr(name), number)


def write_details(folder: Path, sections: Sequence[Section]) -> None:
    """Write the tables of a test, if there are any."""
    if sections:
        write_json(folder / "details.json", details_of(sections))


def details_of(sections: Sequence[Section]) -> Row:
    """Return what details.json holds: of tables that are too large to be read again, the first rows."""
    most = max(len(each.rows) for each in sections)
    made = sealed({"sections": [each._asdict() for each in sections]})
    while len(as_json(made)) > SMALL and most:
        most //= 2
        made = sealed({"sections": [first_rows(each, most)._asdict() for each in sections]})
    return made


def first_rows(section: Section, most: int) -> Section:
    if len(section.rows) <= most:
        return section
    about = f"{section.about} Only the first {most:,} rows are stored."
    return section._replace(rows=section.rows[:most], about=about)


def read_details(folder: Path) -> list[Section]:
    """Return the tables of a test; none if the task has none or the run is not finished."""
    path = Path(folder) / "details.json"
    value = read_json(path)
    if value is None:
        return []
    found = unsealed(path, value)
    check_object(path, "it", found, ("sections",))
    check(isinstance(found["sections"], list), path, "its sections are not a list")
    return [section_from(path, each) for each in found["sections"]]


def section_from(path: Path, value: Any) -> Section:
    check_object(path, "a section", value, Section._fields)
    for name in ("title", "about"):
        check_text(path, name, value[name])
    head, rows = value["head"], value["rows"]
    right = isinstance(rows, list) and all(is_strings(row) and len(row) == len(head) for row in [head, *rows])
    check(right, path, "each row of a section must be a list of as many strings as its head")
    return Section(value["title"], value["about"], tuple(head), tuple(tuple(row) for row in rows))


def is_strings(row: Any) -> bool:
    return isinstance(row, list) and all(isinstance(cell, str) for cell in row)


def write_speed(folder: Path, tokens_per_second: float) -> None:
    """Record the training speed that was measured with nothing else running."""
    write_json(folder / "speed.json", {"tokens_per_second": tokens_per_second})


def read_speed(folder: Path) -> float | None:
    path = Path(folder) / "speed.json"
    found = read_json(path)
    if found is None:
        return None
    check_object(path, "it", found, ("tokens_per_second",))
    check_finite(path, "tokens_per_second", found["tokens_per_second"])
    return found["tokens_per_second"]


def read_environment(folder: Path) -> Row | None:
    path = Path(folder) / "environment.json"
    found = read_json(path)
    if found is not None:
        check_object(path, "it", found, ("started", "processor", "threads", "packages"))
        check_object(path, "packages", found["packages"])
    return found
