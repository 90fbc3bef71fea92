"""Which parts of which buffers kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from linnet.deploy.step.program import Gather, Kernel, Line, Load, Loop, Product, Reduce


def reads(kernel: Kernel, base: str, part: range | None = None) -> bool:
    """Whether a kernel reads a buffer, or a part of it."""
    spans = [span for name, span in spans_of(kernel) if name == base]
    return any(part is None or max(span.start, part.start) < min(span.stop, part.stop) for span in spans)


def spans_of(kernel: Kernel) -> list[tuple[str, range]]:
    """The buffers and constants that a kernel reads, each with the part that it reads at most."""
    if isinstance(kernel, Product):
        size = kernel.rows * kernel.heads * kernel.inputs
        return [(kernel.x, range(kernel.x_offset, kernel.x_offset + size))]
    if isinstance(kernel, Gather):
        return [(kernel.x, range(kernel.x_offset, kernel.x_offset + kernel.inputs))]
    if isinstance(kernel, Reduce):
        return [(kernel.x.base, span(kernel.x, (kernel.outer, kernel.inner)))]
    if isinstance(kernel, Loop):
        operands = [operand for line in kernel.lines for operand in line.operands]
        operands += [store.value for store in kernel.stores]
        return [(load.base, span(load, kernel.shape)) for load in operands if isinstance(load, Load)]
    return []


def span(load: Load, shape: Sequence[int]) -> range:
    last = sum(stride * (size - 1) for stride, size in zip(load.strides, shape, strict=True))
    return range(load.offset, load.offset + last + 1)


def without(lines: Sequence[Line], load: Load) -> list[Line]:
    """The lines without this operand."""
    return [replace(line, operands=tuple(each for each in line.operands if each != load)) for line in lines]
