"""The kill test: a command that is killed and repeated must end with the results of one that was not.

    python -m tools.kills --kills 2 --seed 0
    python -m tools.kills --only read compare

`linnet train` of every task in TASKS, `linnet compare` and `linnet search`, with the small settings of
small_tasks.py, run as processes of their own. Each is killed with SIGKILL at random moments, after a random
number of writes, and the same command is started again, until it ends. All files that it leaves, and its
last lines, must then be those of an undisturbed run, to the last byte, apart from times. The settings that a
search draws are random, so each of its runs is compared with an undisturbed training with the same settings.

The seed determines the units, the optimisers and the moments; what a process is doing at a moment varies.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tools import small_tasks
from tools.outcomes import Wrong

ROOT = Path(__file__).parents[1]
RUN = "run"  # the folder that a command writes
KILLS = 2
PATIENCE = 300  # seconds that a command may take
OFTEN = {"log_every": 1, "evaluate_every": 7, "checkpoint_steps": 2, "checkpoint_seconds": 0}
"""Most of the time of a small run should be spent on writing: that is what a kill can damage."""
NOISE = {"lm": {"input_dropout": 0.2}}
"""Where a task has no dropout by default: a run that was resumed must draw the masks that come next."""
UNITS = ("lrn", "sru", "gru", "lstm", "ran", "scrn", "nru")
OPTIMISERS = ("adam", "adamw", "sgd", "nt-asgd", "adadelta")
STEPS = {"train": 120, "compare": 60, "search": 60}
SEARCHED = 3  # runs of a search
WITH_TIMES = ("environment.json", "speed.json", "speed.jsonl", "status.json", "log.txt")
TIMES = (
    "seconds",
    "spent",
    "evaluated_at",
    "tokens_per_second",
    "seal",
)  # the seal is a digest of the others


class Command(NamedTuple):
    """A command of Linnet, and what compares the folder of one that was killed with an undisturbed one."""

    name: str
    words: list[str]
    compare: Callable[[Path, Path], None]


class Pace(NamedTuple):
    """How often an undisturbed command adds or renames files, and the seconds from one time to the next."""

    writes: int
    seconds: float


# --------------------------------------------------------------------------------------- commands


def commands(files: Path, chance: random.Random) -> Iterator[Command]:
    """Yield a training of each task, a comparison and a search; `files` has their data."""
    tasks = list(small_tasks.SETTINGS)
    for task in tasks:
        own = {"unit": chance.choice(UNITS), "optimiser": chance.choice(OPTIMISERS)}
        yield Command(task, words("train", task, files, own), compare_folders)
    comparison = ["--units", "lrn", "gru", "--seeds", "1", "2", "--budget", "5000"]
    yield Command("compare", [*words("compare", chance.choice(tasks), files), *comparison], compare_folders)
    storage = chance.choice(["study.log", "sqlite:///study.db"])
    plan = ["--runs", str(SEARCHED), "--per-round", "2", "--storage", storage]
    yield Command("search", [*words("search", chance.choice(tasks), files), *plan], compare_searches)


def words(command: str, task: str, files: Path, own: Mapping[str, Any] = {}) -> list[str]:
    settings = {**small_tasks.settings_of(task, files), **OFTEN, **NOISE.get(task, {}), **own}
    if command == "compare":
        del settings["hidden_size"]  # it follows from the budget
    options = {**settings, "steps": STEPS[command], "run_dir": RUN}
    return [command, task, *(word for name, value in options.items() for word in (flag(name), str(value)))]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class Process:
    """A command that was started in a folder; what it prints is in files of that folder."""

    def __init__(self, command: Sequence[str], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.began = folder, time.monotonic()
        self.before = last_change(folder / RUN)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        with open(folder / "output", "w") as output, open(folder / "errors", "a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "linnet", *command],
                cwd=folder,
                stdout=output,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path, "LINNET_CACHE": str(folder / "cache")},
            )

    def watch(self, most: float = math.inf) -> int:
        """Wait until the process has written `most` times, or has ended; return how often it has written."""
        writes, last = 0, self.before
        while writes < most and not self.has_ended():
            now = last_change(self.folder / RUN)
            if now == last:
                time.sleep(0.002)
            writes, last = writes + (now != last), now
        return writes

    def has_ended(self) -> bool:
        if self.process.poll() is not None:
            return True
        if time.monotonic() - self.began > PATIENCE:
            self.kill()
            raise Wrong(f"it hangs: {self.said()}")
        return False

    def wait(self, seconds: float = PATIENCE) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        """Wait for the end, which must be a success."""
        self.wait()
        if not self.has_ended() or self.process.returncode != 0:
            raise Wrong(f"it ended with {self.process.returncode}: {self.said()}")

    def said(self) -> str:
        return "".join((self.folder / name).read_text()[-2000:] for name in ("output", "errors"))


def last_change(folder: Path) -> int:
    """Return when a file of a run, or of the runs in a folder, was last added, renamed or removed."""
    times = [0]
    for each in (folder, *folder.glob("*")):
        with suppress(FileNotFoundError, NotADirectoryError):
            times.append(each.stat().st_mtime_ns)
    return max(times)


# ------------------------------------------------------------------------------------------ kills


def check(command: Command, folder: Path, kills: int, chance: random.Random) -> int:
    """Kill a command at least `kills` times; return how often it was killed. Raise Wrong for a difference."""
    pace = run_undisturbed(command, folder / "whole")
    made = 0
    for number in count(1):
        killed = folder / f"killed-{number}"
        made += run_with_kills(command, killed, pace, kills - made, made, chance)
        command.compare(folder / "whole", killed)
        if made >= kills:
            return made
        if number > 10 * kills:
            raise Wrong("it ends before every kill")
    raise AssertionError("count() never ends")


def run_undisturbed(command: Command, folder: Path) -> Pace:
    process = Process(command.words, folder)
    process.watch(1)
    began = time.monotonic()
    writes = process.watch()
    process.finish()
    return Pace(writes, (time.monotonic() - began) / writes)


def run_with_kills(
    command: Command, folder: Path, pace: Pace, most: int, made: int, chance: random.Random
) -> int:
    """Start a command again after each kill, until it ends; return the number of kills, at most `most`."""
    for kills in range(most):
        process = Process(command.words, folder)
        # Moments are drawn by writes: by time, most would fall into the drawing of a page at the end.
        writes, pause = process.watch(chance.randint(1, pace.writes)), chance.uniform(0, pace.seconds)
        process.wait(pause)
        if process.has_ended():
            process.finish()
            return kills
        process.kill()
        step = ", ".join(checkpoint_steps(folder / RUN)) or "none"
        when = f"{writes} of {pace.writes} writes and {pause:.3f} s"
        print(f"{command.name}: kill {made + kills + 1} after {when}; checkpoint: {step}", flush=True)
    Process(command.words, folder).finish()
    return most


def checkpoint_steps(folder: Path) -> list[str]:
    """Return the step of the last checkpoint of each run in a folder."""
    manifests = [*folder.glob("last/manifest.json"), *sorted(folder.glob("*/last/manifest.json"))]
    return [str(json.loads(path.read_bytes())["step"]) for path in manifests]


# ------------------------------------------------------------------------------------- comparison


def compare_folders(whole: Path, killed: Path) -> None:
    """Raise Wrong unless both folders have the same files, and the commands ended with the same words."""
    compare_runs(whole / RUN, killed / RUN)
    for name, read in (("output", conclusion), ("errors", complaints)):
        if read(whole / name) != read(killed / name):
            texts = "\n---\n".join(read(each / name) for each in (whole, killed))
            raise Wrong(f"other {name} after a kill:\n{texts}")


def compare_runs(whole: Path, killed: Path) -> None:
    expected, found = names_of(whole), names_of(killed)
    if expected != found:
        raise Wrong(f"missing: {sorted(expected - found)}, unexpected: {sorted(found - expected)}")
    differ = [name for name in sorted(found) if content(whole / name) != content(killed / name)]
    if differ:
        raise Wrong(f"{', '.join(differ)} in {killed} differ from those of an undisturbed run")


def compare_searches(whole: Path, killed: Path) -> None:
    """The undisturbed search has drawn other settings, so each run is made again alone."""
    # Imported here, not above: every process of the soak imports this file, and none of them needs Fabric.
    from linnet.runs.records import read_config
    from linnet.train.loop import train

    runs = sorted(path.parent for path in (killed / RUN).glob("*/config.json"))
    best = f"the best of {SEARCHED} runs is {RUN}/"
    if len(runs) != SEARCHED or best not in (killed / "output").read_text():
        raise Wrong(f"{len(runs)} runs instead of {SEARCHED}: {conclusion(killed / 'output')}")
    for run in runs:
        train(read_config(run), killed / "alone" / run.name)
        compare_runs(killed / "alone" / run.name, run)
    if complaints(killed / "errors") != complaints(whole / "errors"):
        raise Wrong(complaints(killed / "errors"))


def names_of(folder: Path) -> set[str]:
    """Return the files whose contents follow from the settings.

    Hidden files are locks, and temporary files of processes that were killed. Which checkpoint is the one
    before the last depends on the kills.
    """
    paths = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {
        str(path)
        for path in paths
        if path.name not in WITH_TIMES and "last.old" not in path.parts and not path.name.startswith(".")
    }


def content(path: Path) -> Any:
    """Return what must be equal of a file."""
    if path.name in ("result.json", "manifest.json"):
        return without_times(json.loads(path.read_bytes()))
    if path.name == "report.html":
        cells = re.findall(r'<td data-label="(.*?)">(.*?)</td>', path.read_text(encoding="utf-8"))
        return [cell for cell in cells if cell[0] != "tokens/s"]
    return path.read_bytes()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMES}
    return value


ON_THE_WAY = re.compile(r" steps done$|epoch \d+  step \d+  |^measuring |^the first curves|tokens/s; the run")


def conclusion(output: Path) -> str:
    """Return the lines in which a command says its results, without the speeds at the end of a table."""
    lines = [line for line in output.read_text().splitlines() if not ON_THE_WAY.search(line)]
    ends = [number for number, line in enumerate(lines) if line.endswith("tokens/s")]
    for number in range(ends[0] + 1 if ends else len(lines), len(lines)):
        if not lines[number]:
            break
        lines[number] = re.sub(r" +[\d,]+$", "", lines[number])
    return "\n".join(lines)


def complaints(errors: Path) -> str:
    """Return the warnings of all processes, each once, without the one that follows from an early kill."""
    lines = sorted(set(errors.read_text().splitlines()))
    return "\n".join(line for line in lines if " has no checkpoint yet: it starts from step 0" not in line)


# ------------------------------------------------------------------------------------------- main


def check_all(kills: int, seed: int, folder: Path, only: Sequence[str] = ()) -> int:
    """Kill every command, or only those named; return 1 if one of them is wrong."""
    began, made, wrong = time.monotonic(), 0, []
    small_tasks.write_files(folder / "files")
    for command in chosen(commands(folder / "files", random.Random(seed)), only):
        try:
            killed = check(command, folder / command.name, kills, random.Random(f"{seed} {command.name}"))
        except Exception as error:  # a command may leave files that cannot be read
            print(f"wrong: {command}: {type(error).__name__}: {error}", flush=True)
            wrong.append(command.name)
        else:
            made += killed
            print(f"{command.name}: the same results after {killed} kills", flush=True)
    close(seed, kills, (time.monotonic() - began) / 60, made, wrong)
    return 1 if wrong else 0


def chosen(known: Iterable[Command], only: Sequence[str]) -> list[Command]:
    return [command for command in known if not only or command.name in only]


def close(seed: int, kills: int, minutes: float, made: int, wrong: Sequence[str]) -> None:
    print(f"seed {seed}, {minutes:.1f} minutes: {made} kills with the same results")
    print(f"{len(wrong)} wrong")
    for name in wrong:
        print(f"    python -m tools.kills --kills {kills} --seed {seed} --only {name}")


def run(kills: int, seed: int, only: Sequence[str] = ()) -> int:
    with tempfile.TemporaryDirectory() as name:
        return check_all(kills, seed, Path(name), only)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kills", description=__doc__.splitlines()[0])
    names = [*small_tasks.SETTINGS, "compare", "search"]
    parser.add_argument("--kills", type=int, default=KILLS, help=f"of each command, at least ({KILLS})")
    parser.add_argument("--seed", type=int, default=0, help="of units, optimisers and moments (0)")
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="NAME", help=", ".join(names))
    parser.add_argument("--folder", type=Path, help="keep all runs in this folder (a temporary one)")
    options = parser.parse_args(arguments)
    if options.folder:
        return check_all(options.kills, options.seed, options.folder.absolute(), options.only)
    return run(options.kills, options.seed, options.only)


if __name__ == "__main__":
    raise SystemExit(main())
