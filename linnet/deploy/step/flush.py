"""A step that leaves no tiny numbers in its state.

A state that decays in silence passes through denormal numbers, which many processors add and multiply up to a
hundred times slower than others.
"""

from __future__ import annotations

from dataclasses import replace

from linnet.deploy.step.program import Program
from linnet.program.loops import Access, Line, Local, Loop, Store

# Far below what a sound or a gate can tell from 0, and far above the denormal numbers of float32, 1.2e-38.
TINY = 1e-30


def flushed(program: Program) -> Program:
    """The program with a last loop over each part of the state: numbers below 1e-30 become 0."""
    loops = [flush(name, len(start)) for name, start in program.state.items()]
    return replace(program, kernels=[*program.kernels, *loops])


def flush(name: str, size: int) -> Loop:
    number = Access(name, 0, (1,))
    lines = (
        Line("distance", "abs", (number,)),
        Line("is_tiny", "lt", (Local("distance"), TINY)),
        Line("flushed", "where", (Local("is_tiny"), 0.0, number)),
    )
    return Loop((size,), lines, (), (Store(number, Local("flushed")),))
