"""Changes of a scan's output in place, before backward.

An output that is a state has the memory of the states that backward reads. Copying it would cost time in
every call. Instead backward checks whether it was changed, and then computes the states again.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class Changes:
    """Whether a tensor has been changed in place. Does not keep its memory alive."""

    def __init__(self, tensor: Tensor):
        # Shares the version counter of the tensor, also after `data` has been replaced.
        self.counter = tensor.detach()
        self.counter.data = tensor.new_empty(0)
        self.version = tensor._version

    def __bool__(self) -> bool:
        return self.counter._version != self.version


def changeable(y: Tensor, sequences: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Changes | None]:
    """Return y as autograd lets it be changed, the states to save for backward, and what detects a change.

    Autograd refuses to change a view that a function returns, and to read saved tensors that have changed.
    """
    if not y._is_view():
        return y, sequences, None
    return y.detach(), [sequence.data for sequence in sequences], Changes(y)
