"""pytorch-forecasting: RecurrentNetwork, with pasts of different lengths in a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import lightning
import numpy as np
import pandas as pd
import pytorch_forecasting.models.nn.rnn as layers
import torch
from pytorch_forecasting import RecurrentNetwork, TimeSeriesDataSet

from linnet.contrib import forecasting
from tools.compat.contestants import RNN

CONTESTANTS: dict[str, RNN] = {"nn.LSTM": layers.LSTM, "LSTM": forecasting.LSTM, "SRU": forecasting.SRU}


def series() -> TimeSeriesDataSet:
    """Return eight sine waves."""
    time = np.arange(60)
    waves = [
        pd.DataFrame({"time": time, "wave": n, "value": np.sin(time / 5 + n)}).astype({"value": "float32"})
        for n in range(8)
    ]
    names = {"time_idx": "time", "target": "value", "group_ids": ["wave"]}
    sizes = {"min_encoder_length": 1, "max_encoder_length": 20, "max_prediction_length": 5}
    data = pd.concat(waves, ignore_index=True).astype({"wave": str}).astype({"wave": "category"})
    return TimeSeriesDataSet(data, **names, **sizes, time_varying_unknown_reals=["value"])


def network(rnn: RNN, data: TimeSeriesDataSet) -> RecurrentNetwork:
    with mock.patch.object(layers, "LSTM", rnn):
        return RecurrentNetwork.from_dataset(data, cell_type="LSTM", hidden_size=32, learning_rate=0.01)


def trainer(epochs: int, **options: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet, **options)


def check(rnn: RNN, folder: Path) -> None:
    data = series()
    batches = data.to_dataloader(batch_size=64)
    net = network(rnn, data)
    assert type(net.rnn) is rnn
    first = trainer(5, default_root_dir=folder)
    first.fit(net, batches)
    assert first.callback_metrics["train_loss"] < 0.2
    first.save_checkpoint(folder / "last.ckpt")
    with mock.patch.object(layers, "LSTM", rnn):
        loaded = RecurrentNetwork.load_from_checkpoint(folder / "last.ckpt", weights_only=False)
    x, _ = next(iter(batches))
    assert x["encoder_lengths"].min() < 20
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(x)["prediction"], net.eval()(x)["prediction"])


def work(rnn: RNN) -> Callable[[], object]:
    data = series()
    net, batches = network(rnn, data), data.to_dataloader(batch_size=64)
    return lambda: trainer(1, enable_checkpointing=False).fit(net, batches)
