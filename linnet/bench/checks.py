"""What the checks before a kernel cost: kernels read memory by its address, so each call is looked at first.

All checks that one call makes are noted, with their arguments, and then made again without the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from linnet.bench import contestants
from linnet.bench.contestants import Contestant
from linnet.bench.rows import Book, Row
from linnet.bench.settings import Settings, Shape
from linnet.bench.speed import Comparison, Race
from linnet.bench.timing import Call

MODES = ("inference", "training")


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in settings.units if contestants.has_kernel(unit)]
    shape = settings.checked
    return [row for unit in units for mode in MODES for row in race_of(unit, shape, mode).run(settings, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    call = contestants.ours(unit, shape, mode)
    checks = Contestant(unit, "checks", lambda: replayed(call.build()))
    return Race(
        "checks", shape, mode, {"checks": checks, unit: call}, [Comparison("checks", unit, "its call")]
    )


def replayed(call: Call) -> Call:
    """The checks of `call`, once all that is done only at a first call has been done."""
    call()
    with noted() as checks:
        call()
    return lambda: [check() for check in checks]


@contextmanager
def noted() -> Iterator[list[Call]]:
    """The checks that are made within this context."""
    found: list[Call] = []
    with ExitStack() as stack:
        for module, name in places():
            stack.enter_context(patch.object(module, name, noting(getattr(module, name), found)))
        yield found


def noting(check: Callable[..., Any], found: list[Call]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        found.append(partial(check, *arguments))
        return check(*arguments)

    return run


def places() -> list[tuple[Any, str]]:
    """Where the checks are looked up."""
    # Imported when first needed: they need llvmlite.
    from linnet.fuse import backend, fused
    from linnet.fuse.cpu import outer_scan
    from linnet.layers import direction

    fitting = [(fused, "check_fit"), (outer_scan, "check_inputs")]
    recording = [(backend, "is_recorded"), (backend, "opaque_to_kernels")]
    return [*fitting, *recording, (direction, "hook_obstacle"), (backend.CPU, "obstacle")]
