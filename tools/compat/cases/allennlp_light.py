"""AllenNLP light: its encoders wrap a layer, sort and pack batches, and keep states between batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from allennlp_light.modules.seq2seq_encoders import PytorchSeq2SeqWrapper
from allennlp_light.modules.seq2vec_encoders import PytorchSeq2VecWrapper
from torch import Tensor, nn

from tools.compat.contestants import RNN
from tools.compat.examples import CHANNELS, CLASSES, HIDDEN, check_plainly, sequences, work_plainly


class Model(nn.Module):
    def __init__(self, rnn: RNN):
        super().__init__()
        self.encoder = PytorchSeq2SeqWrapper(rnn(CHANNELS, HIDDEN, batch_first=True, bidirectional=True))
        self.vector = PytorchSeq2VecWrapper(rnn(self.encoder.get_output_dim(), HIDDEN, batch_first=True))
        self.out = nn.Linear(self.vector.get_output_dim(), CLASSES)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        return self.out(self.vector(self.encoder(x, mask), mask))


def check(rnn: RNN, folder: Path) -> None:
    check_plainly(partial(Model, rnn), folder)
    model, x = Model(rnn), sequences(count=3)[0]
    mask = torch.arange(x.shape[1]) < torch.tensor([[10], [0], [20]])
    torch.testing.assert_close(model(x, mask)[0], model(x[:1, :10])[0])
    stateful = PytorchSeq2SeqWrapper(rnn(CHANNELS, HIDDEN, batch_first=True), stateful=True)
    every = x.new_ones(x.shape[:2], dtype=torch.bool)
    halves = [stateful(part, flags) for part, flags in zip(x.split(10, 1), every.split(10, 1), strict=True)]
    stateful.reset_states()
    torch.testing.assert_close(torch.cat(halves, 1), stateful(x, every))


def work(rnn: RNN) -> Callable[[], object]:
    return work_plainly(partial(Model, rnn))
