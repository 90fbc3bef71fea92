"""neuralforecast's models: one frame of all series."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from neuralforecast import NeuralForecast, models

from tools.compat.forecasts.budget import QUIET, STEPS, CPUTime
from tools.compat.forecasts.inside import Answer, Asked

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def frame(series: Sequence[np.ndarray]) -> Any:
    """Return the table that the library reads; times are numbers of steps."""
    parts = [
        pd.DataFrame({"unique_id": f"{number:06}", "ds": np.arange(len(y)), "y": y})
        for number, y in enumerate(series)
    ]
    return pd.concat(parts, ignore_index=True)


def answer(asked: Asked) -> Answer:
    clock = CPUTime(asked.seconds)
    model = getattr(models, asked.model)(
        h=asked.horizon,
        input_size=asked.context,
        max_steps=STEPS,
        random_seed=asked.seed,
        callbacks=[clock],
        enable_checkpointing=False,
        **QUIET,
        **asked.settings,
    )
    forecast = NeuralForecast([model], freq=1)
    forecast.fit(frame(asked.known))
    trained = clock.used()
    found = forecast.predict(frame(asked.histories))
    values = found[asked.model].to_numpy(dtype=np.float64).reshape(len(asked.histories), asked.horizon)
    # The library trains a copy of the model, and with it a copy of the clock.
    (fitted,) = forecast.models
    (counted,) = (each for each in fitted.trainer_kwargs["callbacks"] if isinstance(each, CPUTime))
    parameters = sum(each.numel() for each in fitted.parameters())
    return Answer(values, trained, clock.used() - trained, counted.steps, parameters)
