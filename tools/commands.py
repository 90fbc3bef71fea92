"""The commands that pages print in blocks of sh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "docs", ROOT / "benchmarks", ROOT / "experiments")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A command of a page, without its breaks of lines, and the line at which it starts."""

    line: int
    text: str


def pages() -> list[Path]:
    """All pages whose commands can be typed today."""
    return [page for folder in FOLDERS for page in sorted(folder.glob("*.md")) if page.name != "log.md"]


def commands(text: str) -> list[Command]:
    found = []
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        # A line that ends in a backslash continues.
        for command in re.findall(r"(?:.*\\\n)*.*\n", block[1]):
            if command.strip():
                found.append(Command(line, command.replace("\\\n", "").strip()))
            line += command.count("\n")
    return found
