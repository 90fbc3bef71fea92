"""The soak test: hours of random shapes and options, to find wrong results, leaks and crashes.

    python -m tools.soak --minutes 60 --seed 0
    python -m tools.soak --case parity:17

The number of a case determines its unit, options, sizes and dtype. The checks:

    parity    output, state and gradients of the kernel must agree with those of the reference loop
    threads   several Python threads run the case at once; each must get the result of a single thread
    fork      a forked process checks parity
    kill      two processes compile the case into one empty cache, and one is killed; the other, and a
              later one, must pass the parity check
    memory    repeated runs must not increase the memory of the process
    others    changes that users make to modules (attacks.py); first calls in threads of fresh processes,
              changed numbers of quantised modules, and empty batches (edges.py)

Child processes run the cases, so that the number of a case is known even after a crash. After the cases,
`linnet train`, `compare` and `search` are killed and repeated: see kills.py.
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

from benchmarks.memory import resident, trim
from tools import attacks, edges, kills
from tools.cases import Case, draw
from tools.outcomes import Wrong, compare, results

ROOT = Path(__file__).parents[1]
SHARES = {
    **{"parity": 50, "threads": 6, "fork": 6, "memory": 2, "kill": 1},
    **{"changed": 5, "hooks": 10, "watched": 10, "misfit": 10, "races": 5, "stream": 10},
    **{"first": 2, "buffers": 6, "empty": 4},
}
PATIENCE = 300  # seconds that a process or a thread may take for one case
MOST_WRONG = 10  # wrong cases after which the soak stops
A_PART = 300  # cases for one process; LLVM does not free all memory of a kernel (docs/log.md)
SLACK = 1.0  # megabytes of growth that do not count as a leak


# ----------------------------------------------------------------------------------------- checks


def check_parity(case: Case) -> None:
    by_kernel, again = results(case, "cpu"), results(case, "cpu")
    compare(case, by_kernel, results(case, "reference"))
    for name, tensor in by_kernel.items():
        if not torch.equal(tensor, again[name]):
            raise Wrong(f"{name} differs from run to run")


def check_threads(case: Case, many: int = 3) -> None:
    """Compare with a tolerance: with few free cores, torch may sum products in another order."""
    # Without noise: all threads draw it from one generator, in an order that varies.
    case = replace(case, training=False, built=[])
    alone = results(case, "cpu", fresh=False)
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(results(case, "cpu", fresh=False))
        except BaseException as error:  # reported below, in the main thread
            outcomes.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if len(outcomes) < many:
        raise Wrong("a thread hangs")
    for other in outcomes:
        if not isinstance(other, dict):
            raise Wrong(f"a thread failed: {other!r}")
        compare(case, other, alone)


def check_fork(case: Case) -> None:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # torch's threads do not survive a fork, so the child uses one, as workers of torch.utils.data do.
        torch.set_num_threads(1)
        os._exit(exit_code(case.alone(), check_parity))
    status = wait_for(child)
    if status is None:
        raise Wrong("a forked process hangs")
    if status:
        raise Wrong(f"a forked process ended with {status}")


def wait_for(child: int) -> int | None:
    """Return the exit code, or minus the signal; None if the child hangs and was killed."""
    for _ in range(PATIENCE * 20):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
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
        finish_case(other, "at the same time as one that was killed")
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
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Wrong(f"a process {when} hangs") from None
    if process.returncode:
        raise Wrong(f"a process {when} ended with {process.returncode}: {output.strip()}")


def check_memory(case: Case, times: int = 30) -> None:
    """Raise if memory grows every time; growing once or twice is normal for a heap."""
    results(case, "cpu")
    sizes = []
    for _ in range(4):
        for _ in range(times):
            results(case, "cpu", fresh=False)
        trim()
        sizes.append(resident())
    growth = min(after - before for before, after in pairwise(sizes))
    if growth > SLACK:
        raise Wrong(f"each {times} runs increase the memory of the process by at least {growth:.1f} MB")


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
    "stream": attacks.check_stream,
    "first": edges.check_first,
    "buffers": edges.check_buffers,
    "empty": edges.check_empty,
}


def exit_code(case: Case, check: Callable[[Case], None]) -> int:
    """Return 0 if the check passes; otherwise print a line and return 1."""
    try:
        check(case)
    except Exception as error:  # a check may fail in any way
        print(f"wrong: {case}: {type(error).__name__}: {error}", flush=True)
        return 1
    return 0


# ------------------------------------------------------------------------------------------- runs


@dataclass
class Tally:
    """The cases so far, of all child processes."""

    began: float
    counts: dict[str, int]
    wrong: list[str]

    @classmethod
    def read(cls, path: Path) -> Tally:
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


class Soak:
    """Runs cases in one process, until the time is up or there were A_PART cases."""

    def __init__(self, minutes: float, seed: int, folder: Path, part: int = 0):
        self.minutes, self.folder, self.part = minutes, folder, part
        self.order = random.Random(f"{seed} {part}")
        self.tally = Tally.read(folder / "tally")
        self.reported = time.monotonic()

    def run(self) -> int:
        # Run each check once first, even if the time is short.
        kinds = list(CHECKS) if self.part == 0 else []
        for _ in range(A_PART):
            if (not kinds and self.elapsed() > self.minutes) or len(self.tally.wrong) >= MOST_WRONG:
                break
            kind = kinds.pop() if kinds else self.order.choices(list(SHARES), list(SHARES.values()))[0]
            self.one(kind, self.order.randrange(1 << 31))
            self.report()
        self.tally.write(self.folder / "tally")
        return 1 if self.tally.wrong else 0

    def one(self, kind: str, number: int) -> None:
        (self.folder / "now").write_text(f"{kind}:{number}", encoding="utf-8")
        case = draw(number)
        torch.set_num_threads(case.threads)
        self.tally.counts[kind] = self.tally.counts.get(kind, 0) + 1
        if exit_code(case, CHECKS[kind]):
            self.tally.wrong.append(f"{kind}:{number}")
            print(f"to repeat it: {again(self.tally.wrong[-1])}", flush=True)

    def elapsed(self) -> float:
        return (time.time() - self.tally.began) / 60

    def report(self) -> None:
        """Print a line, at most every ten seconds."""
        if time.monotonic() - self.reported > 10:
            self.reported = time.monotonic()
            counts = "  ".join(f"{kind} {self.tally.counts.get(kind, 0)}" for kind in CHECKS)
            kernels = len(list((self.folder / "cache").glob("*.o")))
            print(f"{self.elapsed():6.1f} min  {counts}  kernels {kernels}  {resident():.0f} MB", flush=True)


def again(name: str) -> str:
    return f"python -m tools.soak --case {name}"


def work(minutes: float, seed: int, folder: Path, part: int) -> int:
    os.environ["LINNET_CACHE"] = str(folder / "cache")
    return Soak(minutes, seed, folder, part).run()


def supervise(minutes: float, seed: int) -> int:
    """Run one child process after another, as each grows with its kernels; report the case if one dies."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Tally(time.time(), {}, []).write(folder / "tally")
        for part in count():
            code = run_part(minutes, seed, folder, part)
            tally = Tally.read(folder / "tally")
            if code or time.time() - tally.began > 60 * minutes:
                close(seed, tally)
                return 1 if code else 0
    raise AssertionError("count() never ends")


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
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to run (60)")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the cases (0)")
    parser.add_argument("--case", help="run only this case, such as parity:17")
    parser.add_argument(
        "--kills", type=int, default=kills.KILLS, help="kills of each command afterwards (%(default)s)"
    )
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case:
        return one_case(options.case)
    if options.folder:
        return work(options.minutes, options.seed, options.folder, options.part)
    code = supervise(options.minutes, options.seed)
    return max(code, kills.run(options.kills, options.seed)) if options.kills else code


if __name__ == "__main__":
    raise SystemExit(main())
