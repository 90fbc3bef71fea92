"""How many runs a machine can make at the same time."""

from __future__ import annotations

import os
import re
from pathlib import Path

from linnet.runs.errors import log

MEMINFO, OWN, GROUP = Path("/proc/meminfo"), Path("/proc/self/status"), Path("/sys/fs/cgroup")


def possible(threads: int) -> int:
    """Return how many runs with this number of threads the cores and the memory allow, at least one."""
    return max(1, min(cores() // threads, by_memory()))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def by_memory() -> int:
    """Return how many runs fit into the free memory.

    This process has read the data, so a worker needs what it has, and we assume as much again for training.
    Where the system does not say what is free, memory sets no limit.
    """
    own, free = kilobytes(OWN, "VmRSS"), free_memory()
    return free // (2 * own) if own and free is not None else cores()


def free_memory() -> int | None:
    """Return the free memory in kB: of the machine, or of the container if that has less."""
    machine = kilobytes(MEMINFO, "MemAvailable")
    limit, used = (whole_number(GROUP / name) for name in ("memory.max", "memory.current"))
    known = [machine, (limit - used) // 1024 if limit is not None and used is not None else None]
    return min((each for each in known if each is not None), default=None)


def kilobytes(path: Path, name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", path.read_text() if path.exists() else "", re.MULTILINE)
    return int(found[1]) if found else None


def whole_number(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None


def say_shared_cores(count: int, threads: int) -> None:
    """Say that runs compete for the cores; their threads are not changed, as results depend on them."""
    if count * threads > cores():
        log.warning(
            "%d runs of %d threads share %d cores: fewer runs at a time, or --threads, would be faster",
            *(count, threads, cores()),
        )
