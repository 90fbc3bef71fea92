"""Scratch memory that values share: the memory of one that nothing reads any more is that of a later one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from linnet.deploy.step.program import WINDOW, Kernel, Lookup, Product, Program, unique
from linnet.program.loops import Access, Loop, Operand

# The first and the last kernel that reads or writes a buffer.
Life = tuple[int, int]


def with_shared_scratch(program: Program) -> Program:
    """The same program with fewer buffers; one that several values share has a name of its own."""
    lives = lives_of(program)
    groups = grouped(lives, program.scratch)
    names: dict[str, str] = {}
    for group in groups:
        # The largest is the first.
        own = unique("shared", {*program.sizes, *names.values()}) if len(group) > 1 else group[0]
        names |= dict.fromkeys(group, own)
    sizes = {names.get(name, name): program.sizes[name] for name in smallest_first(program.sizes)}
    return replace(program, sizes=sizes, kernels=[renamed(kernel, names) for kernel in program.kernels])


def smallest_first(sizes: Mapping[str, int]) -> list[str]:
    """So that of several with one new name, the largest is the last."""
    return sorted(sizes, key=lambda name: sizes[name])


def lives_of(program: Program) -> dict[str, Life]:
    lives: dict[str, Life] = {}
    for number, kernel in enumerate(program.kernels):
        for name in touched(kernel):
            if name in program.scratch and name != WINDOW:
                lives[name] = (lives.get(name, (number, number))[0], number)
    return lives


def touched(kernel: Kernel) -> set[str]:
    if isinstance(kernel, Lookup):
        return {kernel.output}
    if isinstance(kernel, Product):
        return {kernel.x, kernel.output}
    written = [*(fold.target for fold in kernel.folds), *(store.target for store in kernel.stores)]
    return {access.base for access in (*kernel.accesses, *written)}


def grouped(lives: Mapping[str, Life], sizes: Mapping[str, int]) -> list[list[str]]:
    """Buffers whose lives do not overlap, the largest first: each joins the first group that has room."""
    groups: list[list[str]] = []
    for name in sorted(lives, key=lambda each: -sizes[each]):
        fitting = (
            group for group in groups if not any(overlap(lives[name], lives[other]) for other in group)
        )
        group = next(fitting, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return groups


def overlap(a: Life, b: Life) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    if isinstance(kernel, Lookup):
        return replace(kernel, output=names.get(kernel.output, kernel.output))
    if isinstance(kernel, Product):
        x, output = (names.get(name, name) for name in (kernel.x, kernel.output))
        return replace(kernel, x=x, output=output)
    return renamed_loop(kernel, names)


def renamed_loop(loop: Loop, names: Mapping[str, str]) -> Loop:
    def access(value: Access) -> Access:
        return replace(value, base=names.get(value.base, value.base))

    def operand(value: Operand) -> Operand:
        return access(value) if isinstance(value, Access) else value

    return Loop(
        loop.shape,
        tuple(replace(line, operands=tuple(map(operand, line.operands))) for line in loop.lines),
        tuple(replace(f, value=operand(f.value), target=access(f.target)) for f in loop.folds),
        tuple(replace(s, value=operand(s.value), target=access(s.target)) for s in loop.stores),
    )
