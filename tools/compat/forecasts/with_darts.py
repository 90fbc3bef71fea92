"""darts' models: a list of series, each scaled to 0...1."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from darts import TimeSeries, models
from darts.dataprocessing.transformers import Scaler
from torch import nn

from tools.compat.forecasts.budget import QUIET, STEPS, CPUTime
from tools.compat.forecasts.inside import Answer, Asked

for name in ("pytorch_lightning", "darts"):
    logging.getLogger(name).setLevel(logging.ERROR)


def listed(series: Sequence[np.ndarray]) -> list[TimeSeries]:
    return [TimeSeries.from_values(values.astype(np.float32)) for values in series]


def lengths(asked: Asked) -> dict[str, Any]:
    """Return the options of each model for context and horizon."""
    if asked.model == "RNNModel":
        return {"training_length": asked.context + asked.horizon}
    return {"output_chunk_length": asked.horizon, "use_reversible_instance_norm": True}


def answer(asked: Asked) -> Answer:
    clock = CPUTime(asked.seconds)
    model = getattr(models, asked.model)(
        asked.context,
        loss_fn=nn.L1Loss(),
        n_epochs=STEPS,
        random_state=asked.seed,
        pl_trainer_kwargs={**QUIET, "callbacks": [clock]},
        **lengths(asked),
        **asked.settings,
    )
    model.fit(Scaler().fit_transform(listed(asked.known)))
    trained = clock.used()
    scaler = Scaler()
    found = model.predict(asked.horizon, scaler.fit_transform(listed(asked.histories)))
    values = np.stack([each.values()[:, 0] for each in scaler.inverse_transform(found)])
    parameters = sum(each.numel() for each in model.model.parameters())
    return Answer(values.astype(np.float64), trained, clock.used() - trained, clock.steps, parameters)
