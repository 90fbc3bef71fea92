"""Write docs/ten_minutes.ipynb, a notebook for Colab, from docs/ten_minutes.md.

python -m tools.notebook
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from linnet.base import project

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "ten_minutes.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)\s]+)\)")


def notebook(text: str) -> dict[str, Any]:
    """The cells of a page: text and Python as they are, and commands with the sign of a notebook."""
    cells, end = [], 0
    for block in BLOCK.finditer(text):
        cells.append(cell("markdown", with_links(text[end : block.start()])))
        cells.append(code_cell(block[1], block[2]))
        end = block.end()
    cells.append(cell("markdown", with_links(text[end:])))
    cells = [{**each, "id": f"cell-{n}"} for n, each in enumerate(c for c in cells if c["source"])]
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def cell(kind: str, text: str) -> dict[str, Any]:
    further: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, **further, "source": text.strip().splitlines(keepends=True)}


def code_cell(language: str, text: str) -> dict[str, Any]:
    if language == "python":
        return cell("code", text)
    if language == "sh" and "pip install" in text:
        return cell("code", f"%{project.install_anywhere('lm')} --quiet")
    return cell("markdown", f"```{language}\n{text}```")


def with_links(text: str) -> str:
    """Links to other pages, as addresses in the repository."""

    def address(link: re.Match[str]) -> str:
        return f"]({project.REPOSITORY}/blob/main/{posixpath.normpath(posixpath.join('docs', link[1]))})"

    return LINK.sub(address, text)


def text() -> str:
    return json.dumps(notebook(PAGE.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text(), encoding="utf-8")
