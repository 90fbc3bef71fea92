"""Run a case in the environment of its project, and write the results to a file.

python -m tools.compat.inside check MODULE RESULTS
python -m tools.compat.inside time MODULE RESULTS
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from linnet.bench.timing import race
from tools.compat import contestants

ROUNDS, SECONDS = 9, 20.0
THREADS = 2
Result = dict[str, Any]


def check(case: Any, rnns: dict[str, Any]) -> dict[str, Result]:
    """For each contestant, say whether the program works with it, or the last line of the error."""
    return {name: checked(partial(case.check, rnn)) for name, rnn in rnns.items()}


def checked(program: Callable[[Path], object]) -> Result:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            program(Path(folder))
        except Exception as error:  # any library may fail in any way, and the table says how
            traceback.print_exc()
            return {"works": False, "why": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"works": True}


def time(case: Any, rnns: dict[str, Any]) -> dict[str, Result]:
    """For each contestant, the median time of its work, and the ratio to that of the original."""
    builders = {name: partial(case.work, rnn) for name, rnn in rnns.items()}
    times = race(builders, rounds=ROUNDS, threads=THREADS, seconds=SECONDS, say=print)
    original = next(iter(rnns))
    if original not in times:
        raise RuntimeError(f"{original} cannot be timed; the reason is printed above")
    return {
        name: {"p50_ms": found.p50, "ratio": found.p50 / times[original].p50, "threads": THREADS}
        for name, found in times.items()
    }


def main() -> None:
    what, module, results = sys.argv[1:]
    case = import_module(module)
    rnns = getattr(case, "CONTESTANTS", contestants.CONTESTANTS)
    found = {"check": check, "time": time}[what](case, rnns)
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
