"""Write the commands that install Linnet in all pages, as linnet/base/project.py says them.

python -m tools.install
"""

from __future__ import annotations

import re
from pathlib import Path

from linnet.base import project

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "benchmarks", ROOT / "experiments")
COMMAND = re.compile(rf"""pip install (['"]?)(?:\.|{project.NAME})(?:\[(?P<extra>[\w,]+)\])?\1(?![\w./\[])""")


def pages() -> list[Path]:
    """The pages of today; docs/log.md says what was once so."""
    return [page for folder in FOLDERS for page in sorted(folder.glob("*.md")) if page.name != "log.md"]


def written(text: str) -> str:
    return COMMAND.sub(lambda found: project.install(found["extra"] or ""), text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")
