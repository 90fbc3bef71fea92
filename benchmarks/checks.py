"""The time of the checks before a kernel: kernels read raw pointers, so each call checks its arguments.

We record all checks of one call with their arguments, and then time them without the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks import contestants
from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call

MODES = ("inference", "training")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in settings.units if contestants.has_kernel(unit)]
    shape = settings.checked
    return [row for unit in units for mode in MODES for row in race_of(unit, shape, mode).run(settings, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    call = contestants.ours(unit, shape, mode)
    checks = Contestant(unit, "checks", lambda: checks_of(call.build()))
    return Race(
        "checks", shape, mode, {"checks": checks, unit: call}, [Comparison("checks", unit, "its call")]
    )


def checks_of(call: Call) -> Call:
    """Return a function that makes the checks of `call`, without those of its first call."""
    call()
    with recorded() as checks:
        call()
    return lambda: [check() for check in checks]


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Yield a list to which the checks that are made within this context are added."""
    checks: list[Call] = []
    with ExitStack() as stack:
        for module, name in check_names():
            stack.enter_context(patch.object(module, name, recording(getattr(module, name), checks)))
        yield checks


def recording(check: Callable[..., Any], checks: list[Call]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        checks.append(partial(check, *arguments))
        return check(*arguments)

    return run


def check_names() -> list[tuple[Any, str]]:
    """Return the modules that call the checks, and the name of each check there."""
    # Imported when first needed: they need llvmlite.
    from linnet.recurrent import direction
    from linnet.run import bound_unit as fused
    from linnet.run import choose, ways

    fitting = [(fused.BoundUnit, "check_fit")]
    recording = [(choose, "is_recorded"), (choose, "opaque_to_kernels")]
    return [*fitting, *recording, (direction, "hook_obstacle"), (ways.CPU, "obstacle")]
