"""What a case is run with, unless it has its own CONTESTANTS: the original, and Linnet's units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch import Tensor, nn

import linnet

RNN = Callable[..., nn.Module]


class SRU(linnet.SRU[tuple[Tensor, Tensor]]):
    """SRU with the pair (h, c) of nn.LSTM as its state."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, as_lstm=True, **options)


CONTESTANTS: dict[str, RNN] = {"nn.LSTM": nn.LSTM, "LSTM": linnet.LSTM, "SRU": SRU}


@contextmanager
def as_lstm_of_torch(rnn: RNN) -> Iterator[None]:
    """Within this context, `nn.LSTM = rnn`: for libraries that build nn.LSTM themselves."""
    with mock.patch.object(nn, "LSTM", rnn):
        yield
