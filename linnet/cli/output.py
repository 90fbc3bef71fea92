"""What commands print."""

from __future__ import annotations

import os
from collections.abc import Mapping

from linnet.base.tables import short, text_table
from linnet.runs.untrusted import harmless
from linnet.tasks.results import Section


def is_first_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0


def say(*words: object) -> None:
    """Print, in the first process only."""
    if is_first_process():
        print(*map(harmless, words), flush=True)


def result_line(split: str, numbers: Mapping[str, float]) -> str:
    return f"{split}: " + "  ".join(f"{name} {short(value, 5)}" for name, value in numbers.items())


def section_table(section: Section) -> str:
    """Return a section as a table of text; words are aligned to the left, numbers to the right."""
    columns = list(zip(*section.rows, strict=True))
    left = [number for number, column in enumerate(columns) if not any(cell[:1].isdigit() for cell in column)]
    return text_table([section.head, *section.rows], left=left)
