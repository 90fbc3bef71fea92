"""Write what pages say about where Linnet is found, as linnet/base/project.py decides it.

python -m tools.install

These are the commands that install it, and blocks between two markers: badges and the link to the notebook,
which are empty until Linnet is on the package index, and the citation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from linnet.base import project
from linnet.base.pages import filled_text

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "benchmarks", ROOT / "experiments")
COMMAND = re.compile(rf"""pip install (['"]?)(?:\.|{project.NAME})(?:\[(?P<extra>[\w,]+)\])?\1(?![\w./\[])""")
BOUNDS = re.compile(r'"torch>=(?P<least>[\d.]+),<(?P<major>\d+)\.(?P<minor>\d+)"')
NOTEBOOK = "docs/ten_minutes.ipynb"
SHIELDS, COLAB = "https://img.shields.io", "https://colab.research.google.com"


def pages() -> list[Path]:
    """The pages of today; docs/log.md says what was once so."""
    return [page for folder in FOLDERS for page in sorted(folder.glob("*.md")) if page.name != "log.md"]


def written(text: str) -> str:
    text = COMMAND.sub(lambda found: project.install(found["extra"] or ""), text)
    for name, body in BLOCKS.items():
        begin, end = markers(name)
        if begin in text:
            # An empty block has one empty line.
            text = filled_text(name, text, body(), begin, end).replace(f"{begin}\n\n\n\n", f"{begin}\n\n")
    return text


def markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin, written by tools/install.py -->", f"<!-- {name}: end -->"


# -------------------------------------------------------------------------------------- blocks


def badges() -> str:
    """The state of the tests, and what the package index says. Before the release each would be false."""
    if not project.ON_INDEX:
        return ""
    index, tests = (
        f"https://pypi.org/project/{project.NAME}",
        f"{project.REPOSITORY}/actions/workflows/tests.yml",
    )
    shown = {
        "tests": (f"{tests}/badge.svg", tests),
        "version": (f"{SHIELDS}/pypi/v/{project.NAME}", index),
        "Python": (f"{SHIELDS}/pypi/pyversions/{project.NAME}", index),
        "torch": (f"{SHIELDS}/badge/torch-{versions_of_torch()}-blue", index),
        "licence": (f"{SHIELDS}/pypi/l/{project.NAME}", f"{project.REPOSITORY}/blob/main/LICENSE"),
    }
    return "\n".join(f"[![{name}]({picture})]({link})" for name, (picture, link) in shown.items())


def versions_of_torch() -> str:
    """Return the oldest and the newest version that pyproject.toml allows."""
    found = BOUNDS.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError('pyproject.toml has no line such as "torch>=2.10,<2.16" in its dependencies')
    return f"{found['least']}_to_{found['major']}.{int(found['minor']) - 1}"


def notebook() -> str:
    """A link that opens the notebook in Colab, which reads it from the repository."""
    if not project.ON_INDEX:
        return ""
    path = project.REPOSITORY.removeprefix("https://github.com/")
    return f"[Open this page as a notebook in Colab]({COLAB}/github/{path}/blob/main/{NOTEBOOK})."


def citation() -> str:
    """CITATION.cff for BibTeX; with the address once it leads somewhere."""
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    fields = {
        "title": about["title"],
        "author": " and ".join(f"{{{author['name']}}}" for author in about["authors"]),
        "version": about["version"],
        **({"url": about["repository-code"]} if project.ON_INDEX else {}),
    }
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items()]
    return f"```bibtex\n@software{{linnet,\n{''.join(lines)}}}\n```"


BLOCKS: dict[str, Callable[[], str]] = {"badges": badges, "notebook": notebook, "citation": citation}

if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
