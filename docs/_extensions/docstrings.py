"""Docstrings in plain text become reStructuredText.

Arguments are listed as in the code, one per line with aligned explanations, and examples are indented:

    weight_drop      the probability that a weight of the recurrent matrices is dropped for a pass
                     (units that have none: of the input matrix)
    weight_drop_on   "recurrent", or "all" for the input matrices too
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \w+)*) {2,}(\S.*)")
CODE = re.compile(r"`([^`]+)`")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True}


def rewrite(app: Sphinx, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line for paragraph in paragraphs(lines) for line in (*as_rst(paragraph), "")]


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    for filled, group in groupby(lines, key=lambda line: bool(line.strip())):
        if filled:
            yield list(group)


def as_rst(paragraph: list[str]) -> list[str]:
    if all(line.startswith("    ") for line in paragraph):
        return [".. code-block:: text", "", *paragraph]
    if ARGUMENT.fullmatch(paragraph[0]):
        return [piece for line in paragraph for piece in as_argument(line)]
    return [marked(line) for line in paragraph]


def as_argument(line: str) -> list[str]:
    """Return an item of a definition list, or its continuation."""
    found = ARGUMENT.fullmatch(line)
    return [f"``{found[1]}``", f"    {marked(found[2])}"] if found else [f"    {marked(line.strip())}"]


def marked(line: str) -> str:
    return CODE.sub(r"``\1``", line).replace("*", r"\*")
