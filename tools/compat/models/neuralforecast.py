"""neuralforecast: its LSTM of the default sizes, trained on the spot, that forecasts 16 series."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from neuralforecast import NeuralForecast
from neuralforecast.models import LSTM

from tools.compat.models.shared import Convert

SERIES, LENGTH, HORIZON = 16, 200, 12


def table() -> Any:
    days = pd.date_range("2020-01-01", periods=LENGTH)
    values = [np.sin(np.arange(LENGTH) / (3 + number)) for number in range(SERIES)]
    return pd.concat(
        [
            pd.DataFrame({"unique_id": str(n), "ds": days, "y": y.astype("float32")})
            for n, y in enumerate(values)
        ]
    )


def work(convert: Convert) -> Callable[[], Any]:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = {"enable_progress_bar": False, "logger": False, "enable_checkpointing": False}
    model = LSTM(h=HORIZON, input_size=100, max_steps=2, random_seed=0, accelerator="cpu", **quiet)
    forecast = NeuralForecast([model], freq="D")
    forecast.fit(table())
    (fitted,) = forecast.models
    convert(fitted.eval())
    window = {"insample_y": torch.rand(SERIES, 100, 1, generator=torch.Generator().manual_seed(0))}
    batch = {**window, "hist_exog": None, "futr_exog": None, "stat_exog": None, "insample_mask": None}
    return lambda: fitted(batch)
