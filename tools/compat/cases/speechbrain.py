"""SpeechBrain: its wrapper around nn.LSTM, with relative lengths, its own initialisation and checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor, nn

import linnet
from tools.compat.contestants import RNN, as_lstm_of_torch
from tools.compat.examples import CHANNELS, CLASSES, HIDDEN, check_plainly, sequences, work_plainly

# The torchaudio of PyPI needs libraries of CUDA, and nothing here reads audio.
with mock.patch.dict(sys.modules, {"torchaudio": mock.MagicMock()}):
    from speechbrain.nnet.RNN import LSTM, LiGRU
    from speechbrain.utils.checkpoints import Checkpointer


class Model(nn.Module):
    def __init__(self, rnn: RNN):
        super().__init__()
        with as_lstm_of_torch(rnn):
            self.encoder = LSTM(HIDDEN, input_size=CHANNELS, num_layers=2, bidirectional=True)
        self.out = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y, _ = self.encoder(x, lengths=lengths)
        return self.out(y.mean(1))


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Model, rnn), folder)
    model, loaded = Model(rnn), Model(rnn)
    x, lengths = sequences(count=3)[0], torch.tensor([1.0, 0.5, 0.25])
    y, _ = model.encoder(x, lengths=lengths)
    torch.testing.assert_close(y[1, :10], model.encoder(x[1:2, :10])[0][0])
    Checkpointer(folder, {"model": model}).save_checkpoint()
    Checkpointer(folder, {"model": loaded}).recover_if_possible()
    torch.testing.assert_close(loaded(x, lengths), model(x, lengths))
    check_ligru(x)


def check_ligru(x: Tensor) -> None:
    """linnet.convert replaces their LiGRU, too."""
    theirs = LiGRU(hidden_size=HIDDEN, input_shape=x.shape, num_layers=2, dropout=0.1)
    theirs(x)
    torch.testing.assert_close(linnet.convert(theirs.eval()).model(x), theirs(x))


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Model, rnn))
