"""Writes reference.md, the page of all public names, from `linnet.__all__`."""

from __future__ import annotations

import inspect
from pathlib import Path

from sphinx.application import Sphinx
from unit_pages import write_if_changed

import linnet

HEAD = """# Reference

Everything that `import linnet` offers. [Shapes, state and options](api.md) explains what all units share.
"""
STACKS = [unit.__name__ for unit in linnet.UNITS.values()]
CELLS = [unit.cell_class.__name__ for unit in linnet.UNITS.values()]
OTHERS = [name for name in linnet.__all__ if name not in (*STACKS, *CELLS, "UNITS")]
GROUPS = {
    "Functions": [name for name in OTHERS if inspect.isroutine(getattr(linnet, name))],
    "Classes": [name for name in OTHERS if inspect.isclass(getattr(linnet, name))],
    "Units": STACKS,
    "Cells": CELLS,
}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}


def write(app: Sphinx) -> None:
    parts = [HEAD, *(f"## {title}\n\n{section(names)}" for title, names in GROUPS.items())]
    write_if_changed(Path(app.srcdir) / "reference.md", "\n".join(parts))


def section(names: list[str]) -> str:
    return "\n".join(f"```{{eval-rst}}\n{directive(name)}\n```\n" for name in names)


def directive(name: str) -> str:
    if inspect.isroutine(getattr(linnet, name)):
        return f".. autofunction:: linnet.{name}"
    if issubclass(getattr(linnet, name), Warning):
        return f".. autoexception:: linnet.{name}"
    return f".. autoclass:: linnet.{name}"
