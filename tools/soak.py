"""The soak: hours of random shapes and options in search of a wrong result, a leak or a crash.

    python -m tools.soak --minutes 60 --seed 0
    python -m tools.soak --case parity:17

A case follows from its number alone. What is done with it:

    parity    by the kernel and by the loop: output, state and gradients must agree
    threads   several Python threads run it at once; each must get what one alone gets
    fork      a forked process checks its parity
    kill      of two processes that compile it at once into one empty cache, one is killed; the other,
              and one that comes after, must check its parity
    memory    repeated, it must not make the process grow
    others    what users do to modules: see attacks.py

The work is done in processes of its own, so that a crash, too, ends with the number of its case.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, pairwise
from pathlib import Path

import torch

from linnet.bench.memory import resident, trim
from tools import attacks
from tools.cases import Case, Wrong, compare, draw, results

ROOT = Path(__file__).parents[1]
SHARES = {
    **{"parity": 50, "threads": 6, "fork": 6, "memory": 2, "kill": 1},
    **{"changed": 5, "hooks": 10, "watched": 10, "misfit": 10, "races": 5},
}
PATIENCE = 300  # seconds that a process or a thread may take for one case
MOST_WRONG = 10  # after which there is no point in going on
A_PART = 300  # cases for one process; with each kernel LLVM keeps some memory for good (docs/log.md)
SLACK = 1.0  # megabytes of growth that are no leak


# -------------------------------------------------------------------------------- what is checked


def check_parity(case: Case) -> None:
    by_kernel, again = results(case, "cpu"), results(case, "cpu")
    compare(case, by_kernel, results(case, "reference"))
    for name, tensor in by_kernel.items():
        if not torch.equal(tensor, again[name]):
            raise Wrong(f"{name} differs from run to run")


def check_threads(case: Case, many: int = 3) -> None:
    """Not to the bit: where threads are scarce, torch may add up its products in another order."""
    # Noise is drawn from one source, in whichever order the threads come to it.
    case = replace(case, training=False, built=[])
    alone = results(case, "cpu", fresh=False)
    found: list[object] = []

    def run() -> None:
        try:
            found.append(results(case, "cpu", fresh=False))
        except BaseException as error:  # told to whoever waits
            found.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if len(found) < many:
        raise Wrong("a thread hangs")
    for other in found:
        if not isinstance(other, dict):
            raise Wrong(f"a thread failed: {other!r}")
        compare(case, other, alone)


def check_fork(case: Case) -> None:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # torch's threads do not survive a fork, so its own workers run on one: see torch.utils.data.
        torch.set_num_threads(1)
        os._exit(exit_code(case.alone(), check_parity))
    status = wait_for(child)
    if status is None:
        raise Wrong("a forked process hangs")
    if status:
        raise Wrong(f"a forked process ended with {status}")


def wait_for(child: int) -> int | None:
    """The exit code, or minus the signal; None if it had to be killed."""
    for _ in range(PATIENCE * 20):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def check_kill(case: Case) -> None:
    chance = random.Random(case.number)
    with tempfile.TemporaryDirectory() as cache:
        killed, other = (start_case(case, cache) for _ in range(2))
        wait_for_line(killed)
        time.sleep(chance.uniform(0, 0.5))
        killed.kill()
        killed.communicate()
        finish_case(other, "beside one that was killed")
        finish_case(start_case(case, cache), "after one that was killed")


def start_case(case: Case, cache: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.soak", "--case", f"parity:{case.number}"]
    environment = {**os.environ, "LINNET_CACHE": cache}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def wait_for_line(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def finish_case(process: subprocess.Popen[str], when: str) -> None:
    try:
        told, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Wrong(f"a process {when} hangs") from None
    if process.returncode:
        raise Wrong(f"a process {when} ended with {process.returncode}: {told.strip()}")


def check_memory(case: Case, times: int = 30) -> None:
    """A leak grows each time; what grows once or twice is a heap that finds its size."""
    results(case, "cpu")
    sizes = []
    for _ in range(4):
        for _ in range(times):
            results(case, "cpu", fresh=False)
        trim()
        sizes.append(resident())
    growth = min(after - before for before, after in pairwise(sizes))
    if growth > SLACK:
        raise Wrong(f"{times} runs more make the process grow by {growth:.1f} MB each time")


CHECKS: dict[str, Callable[[Case], None]] = {
    "parity": check_parity,
    "threads": check_threads,
    "fork": check_fork,
    "memory": check_memory,
    "kill": check_kill,
    "changed": attacks.check_changed,
    "hooks": attacks.check_hooks,
    "watched": attacks.check_watched,
    "misfit": attacks.check_misfit,
    "races": attacks.check_races,
}


def exit_code(case: Case, check: Callable[[Case], None]) -> int:
    """0 where all is well, 1 and a line where it is not."""
    try:
        check(case)
    except Exception as error:  # a check may fail in any way
        print(f"wrong: {case}: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0


# ---------------------------------------------------------------------------------------- the work


@dataclass
class Tally:
    """What has been done so far, by one process after the other."""

    began: float
    counts: dict[str, int]
    wrong: list[str]

    @classmethod
    def read(cls, path: Path) -> Tally:
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Soak:
    """Case after case, until the time is up or there have been so many that a fresh process is due."""

    def __init__(self, minutes: float, seed: int, folder: Path, part: int = 0):
        self.minutes, self.folder, self.part = minutes, folder, part
        self.order = random.Random(f"{seed} {part}")
        self.tally = Tally.read(folder / "tally")
        self.told = time.monotonic()

    def run(self) -> int:
        # Each check once at first, however short the time.
        kinds = list(CHECKS) if self.part == 0 else []
        for _ in range(A_PART):
            if (not kinds and self.elapsed() > self.minutes) or len(self.tally.wrong) >= MOST_WRONG:
                break
            kind = kinds.pop() if kinds else self.order.choices(list(SHARES), list(SHARES.values()))[0]
            self.one(kind, self.order.randrange(1 << 31))
            self.tell()
        self.tally.write(self.folder / "tally")
        return 1 if self.tally.wrong else 0

    def one(self, kind: str, number: int) -> None:
        (self.folder / "now").write_text(f"{kind}:{number}", encoding="utf-8")
        case = draw(number)
        torch.set_num_threads(case.threads)
        self.tally.counts[kind] = self.tally.counts.get(kind, 0) + 1
        if exit_code(case, CHECKS[kind]):
            self.tally.wrong.append(f"{kind}:{number}")
            print(f"to see it again: {again(self.tally.wrong[-1])}", flush=True)

    def elapsed(self) -> float:
        return (time.time() - self.tally.began) / 60

    def tell(self) -> None:
        if time.monotonic() - self.told > 10:
            self.told = time.monotonic()
            counts = "  ".join(f"{kind} {self.tally.counts.get(kind, 0)}" for kind in CHECKS)
            kernels = len(list((self.folder / "cache").glob("*.o")))
            print(f"{self.elapsed():6.1f} min  {counts}  kernels {kernels}  {resident():.0f} MB", flush=True)


def again(name: str) -> str:
    return f"python -m tools.soak --case {name}"


def work(minutes: float, seed: int, folder: Path, part: int) -> int:
    os.environ["LINNET_CACHE"] = str(folder / "cache")
    return Soak(minutes, seed, folder, part).run()


def supervise(minutes: float, seed: int) -> int:
    """Process after process, since each grows with the kernels it has made; if one dies, in which case."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Tally(time.time(), {}, []).write(folder / "tally")
        for part in count():
            code = run_part(minutes, seed, folder, part)
            tally = Tally.read(folder / "tally")
            if code or time.time() - tally.began > 60 * minutes:
                close(seed, tally)
                return 1 if code else 0
    raise AssertionError("count() ends never")


