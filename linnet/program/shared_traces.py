"""Traced steps that cells of the same class share.

Tracing a step takes some milliseconds, and a stack has a cell for each layer and direction, each with two
modes. Cells of one of Linnet's own classes have the same trace if everything that the step reads from them
has the same values, as in `linnet.program.settings`. The steps of other classes are traced for each cell.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from linnet.base.forks import compiling
from linnet.program.settings import Settings
from linnet.program.substitute import attributes_read
from linnet.program.unit import Unit

T = TypeVar("T")

# How many traces are kept for a class, one for each set of options.
MOST_TRACES = 64


class SharedTrace(NamedTuple):
    """A traced step, or a recorded one, and the names of the attributes that it read."""

    traced: Any
    names: frozenset[str]


class SharedTraces:
    """The traces of one class of cells."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.traces: dict[tuple[Hashable, ...], SharedTrace] = {}

    def get(self, cell: Unit, context: tuple[Hashable, ...], trace: Callable[[], T]) -> T:
        found = self.traces.get(self.key(cell, context)) or self.make(cell, context, trace)
        names = attributes_read.get()
        if names is not None:
            names |= found.names
        return found.traced

    def key(self, cell: Unit, context: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        # The settings of Linnet's own cells leave methods out; a class may have got another one.
        methods = tuple(getattr(type(cell), name, None) for name in sorted(self.settings.methods))
        return (*context, methods, self.settings.key(cell))

    def make(self, cell: Unit, context: tuple[Hashable, ...], trace: Callable[[], Any]) -> SharedTrace:
        names: set[str] = set()
        token = attributes_read.set(names)
        try:
            made = SharedTrace(trace(), frozenset(names))
        finally:
            attributes_read.reset(token)
        with compiling:
            self.settings.add(cell, names)
            # The trace of inner products depends on the modules that compute them, too.
            if not made.traced.inner and self.settings.opaque(cell, names) is None:
                self.traces[self.key(cell, context)] = made
            for old in list(self.traces)[:-MOST_TRACES]:
                del self.traces[old]
        return made


# By class; steps that are not elementwise apart, since these read modules, and so the sizes in them.
TRACES: dict[type[Unit], SharedTraces] = {}
WHOLE_TRACES: dict[type[Unit], SharedTraces] = {}


def shared_trace(
    cell: Unit,
    context: tuple[Hashable, ...],
    trace: Callable[[], T],
    is_whole: bool = False,
) -> T:
    """Return `trace()`, or the result of an earlier call for a cell with the same settings.

    context    all that the trace depends on besides the attributes of the cell
    is_whole   the step is not elementwise
    """
    kind = type(cell)
    if not kind.__module__.startswith("linnet."):
        return trace()
    traces = WHOLE_TRACES if is_whole else TRACES
    return traces.setdefault(kind, SharedTraces()).get(cell, context, trace)
