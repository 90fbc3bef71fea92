"""Answer a question in the environment of a library.

    python -m tools.compat.forecasts.inside LIBRARY FOLDER

FOLDER has asked.npz and asked.json, and gets answer.npz and answer.json.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Asked:
    """A model to be trained on `known`, and the histories after which it forecasts."""

    known: list[np.ndarray]
    histories: list[np.ndarray]
    model: str
    settings: dict[str, Any]
    context: int
    horizon: int
    seconds: float
    seed: int
    season: int = 1

    def write(self, folder: Path) -> None:
        given = {key: value for key, value in vars(self).items() if key not in ("known", "histories")}
        (folder / "asked.json").write_text(json.dumps(given), encoding="utf-8")
        arrays: dict[str, Any] = {f"known{number}": values for number, values in enumerate(self.known)}
        arrays |= {f"histories{number}": values for number, values in enumerate(self.histories)}
        np.savez(folder / "asked.npz", **arrays)

    @classmethod
    def read(cls, folder: Path) -> Asked:
        given = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
        with np.load(folder / "asked.npz") as arrays:
            known, histories = (
                [arrays[name] for name in arrays.files if name.startswith(part)]
                for part in ("known", "histories")
            )
        return cls(known, histories, **given)


@dataclass(frozen=True)
class Answer:
    """Forecasts, and what they took."""

    values: np.ndarray  # [histories, horizon]
    train_seconds: float  # of CPU time
    forecast_seconds: float
    steps: int
    parameters: int

    def write(self, folder: Path) -> None:
        taken = {key: value for key, value in asdict(self).items() if key != "values"}
        np.savez(folder / "answer.npz", values=self.values)
        (folder / "answer.json").write_text(json.dumps(taken), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Answer:
        with np.load(folder / "answer.npz") as arrays:
            values = arrays["values"]
        return cls(values, **json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def main() -> None:
    library, folder = sys.argv[1], Path(sys.argv[2])
    answer = import_module(f"tools.compat.forecasts.with_{library}").answer
    answer(Asked.read(folder)).write(folder)


if __name__ == "__main__":
    main()
