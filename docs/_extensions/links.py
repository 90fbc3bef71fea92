"""Links that lead out of docs/, as they work in a checkout, lead to pages of the site.

The guides link to files of the repository, such as ../experiments/README.md or ../linnet/units/sru.py. On the
site, the former are pages that include these files; an example of the gallery is the page with its plots, and
other source files are not on the site. A link to the section of a unit in units.md leads to the unit's own
page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

import linnet

LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "docs/index.md",
    "CHANGELOG.md": "docs/changelog.md",
    "CONTRIBUTING.md": "docs/contributing.md",
    "benchmarks": "docs/benchmarks.md",
    "benchmarks/README.md": "docs/benchmarks.md",
    "experiments": "docs/results.md",
    "experiments/README.md": "docs/results.md",
    "experiments/log.md": "docs/diary.md",
}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite_source)
    app.connect("include-read", rewrite_included)
    return {"parallel_read_safe": True}


def rewrite_source(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = rewrite(source[0], posixpath.dirname(f"docs/{docname}"), docname)


def rewrite_included(app: Sphinx, path: Path, docname: str, source: list[str]) -> None:
    folder = (Path(app.srcdir) / path).resolve().relative_to(ROOT).parent.as_posix()
    source[0] = rewrite(source[0], folder, docname)


def rewrite(text: str, folder: str, docname: str) -> str:
    """Rewrite the links of a file that lies in `folder`, for the page `docname`."""

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        target = target_of(path, link[2] or "", docname)
        # Other files, such as tables of results, are not on the site: their name remains.
        return f"]({target})" if target else "]{.file}"

    return LINK.sub(replaced, text)


def target_of(path: str, anchor: str, docname: str) -> str | None:
    """Return the target of a link to `path`, a file of the repository; None if the site does not have it."""
    path = PAGES.get(path.rstrip("/"), path)
    path = re.sub(r"^examples/gallery/(\w+)\.py$", r"docs/gallery/\1.rst", path)
    if path == "docs/units.md" and anchor.lstrip("#") in linnet.UNITS:
        path, anchor = f"docs/units/{anchor.lstrip('#')}.md", ""
    here = posixpath.dirname(f"docs/{docname}")
    if path.startswith("docs/") or path.endswith((".png", ".svg")):
        return posixpath.relpath(path, here) + anchor
    return None
