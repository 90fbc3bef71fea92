"""Interleaved timing: on a shared machine, only calls that run in turn can be compared."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

Call = Callable[[], object]
Say = Callable[[str], None]
Clock = Callable[[], float]
FEWEST = 3  # rounds that are run even if they exceed the time limit
SAMPLE = 0.005  # seconds: shorter calls are repeated to take about this long
FEW = 5  # calls that show how long a short one takes
FINEST = 1e-6  # seconds: the largest step of a clock that can time a call
SLOW = 2.0  # seconds: a first call that takes longer is slow itself, and not only because it compiles


class Times(NamedTuple):
    """The 20th, 50th and 80th percentile of the milliseconds of one call."""

    p20: float
    p50: float
    p80: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        return cls(*(1000 * float(p) for p in np.percentile(seconds, (20, 50, 80))))

    def columns(self) -> dict[str, Any]:
        return {"p20_ms": self.p20, "p50_ms": self.p50, "p80_ms": self.p80}


def race(
    entrants: Mapping[str, Callable[[], Call]],
    rounds: int,
    threads: int,
    seconds: float,
    say: Say,
    device: str = "cpu",
    clock: Clock = time.perf_counter,
) -> dict[str, Times]:
    """Build each entrant on `device`, then call all of them in turn, round after round.

    An entrant that fails is left out, and `say` gets the reason. No round starts after `seconds`, except the
    first three.
    """
    with quiet(threads):
        calls = warm_up(entrants, say, device, clock)
        times: dict[str, list[float]] = {name: [] for name in calls}
        start = time.perf_counter()
        for number in range(rounds):
            for name in rotated(list(calls), number):
                call, repeats = calls[name]
                times[name].append(timed(call, repeats, clock))
            gc.collect()
            if number + 1 >= FEWEST and time.perf_counter() - start > seconds:
                break
    return {name: Times.of(taken) for name, taken in times.items()}


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """Within this context, use `threads` threads and no garbage collection."""
    before, collects = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if collects:
            gc.enable()


def warm_up(
    entrants: Mapping[str, Callable[[], Call]], say: Say, device: str, clock: Clock
) -> dict[str, tuple[Call, int]]:
    """Return each call and how often to repeat it for one sample. The first call compiles the kernels."""
    calls = {}
    for name, build in entrants.items():
        try:
            with torch.device(device):
                call = build()
            first = timed(call, 1, clock)
            calls[name] = (call, 1 if first > SLOW else max(1, round(SAMPLE / usual(call, clock))))
        except Exception as error:  # another package may fail in any way; the race continues without it
            say(f"skipped: {name}: {type(error).__name__}: {error}")
    return calls


def usual(call: Call, clock: Clock) -> float:
    """Return the seconds of a call. Those of a short one are the least of a few: the first takes longer."""
    seconds = timed(call, 1, clock)
    return seconds if seconds >= SAMPLE else min(seconds, *(timed(call, 1, clock) for _ in range(FEW)))


def timed(call: Call, repeats: int, clock: Clock = time.perf_counter) -> float:
    """Return the seconds per call."""
    settle()
    start = clock()
    for _ in range(repeats):
        call()
    settle()
    return (clock() - start) / repeats


def settle() -> None:
    """Wait for the GPU, if one is used: calls return before it has finished."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def rotated(names: list[str], by: int) -> list[str]:
    """Rotate the order, so that each round starts with another entrant."""
    by %= max(1, len(names))
    return names[by:] + names[:by]


def clock_of(threads: int) -> Clock:
    """The clock for layers that run on so many threads.

    With one thread, the processor's time for the process is that of the wall on a quiet machine, and does not
    count other programs on a busy one. Some systems count it in large steps only.
    """
    is_fine = time.get_clock_info("process_time").resolution <= FINEST
    return time.process_time if threads == 1 and is_fine else time.perf_counter
