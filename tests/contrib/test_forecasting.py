"""linnet.contrib.forecasting: the layers of pytorch-forecasting, with lengths of zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("pytorch_forecasting", reason="needs the extra forecasting")

from pytorch_forecasting.models.nn import rnn as theirs

from linnet.contrib import forecasting


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [None, [5, 0, 2]])
def test_lstm_is_theirs(batch_first: bool, lengths: Any):
    original = theirs.LSTM(3, 4, num_layers=2, batch_first=batch_first)
    ours = forecasting.LSTM(3, 4, num_layers=2, batch_first=batch_first)
    ours.load_state_dict(original.state_dict())
    x = torch.randn(3, 5, 3) if batch_first else torch.randn(5, 3, 3)
    options = {"lengths": None if lengths is None else torch.tensor(lengths), "enforce_sorted": False}
    y, (h, c) = ours(x, ours.init_hidden_state(x), **options)
    expected, (their_h, their_c) = original(x, original.init_hidden_state(x), **options)
    torch.testing.assert_close((h, c), (their_h, their_c))
    real = slice(None) if lengths is None else slice(1)  # theirs has outputs for a length of zero
    torch.testing.assert_close(
        *((each if batch_first else each.transpose(0, 1))[real] for each in (y, expected))
    )


def test_a_unit_with_one_state_has_their_pair():
    ours = forecasting.SRU(3, 4, batch_first=True)
    x = torch.randn(2, 5, 3)
    _, state = ours(x)
    h, c = ours.repeat_interleave(state, 3)
    assert h.shape == c.shape == (1, 6, 4)
    assert torch.equal(h[0, :3], state[0][0, :1].expand(3, 4))
