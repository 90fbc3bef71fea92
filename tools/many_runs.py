"""Eighteen runs by each launcher, a worker killed in each: the metrics of one run after the other.

    python -m tools.many_runs                             every launcher whose packages are installed
    python -m tools.many_runs --only local:2 submitit:local
    python -m tools.many_runs --only local:2 --kills 0 --steps 5000    its time, on a quiet machine

`linnet compare` trains six units with three seeds, first one after the other. A launcher's command is the
same, and once one of its runs has a checkpoint, the process that trains it is killed with SIGKILL. Every
metrics.jsonl must then be the same, byte for byte. The times are of the whole command.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from linnet.launch.launchers import IN_THIS_PROCESS
from linnet.runs.errors import Damaged
from linnet.runs.status import RUNNING, Status, read_status
from tools import small_tasks

ROOT = Path(__file__).parents[1]
LAUNCHERS = {"local:2": "linnet", "submitit:local": "submitit", "ray": "ray"}
UNITS, SEEDS = ("lrn", "sru", "gru", "lstm", "ran", "scrn"), ("1", "2", "3")
STEPS = 600
PATIENCE = 1800
"""Seconds that a command may take."""


def command(launcher: str, folder: Path, steps: int) -> list[str]:
    settings = {**small_tasks.settings_of("memory.adding", folder), "steps": steps, "log_every": 20}
    del settings["hidden_size"]  # it follows from the budget
    settings |= {"evaluate_every": steps // 3, "checkpoint_steps": max(1, steps // 20)}
    options = [
        word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    runs = ["--units", *UNITS, "--seeds", *SEEDS, "--budget", "5000", "--run-dir", str(folder)]
    return [
        sys.executable,
        "-m",
        "linnet",
        "compare",
        "memory.adding",
        *runs,
        *options,
        "--launcher",
        launcher,
    ]


def run(launcher: str, folder: Path, steps: int, kills: int, chance: random.Random) -> float:
    """Make all runs; return the seconds. Raise AssertionError if the command fails or nothing was killed."""
    folder.mkdir(parents=True)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    began = time.monotonic()
    with open(folder / "output", "w") as output:
        process = subprocess.Popen(
            command(launcher, folder, steps),
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": path},
        )
        killed = kill_workers(process, folder, kills, chance)
        code = process.wait(PATIENCE)
    said = (folder / "output").read_text()
    assert code == 0, f"{launcher} ended with {code}: {said[-2000:]}"
    assert killed == kills, f"{launcher}: {killed} of {kills} workers were killed before the end"
    return time.monotonic() - began


def kill_workers(process: subprocess.Popen, folder: Path, kills: int, chance: random.Random) -> int:
    """Kill workers that have a checkpoint to resume from; return how many were killed."""
    killed: set[int] = set()
    while len(killed) < kills and process.poll() is None:
        time.sleep(0.02)
        pids = {status.pid for status in under_way(folder)} - killed
        if pids:
            chosen = chance.choice(sorted(pids))
            os.kill(chosen, signal.SIGKILL)
            killed.add(chosen)
    return len(killed)


def under_way(folder: Path) -> Iterator[Status]:
    for manifest in folder.glob("*/last/manifest.json"):
        try:
            status = read_status(manifest.parents[1])
        except Damaged:
            continue
        if status and status.state == RUNNING and not status.was_killed:
            yield status


def metrics(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/metrics.jsonl")}


def check_all(launchers: Sequence[str], folder: Path, steps: int, kills: int, seed: int) -> int:
    alone = run(IN_THIS_PROCESS, folder / "alone", steps, 0, random.Random(seed))
    expected, wrong = metrics(folder / "alone"), 0
    assert len(expected) == len(UNITS) * len(SEEDS)
    print(f"{IN_THIS_PROCESS}: {len(expected)} runs in {alone:.1f} s", flush=True)
    for name in launchers:
        own = folder / name.replace(":", "-")
        seconds = run(name, own, steps, kills, random.Random(seed))
        found = metrics(own)
        same = sum(found.get(each) == content for each, content in expected.items())
        wrong += found != expected
        print(
            f"{name}: {same} of {len(expected)} runs the same after {kills} kills, in {seconds:.1f} s, "
            f"{seconds / alone:.2f} of the time of one after the other",
            flush=True,
        )
    return 1 if wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.many_runs", description=__doc__.splitlines()[0])
    known = [name for name, package in LAUNCHERS.items() if find_spec(package)]
    parser.add_argument("--only", nargs="+", default=known, metavar="LAUNCHER", help=f"({' '.join(known)})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"updates of each run ({STEPS})")
    parser.add_argument("--kills", type=int, default=1, help="workers killed in each command (1)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of workers (0)")
    parser.add_argument("--folder", type=Path, help="keep all runs in this folder (a temporary one)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        return check_all(options.only, folder, options.steps, options.kills, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
