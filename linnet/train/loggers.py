"""Further places for the metrics of a run, by name: `--logger tensorboard wandb`.

TensorBoard and CSV are loggers of Lightning Fabric. Those of MLflow and Weights & Biases have the same
interface; they are part of pytorch-lightning, and Linnet installs neither it nor their own packages.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from linnet.runs.errors import missing

PROJECT = "linnet"
"""The experiment of MLflow and the project of Weights & Biases in which runs are listed."""


class Source(NamedTuple):
    """The module and the class of a logger, and the package that it writes with."""

    module: str
    name: str
    package: str


FABRIC, LIGHTNING = "lightning_fabric.loggers", "pytorch_lightning.loggers"
SOURCES = {
    "tensorboard": Source(FABRIC, "TensorBoardLogger", "tensorboard"),
    "csv": Source(FABRIC, "CSVLogger", "csv"),
    "mlflow": Source(LIGHTNING, "MLFlowLogger", "mlflow"),
    "wandb": Source(LIGHTNING, "WandbLogger", "wandb"),
}
OPTIONS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    # Events after `step` are of a part of the run that is made again.
    "tensorboard": lambda run, step: {
        **{"root_dir": run, "name": "events", "version": "", "purge_step": step},
    },
    "csv": lambda run, step: {"root_dir": run, "name": "events"},
    # MLflow's own choice: MLFLOW_TRACKING_URI, or the database that `mlflow ui` shows in the same folder.
    "mlflow": lambda run, step: {
        **{"experiment_name": PROJECT, "run_name": run.name},
        "tracking_uri": import_module("mlflow").get_tracking_uri(),
    },
    "wandb": lambda run, step: {"project": PROJECT, "name": run.name, "save_dir": str(run / "events")},
}
COMPARES_SETTINGS = ("mlflow", "wandb")
"""Loggers whose pages compare runs by their settings."""


def check_installed(name: str) -> None:
    """Raise ImportError if a package of this logger is not installed."""
    source = SOURCES[name]
    packages = source.module.partition(".")[0], source.package
    lacking = [package for package in packages if find_spec(package) is None]
    if lacking:
        raise missing(f"--logger {name}", " ".join(lacking).replace("_", "-"))


def make_logger(name: str, run: Path, step: int, settings: dict[str, Any]) -> Any:
    """Return a logger for the run in directory `run`, which starts or resumes after update `step`."""
    source = SOURCES[name]
    logger = getattr(import_module(source.module), source.name)(**OPTIONS[name](run, step))
    if name in COMPARES_SETTINGS:
        logger.log_hyperparams(settings)
    return logger


def close_logger(name: str, logger: Any) -> None:
    logger.finalize("success")
    if name == "wandb":
        # Otherwise the next run of this process, in `linnet compare`, would be added to the same run.
        logger.experiment.finish()
