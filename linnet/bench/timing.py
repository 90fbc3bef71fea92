"""Interleaved timing: on a machine that others use too, only what runs in turn can be compared."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from linnet.bench.rows import Say

Call = Callable[[], object]
FEWEST = 3  # rounds that are run even when the time is up
SAMPLE = 0.005  # seconds: what is shorter is called several times in a row
SLOW = 2.0  # seconds: longer than anything takes to compile, so the call itself is


class Times(NamedTuple):
    """Milliseconds that one call took: the 20th, 50th and 80th of a hundred."""

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
) -> dict[str, Times]:
    """Build each entrant on `device`, then call all of them in turn, round after round.

    Whoever fails is left out, and a line says why. Rounds end early once `seconds` are over.
    """
    with quiet(threads):
        calls = warm_up(entrants, say, device)
        times: dict[str, list[float]] = {name: [] for name in calls}
        start = time.perf_counter()
        for number in range(rounds):
            for name in turned(list(calls), number):
                call, repeats = calls[name]
                times[name].append(timed(call, repeats))
            gc.collect()
            if number + 1 >= FEWEST and time.perf_counter() - start > seconds:
                break
    return {name: Times.of(taken) for name, taken in times.items()}


@contextmanager
def quiet(threads: int) -> Iterator[None]:
    """So many threads, and no garbage collection in between."""
    before, collected = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(threads)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if collected:
            gc.enable()


def warm_up(entrants: Mapping[str, Callable[[], Call]], say: Say, device: str) -> dict[str, tuple[Call, int]]:
    """The calls, and how often each is made for one sample. The first compiles what there is to compile."""
    calls = {}
    for name, build in entrants.items():
        try:
            with torch.device(device):
                call = build()
            first = timed(call, 1)
            calls[name] = (call, 1 if first > SLOW else max(1, round(SAMPLE / timed(call, 1))))
        except Exception as error:  # a peer may fail in any way, and the others race on
            say(f"skipped: {name}: {type(error).__name__}: {error}")
    return calls


def timed(call: Call, repeats: int) -> float:
    """Seconds a call."""
    settle()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    settle()
    return (time.perf_counter() - start) / repeats


def settle() -> None:
    """Wait for the GPU, if one is at work: calls return before it is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def turned(names: list[str], by: int) -> list[str]:
    """Who starts changes from round to round, so that nobody always runs after the same one."""
    by %= max(1, len(names))
    return names[by:] + names[:by]
