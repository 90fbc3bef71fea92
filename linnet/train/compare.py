"""Several units under one budget of parameters: the same text, the same settings, the width that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from linnet.models.language import hidden_size_for, with_hidden_size
from linnet.train.config import RunConfig, override
from linnet.train.language import read

UNITS = ("lstm", "sru", "lrn", "ran", "scrn", "nru")
SETTINGS = {
    **{"corpus": "kjv", "tied": True, "num_layers": 2, "input_dropout": 0.1, "output_dropout": 0.1},
    **{"optimiser": "adam", "lr": 0.003, "clip": 1.0, "steps": 400, "evaluate_every": 100, "log_every": 20},
}
"""What a comparison starts from: a few minutes on two cores for six units."""


def plans(
    config: RunConfig, units: Sequence[str], budget: int, folder: Path
) -> Iterator[tuple[RunConfig, Path]]:
    """A run for each unit, as wide as the budget allows."""
    size = len(read(config.data).vocabulary)
    for unit in units:
        options = config.model.unit_options if unit == config.model.unit else {}
        model = override(config, {"unit": unit, "unit_options": options}).model
        fitted = with_hidden_size(model, hidden_size_for(budget, size, model))
        yield (
            RunConfig(config.task, config.data, fitted, config.optimiser, config.schedule, config.loop),
            folder / unit,
        )
