"""Trains a small language model of each unit and writes its lens, lenses/<unit>.html, for the unit's page.

The settings of the site (`-D unit_lenses=sru,lrn`) are

    unit_lenses   the units, separated by commas; "all" or "none"
    lens_steps    the updates of each training

The runs are in the folder of the build's doctrees: a finished run is not trained again.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

import linnet
from linnet.analysis.lens.runs import lens_of_runs
from linnet.cli import main

LOG = logging.getLogger(__name__)
SETTINGS = "--hidden-size 48 --embedding-size 48 --vocabulary-size 1500 --num-layers 1"
TEXT = "And the king said unto his servants, Go ye out of the city, and bring me the son of David."
# The height of the page in a unit's page, in pixels.
HEIGHT = 900


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("unit_lenses", "all", "env", [str])
    app.add_config_value("lens_steps", 200, "env", [int])
    app.connect("build-finished", write_lenses)
    return {"parallel_read_safe": True}


def shown_units(app: Sphinx) -> list[str]:
    """The units that get a lens."""
    wanted = app.config.unit_lenses
    return list(linnet.UNITS) if wanted == "all" else [name for name in wanted.split(",") if name != "none"]


def section(name: str, steps: int) -> str:
    """The part of a unit's page with its lens."""
    title = linnet.UNITS[name].__name__
    frame = f'loading="lazy" style="width: 100%; height: {HEIGHT}px; border: 1px solid #8884"'
    return (
        f"## Lens of a trained {title}\n\n"
        "The build of this site trained this model on the King James Bible: it is small and has seen little. "
        "Type a text and watch the model read it; [the lens](../lens.md) explains the views.\n\n"
        f"```sh\n{command(name, steps)}\nlinnet lens runs/kjv-{name}\n```\n\n"
        f"```{{raw}} html\n"
        f'<p><a href="../lenses/{name}.html">Open the lens of {title} on a page of its own</a></p>\n'
        f'<iframe src="../lenses/{name}.html" title="Lens of a trained {title}" {frame}></iframe>\n```'
    )


def command(name: str, steps: int) -> str:
    return f"linnet train lm --unit {name} {SETTINGS} --steps {steps}"


def write_lenses(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / "lenses"
    folder.mkdir(exist_ok=True)
    for name in shown_units(app):
        run = Path(app.doctreedir) / f"lens_runs_{app.config.lens_steps}" / f"kjv-{name}"
        train(name, app.config.lens_steps, run)
        lens_of_runs([run], TEXT).save(folder / f"{name}.html")
        LOG.info("lens of %s", name)


def train(name: str, steps: int, run: Path) -> None:
    _, *arguments = command(name, steps).split()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        failed = main([*arguments, "--run-dir", str(run)])
    if failed:
        LOG.warning("the training of %s for its lens failed: %s", name, said.getvalue())
