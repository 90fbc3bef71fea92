"""The values that functions compute, by the names of their local variables.

    calls = []
    with watching([cell.step], calls):
        cell.step(k, q, v, h)
    calls[0].variables["f"]

Python's profiler reports each call and each return, so the functions need not be changed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any


@dataclass
class Call:
    """A call of a watched function."""

    function: str
    arguments: dict[str, Any]
    variables: dict[str, Any] = field(default_factory=dict)  # the local variables at the return
    result: Any = None
    inner: list[Call] = field(default_factory=list)  # the calls of watched functions inside this one


@contextmanager
def watching(functions: Iterable[Callable[..., Any]], calls: list[Call]) -> Iterator[None]:
    """Within this context, each finished call of one of the functions is appended to `calls`.

    A call inside another one, such as that of `super().step`, is an inner call of that one instead.
    """
    watcher = Watcher(frozenset(inspect.unwrap(function).__code__ for function in functions), calls)
    profiler = sys.getprofile()
    sys.setprofile(watcher)
    try:
        yield
    finally:
        sys.setprofile(profiler)


class Watcher:
    """The function that Python's profiler calls."""

    def __init__(self, codes: frozenset[CodeType], calls: list[Call]):
        self.codes, self.calls = codes, calls
        self.open: list[Call] = []

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        if frame.f_code not in self.codes:
            return
        if event == "call":
            self.open.append(Call(frame.f_code.co_name, dict(frame.f_locals)))
        elif event == "return":
            call = self.open.pop()
            call.variables, call.result = dict(frame.f_locals), value
            (self.open[-1].inner if self.open else self.calls).append(call)


def all_variables(call: Call) -> dict[str, Any]:
    """Return the variables of a call and of its inner calls; those of an outer call replace inner ones."""
    variables: dict[str, Any] = {}
    for inner in call.inner:
        variables |= all_variables(inner)
    return {**variables, **call.variables}
