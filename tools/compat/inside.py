"""Run a case in the environment of its project, and write the results to a file.

python -m tools.compat.inside check MODULE RESULTS
python -m tools.compat.inside time MODULE RESULTS
python -m tools.compat.inside convert MODULE RESULTS
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

import linnet
from linnet.bench.timing import race
from tools.compat import contestants
from tools.compat.models.shared import unchanged

ROUNDS, CONVERT_ROUNDS, SECONDS = 9, 41, 20.0
THREADS = 2
TOLERANCE = 1e-5  # relative to the largest number
CONVERSIONS = {"float32": linnet.convert, "int8": partial(linnet.convert, int8=True)}
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


def convert(case: Any, contestants: dict[str, Any]) -> dict[str, Result]:
    """Compare the package's own way with the model that has Linnet's layers, in float32 and int8."""
    calls = {name: case.work(how) for name, how in contestants.items()}
    if hasattr(case, "own"):
        calls = {"package": case.own(), **calls}
    with torch.no_grad():
        found = {name: numbers(call()) for name, call in calls.items()}
        builders = {name: partial(calls.__getitem__, name) for name in calls}
        times = race(builders, rounds=CONVERT_ROUNDS, threads=1, seconds=SECONDS, say=print)
    own_time = times["package"].p50
    return {
        name: {
            **{"p50_ms": taken.p50, "ratio": taken.p50 / own_time, "threads": 1},
            **compared(found[name], found["package"], may_round=name == "int8"),
        }
        for name, taken in times.items()
    }


def conversions_of(case: Any) -> dict[str, Any]:
    """The contestants of a case, the original first."""
    if hasattr(case, "CONVERSIONS"):
        return case.CONVERSIONS
    # Where the package does not run torch, what the conversion gives is the difference to the rebuilt module.
    return {"rebuilt" if hasattr(case, "own") else "package": unchanged, **CONVERSIONS}


def numbers(result: Any) -> list[Any]:
    """The tensors of a result, in float64."""
    return [torch.as_tensor(each).double() for each in (result if isinstance(result, tuple) else (result,))]


def compared(result: list[Any], expected: list[Any], may_round: bool) -> Result:
    """Compare the first tensor by its numbers, and a second, of decisions, by its rows."""
    difference = float((result[0] - expected[0]).abs().max())
    is_equal = difference < TOLERANCE * max(1.0, float(expected[0].abs().max()))
    changed = [int((one != other).any(1).sum()) for one, other in zip(result[1:], expected[1:], strict=True)]
    why = f"{sum(changed)} of {len(result[1])} answers change" if any(changed) else ""
    works = may_round or (is_equal and not why)
    return {"works": works, "why": why or ("" if works else "differs"), "difference": difference}


def main() -> None:
    what, module, results = sys.argv[1:]
    case = import_module(module)
    is_model = what == "convert"
    given = conversions_of(case) if is_model else getattr(case, "CONTESTANTS", contestants.CONTESTANTS)
    found = {"check": check, "time": time, "convert": convert}[what](case, given)
    Path(results).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
