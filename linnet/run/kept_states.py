"""The states of all steps on request: kernels have them in memory anyway, or can keep them.

sequences = []
with collecting(sequences):
    rnn(x)
sequences[0]["c"]                    # [T, B, H], without a graph
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor
from torch.compiler import is_compiling

# Where the sequences of each scan are appended, by the names of their states.
collected: ContextVar[list[dict[str, Tensor]] | None] = ContextVar("linnet_collected", default=None)


@contextmanager
def collecting(sequences: list[dict[str, Tensor]]) -> Iterator[None]:
    """Within this context, each scan appends its states after each step, [T, B, H] by name."""
    token = collected.set(sequences)
    try:
        yield
    finally:
        collected.reset(token)


def is_collecting() -> bool:
    # A compiler cannot trace the context variable.
    return not is_compiling() and collects()


def collects() -> bool:
    """`is_collecting` for code that no compiler traces."""
    return collected.get() is not None


def collect(sequences: Mapping[str, Tensor], reverse: bool) -> None:
    """Append the states of a scan, given with the initial state, [T + 1, B, H], in the order of time."""
    kept = collected.get() if is_collecting() else None
    if kept is not None:
        # In the backward direction, the initial state is the last one.
        steps = slice(None, -1) if reverse else slice(1, None)
        kept.append({name: sequence[steps].detach().clone() for name, sequence in sequences.items()})
