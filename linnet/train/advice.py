"""What to try when the loss or the gradient of a run is no longer a number."""

from __future__ import annotations

from pathlib import Path

from linnet.runs import checkpoints
from linnet.runs.config import RunConfig
from linnet.tasks import TASKS

GENERAL = "Try a smaller --lr, a --clip, or --precision 64-true where numbers are only too large,"


def remedy(config: RunConfig, folder: Path) -> str:
    """Return what is left of a run whose numbers are no longer finite, and what to do."""
    last = checkpoints.find(folder, "last")
    if not last:
        return f"There is no checkpoint yet. {advice(config)} with --overwrite"
    again = ""
    if checkpoints.find(folder, "best"):
        again = f"; --start-from {folder} begins with its best weights"
    return (
        f"The last checkpoint, of step {last.manifest['step']}, is in {folder / 'last'}. "
        f"{advice(config)} in another --run-dir{again}"
    )


def advice(config: RunConfig) -> str:
    """The beginning of a sentence that ends with where to run again."""
    return for_nru(config) if getattr(config.model, "unit", "") == "nru" else GENERAL


def for_nru(config: RunConfig) -> str:
    """What helped in the runs in docs/log.md. A smaller rate or float64 only delayed the failure."""
    normed = config.model.unit_options.get("layer_norm", False)
    norm = "" if normed else " or --unit-options layer_norm=True"
    stop = TASKS[config.task].carry_option(config.data)
    if stop:
        return f"The memory of NRU has no bound and grows while its state is carried on: try {stop}{norm},"
    return f"The memory of NRU has no bound and grows over long sequences: try --clip 0.1{norm},"
