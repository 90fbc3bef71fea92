"""The state of a unit with one state: a tensor that cannot be unpacked as nn.LSTM's pair (h, c).

    y, (h, c) = linnet.SRU(8, 16, num_layers=2)(x)     # a TypeError: the state is one tensor

As a plain tensor, the state of two layers would be unpacked by layer: h would be the state of the first and c
that of the second, and a program written for nn.LSTM would run on with wrong numbers.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.compiler import is_compiling

from linnet.base.torch_private import plain_torch_function

# The instructions of `h, c = state` and of `h, *others = state`.
UNPACKING = (dis.opmap["UNPACK_SEQUENCE"], dis.opmap["UNPACK_EX"])


class StateTensor(Tensor):
    """A tensor in everything but unpacking. What is computed from it, and copies of it, are plain tensors."""

    # As for nn.Parameter: torch's functions take it as a tensor, at the same speed, and return tensors.
    __torch_function__ = plain_torch_function

    def __iter__(self) -> Iterator[Tensor]:
        # A loop, list(state) and f(*state) call this too; only the caller's instruction tells them apart.
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] in UNPACKING:
            raise TypeError(
                "this unit has one state, a tensor [num_layers * num_directions, batch, size], here of shape "
                f"{tuple(self.shape)}: it is not the pair (h, c) of nn.LSTM, and unpacking it would give its "
                "layers. Build the unit with as_lstm=True to get the pair, as in linnet.SRU(8, 16, "
                "as_lstm=True), or write output, state = rnn(x); state.unbind() gives the layers"
            )
        return super().__iter__()

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        with as_plain(self):
            return Tensor.__repr__(self, **options)

    def __deepcopy__(self, memo: Any) -> Any:
        with as_plain(self):
            return Tensor.__deepcopy__(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A saved state is a tensor, which loads without Linnet and with weights_only=True."""
        with as_plain(self):
            return Tensor.__reduce_ex__(self, protocol)


@contextmanager
def as_plain(state: StateTensor) -> Iterator[None]:
    """Make the state a plain tensor for some lines."""
    state.__class__ = Tensor  # type: ignore[assignment]
    try:
        yield
    finally:
        state.__class__ = StateTensor


PLAIN_TENSORS = (Tensor, StateTensor)


def not_a_pair(state: Any) -> Any:
    """Return the state so that a tuple cannot be unpacked from it. Graphs have plain tensors."""
    # A new class of the object: a new object would be an operation, and a node of the graph of gradients.
    if type(state) is Tensor and not is_compiling():
        state.__class__ = StateTensor
    return state