def run_part(minutes: float, seed: int, folder: Path, part: int) -> int:
    command = [sys.executable, "-m", "tools.soak", "--minutes", str(minutes), "--seed", str(seed)]
    command += ["--part", str(part), "--folder", str(folder)]
    code = subprocess.run(command, check=False, cwd=ROOT).returncode
    if code not in (0, 1):
        last = (folder / "now").read_text(encoding="utf-8")
        print(f"the process died with {code} in the case {last}: {again(last)}")
    return code


def close(seed: int, tally: Tally) -> None:
    counts = ", ".join(f"{kind} {number}" for kind, number in tally.counts.items())
    spent = (time.time() - tally.began) / 60
    print(f"seed {seed}, {spent:.1f} minutes: {sum(tally.counts.values())} cases ({counts})")
    print(f"{len(tally.wrong)} wrong")
    for name in tally.wrong:
        print(f"    {again(name)}")


def one_case(name: str) -> int:
    kind, _, number = name.partition(":")
    if kind not in CHECKS or not number.isdigit():
        print(f"a case is one of {', '.join(CHECKS)}, a colon and a number; got {name!r}", file=sys.stderr)
        return 2
    case = draw(int(number))
    torch.set_num_threads(case.threads)
    print(case, flush=True)
    return exit_code(case, CHECKS[kind])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the cases (0)")
    parser.add_argument("--case", help="this one alone, as it was told: parity:17")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        return one_case(options.case)
    if options.folder:
        return work(options.minutes, options.seed, options.folder, options.part)
    return supervise(options.minutes, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
