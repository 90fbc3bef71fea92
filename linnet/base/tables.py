"""Tables of strings, as plain text and as Markdown."""

from __future__ import annotations

from collections.abc import Container, Sequence


def short(value: float, digits: int) -> str:
    """Return a count in full, with commas, and other numbers with this many significant digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def text_table(rows: Sequence[Sequence[str]], left: Container[int] = ()) -> str:
    """Align the columns of `rows` to the right, those whose number is in `left` to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(text_line(row, widths, left) for row in rows)


def text_line(row: Sequence[str], widths: Sequence[int], left: Container[int]) -> str:
    cells = [
        cell.ljust(width) if number in left else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
