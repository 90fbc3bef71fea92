"""The small trained models that are part of the package, by names such as "ready:punctuate": docs/ready.md.

Each is a run folder in linnet/ready that `python -m tools.ready` has written; nothing else writes there.
"""

from __future__ import annotations

from pathlib import Path

from linnet.base.suggest import no_such

PREFIX = "ready:"
FOLDER = Path(__file__).parents[1] / "ready"
NAMES = ("punctuate", "translate", "kjv")


def is_ready(run: str | Path) -> bool:
    return str(run).startswith(PREFIX)


def local_run(run: str | Path) -> Path:
    """Return the folder of a run on this machine, or of a model of the package."""
    name = str(run).removeprefix(PREFIX)
    if not is_ready(run):
        return Path(run)
    if name not in NAMES:
        raise ValueError(no_such("model of the package", run, [PREFIX + each for each in NAMES]))
    return FOLDER / name
