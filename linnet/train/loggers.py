"""Further places for the metrics of a run, by name: `--logger tensorboard wandb`.

TensorBoard and CSV are loggers of Lightning Fabric. Those of MLflow and Weights & Biases have the same
interface; they are part of pytorch-lightning, and Linnet installs neither it nor their own packages.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from linnet.runs.errors import missing

PROJECT = "linnet"
"""The experiment of MLflow and the project of Weights & Biases in which runs are listed."""


class Source(NamedTuple):
    """Where a logger class is, and the packages it needs."""

    module: str
    name: str
    packages: str


SOURCES = {
    "tensorboard": Source("lightning_fabric.loggers", "TensorBoardLogger", "lightning-fabric tensorboard"),
    "csv": Source("lightning_fabric.loggers", "CSVLogger", "lightning-fabric"),
    "mlflow": Source("pytorch_lightning.loggers", "MLFlowLogger", "pytorch-lightning mlflow"),
    "wandb": Source("pytorch_lightning.loggers", "WandbLogger", "pytorch-lightning wandb"),
}
OPTIONS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    # Events after `step` are of a part of the run that is made again.
    "tensorboard": lambda run, step: {
        **{"root_dir": run, "name": "events", "version": "", "purge_step": step},
    },
    "csv": lambda run, step: {"root_dir": run, "name": "events"},
    "mlflow": lambda run, step: {
        **{"experiment_name": PROJECT, "run_name": run.name, "save_dir": str(run / "events")},
    },
    "wandb": lambda run, step: {"project": PROJECT, "name": run.name, "save_dir": str(run / "events")},
}


def make_logger(name: str, run: Path, step: int) -> Any:
    """Return a logger for the run in directory `run`, which begins or resumes after update `step`."""
    source = SOURCES[name]
    try:
        cls = getattr(import_module(source.module), source.name)
        return cls(**OPTIONS[name](run, step))
    # Lightning raises ModuleNotFoundError as well if the package behind a logger is not installed.
    except ImportError as error:
        raise missing(f"--logger {name}", source.packages, error) from None
