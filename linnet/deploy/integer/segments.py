"""Which channels of a buffer share a format: those that one loop or one product reads or writes together.

A buffer often holds values of several kinds side by side, such as the gates and the candidate of a unit.
Their sizes differ; rounded in one format, the small ones would lose their digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from linnet.deploy.integer.formats import Format
from linnet.deploy.integer.walk import places_of, rows_of
from linnet.deploy.step.program import INPUT, OUTPUT, Lookup, Product, Program
from linnet.program.loops import Access, Loop


class Span(NamedTuple):
    """Channels from `start` to `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class Segments:
    """The formats of the channels of a buffer, from the first channel to the last."""

    formats: tuple[tuple[Span, Format], ...]

    def at(self, channel: int) -> Format:
        return next(form for span, form in self.formats if span.start <= channel < span.stop)

    @property
    def limit(self) -> int:
        return min(form.limit for _, form in self.formats)

    @property
    def fractions(self) -> np.ndarray:
        """That of each channel."""
        return np.concatenate([np.full(span.stop - span.start, form.fraction) for span, form in self.formats])

    def numbers(self, values: Tensor) -> Tensor:
        """Values [..., channels] as whole numbers."""
        parts = [form.numbers(values[..., slice(*span)]) for span, form in self.formats]
        return torch.cat(parts, -1)


def spans_of(program: Program) -> dict[str, list[Span]]:
    """The spans of each buffer, one after the other, without gaps."""
    found: dict[str, list[Span]] = {name: [] for name in program.sizes}
    for name in (INPUT, OUTPUT):
        found[name].append(Span(0, program.sizes[name]))
    for kernel in program.kernels:
        if isinstance(kernel, Loop):
            accesses = [*kernel.accesses, *(store.target for store in kernel.stores)]
            for access in accesses:
                if access.base in found:
                    found[access.base].append(span_of(access, kernel.shape))
        elif isinstance(kernel, Product):
            places = rows_of(kernel)
            found[kernel.x].append(Span(int(places.min()), int(places.max()) + 1))
        elif isinstance(kernel, Lookup):
            found[kernel.output].append(Span(0, kernel.size))
    return {name: merged(spans, program.sizes[name]) for name, spans in found.items()}


def span_of(access: Access, shape: tuple[int, ...]) -> Span:
    places = places_of(access, shape)
    return Span(int(places.min()), int(places.max()) + 1)


def merged(spans: Sequence[Span], size: int) -> list[Span]:
    """Spans that overlap become one; channels in none of them belong to the one before."""
    starts: list[int] = []
    stop = 0
    for span in sorted(spans):
        if not starts or span.start >= stop:
            starts.append(span.start)
        stop = max(stop, span.stop)
    starts[:1] = [0]
    return [Span(*pair) for pair in zip(starts, [*starts[1:], size], strict=True)]


def segments(spans: Sequence[Span], form: Callable[[Span], Format]) -> Segments:
    return Segments(tuple((span, form(span)) for span in spans))
