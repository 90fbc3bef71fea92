"""What to try when the loss or the gradient of a run is no longer a number."""

from __future__ import annotations

from typing import Any

from linnet.train.config import RunConfig

GENERAL = "Try a smaller --lr, a --clip, or --precision 64-true where numbers are only too large,"


def advice(config: RunConfig) -> str:
    """The beginning of a sentence that ends with where to run again."""
    return for_nru(config) if getattr(config.model, "unit", "") == "nru" else GENERAL


def for_nru(config: RunConfig) -> str:
    """What was seen to help; docs/log.md has the runs. A smaller rate or float64 only put the end off."""
    normed = config.model.unit_options.get("layer_norm", False)
    norm = "" if normed else " or --unit-options layer_norm=True"
    stop = how_not_to_carry(config.data)
    if stop:
        return f"The memory of NRU has no bound and grows while its state is carried on: try {stop}{norm},"
    return f"The memory of NRU has no bound and grows over long sequences: try --clip 0.1{norm},"


def how_not_to_carry(data: Any) -> str:
    """The option by which each window or sequence starts from zeros, where the state is carried on now."""
    if getattr(data, "carry", False):
        return "--no-carry"
    return "--reset-every 1" if getattr(data, "reset_every", 1) > 1 else ""
