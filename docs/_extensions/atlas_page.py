"""Writes the page of the recorded atlas, atlas_page.html; its lenses are those of the units' pages."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from unit_lenses import shown_units

from linnet.atlas.page import write_page
from linnet.atlas.record import read_atlas
from tools.pages import ATLAS_RECORD

PAGE = "atlas_page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}


def link(app: Sphinx, docname: str, source: list[str]) -> None:
    """On the site, the name of the page is a link to it."""
    if docname == "atlas":
        source[0] = source[0].replace(f"`{PAGE}`", f'<a href="{PAGE}">{PAGE}</a>')


def write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        lenses = {name: f"lenses/{name}.html" for name in shown_units(app)}
        write_page(Path(app.outdir) / PAGE, read_atlas(ATLAS_RECORD), lenses)
