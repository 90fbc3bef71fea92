"""darts: RNNModel forecasts a time series; its defaults are 25 channels and 24 steps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from darts import TimeSeries
from darts.metrics import rmse
from darts.models import RNNModel
from darts.utils.timeseries_generation import sine_timeseries

from tools.compat.contestants import RNN, as_lstm_of_torch

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)


def series() -> tuple[TimeSeries, TimeSeries]:
    """Return a sine wave, and its continuation."""
    wave = sine_timeseries(length=400, value_frequency=0.05).astype("float32")
    return wave[:-24], wave[-24:]


def model(epochs: int) -> RNNModel:
    quiet = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
    }
    options = {"optimizer_kwargs": {"lr": 0.01}, "random_state": 0}
    return RNNModel(24, model="LSTM", n_epochs=epochs, pl_trainer_kwargs=quiet, **options)


def check(rnn: RNN, folder: Path) -> None:
    past, future = series()
    with as_lstm_of_torch(rnn):
        trained = model(epochs=25).fit(past)
        forecast = trained.predict(24)
        assert rmse(future, forecast) < 0.2
        trained.save(str(folder / "model.pt"))
        loaded = RNNModel.load(str(folder / "model.pt"))
    assert type(loaded.model.rnn) is rnn
    assert rmse(forecast, loaded.predict(24)) < 1e-6


def work(rnn: RNN) -> Callable[[], object]:
    past, _ = series()
    with as_lstm_of_torch(rnn):
        trained = model(epochs=1).fit(past)
    return lambda: trained.fit(past, epochs=1)
