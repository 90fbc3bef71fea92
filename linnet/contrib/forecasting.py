"""Recurrent layers for pytorch-forecasting, whose models pass lengths of zero and ask the layer for states.

    import pytorch_forecasting.models.nn.rnn
    import linnet.contrib.forecasting

    pytorch_forecasting.models.nn.rnn.LSTM = linnet.contrib.forecasting.SRU

RecurrentNetwork and DeepAR that are built or loaded after this line have the unit in place of their LSTM.
"""

from __future__ import annotations

from typing import Any

from pytorch_forecasting.models.nn import rnn
from torch import Tensor

from linnet import units
from linnet.recurrent.recurrent import Recurrent


class Forecasting(Recurrent):
    """A stack with the methods of pytorch-forecasting's LSTM. Its state is a pair (h, c)."""

    init_hidden_state = rnn.LSTM.init_hidden_state
    repeat_interleave = rnn.LSTM.repeat_interleave

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, as_lstm=True, **options)

    def forward(  # type: ignore[override]
        self, x: Any, hx: Any = None, lengths: Tensor | None = None, enforce_sorted: bool = True
    ) -> tuple[Any, Any]:
        """Sequences need not be sorted, and one of length zero ends in the state in which it starts."""
        return super().forward(x, hx, lengths=lengths)


class LSTM(Forecasting, units.LSTM):
    """LSTM for pytorch-forecasting."""


class SRU(Forecasting, units.SRU):
    """SRU for pytorch-forecasting."""
