"""Forecasts that need no training."""

from __future__ import annotations

import time

import numpy as np

from linnet.tasks.naive_forecasts import naive_forecast
from tools.compat.forecasts.inside import Answer, Asked


def answer(asked: Asked) -> Answer:
    start = time.process_time()
    found = [
        naive_forecast(asked.model, history, asked.horizon, asked.season).centre
        for history in asked.histories
    ]
    return Answer(np.stack(found), 0.0, time.process_time() - start, 0, 0)
