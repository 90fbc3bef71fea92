"""What an export says about a `StreamStep`: the names of its numbers, and a program that reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from linnet.deploy.source.c import indented
from linnet.deploy.source.c_programs import literal, weights_parts
from linnet.deploy.source.folder import filled
from linnet.models.stream_step import TIME, StreamStep
from linnet.runs.untrusted import harmless

# The inputs that a README lists one by one; of more, it lists the first and the last ones.
MOST_LISTED = 24
LISTED = 12
# Characters of a number in a line that is read.
LONGEST_NUMBER = 32
ABOUT_TIME = dict(
    zip(TIME, ("days since 1970-01-01, `time / 86400`", "seconds of that day, `time % 86400`"), strict=True)
)


def example_program(step: StreamStep, name: str, weights_file: bool) -> str:
    """main.c, which reads lines of numbers."""
    *outer, last = step.axes
    parts = {
        "NAME": name,
        "PREFIX": name.upper(),
        "FIELDS": fields_of(step),
        "HAS_TIME": str(int(step.has_time)),
        "NUMBERS": str(numbers_of(step)),
        "LINE": str(1024 + LONGEST_NUMBER * len(step.inputs)),
        "ROWS": str(len(step.rows())),
        "COLUMNS": str(len(last.labels)),
        "HAS_CLASS": str(int(last.scores)),
        "HEADER": as_literal([*(axis.name for axis in (step.axes if last.scores else outer)), *last.labels]),
        "ROW_NAMES": indented(f"{as_literal([*row, ''])}," for row in step.rows()),
        "LABELS": indented(f"{as_literal([label])}," for label in last.labels),
        **weights_parts(name, weights_file),
    }
    return filled("stream.c", parts)


def example_module(step: StreamStep) -> str:
    """main.mjs, which does the same in Node."""
    return filled("stream.mjs", {"FIELDS": fields_of(step)})


def as_literal(names: Sequence[str]) -> str:
    """A line of a CSV file, as C writes a string."""
    return literal(",".join(map(csv_field, names)).encode("utf-8", "replace"))


def csv_field(name: str) -> str:
    """A name as a field; control characters, which a terminal would obey, as escapes."""
    text = harmless(name)
    return '"{}"'.format(text.replace('"', '""')) if re.search('[",]', text) else text


def numbers_of(step: StreamStep) -> int:
    """The inputs besides the time."""
    return len(step.inputs) - len(TIME) * step.has_time


def fields_of(step: StreamStep) -> str:
    numbers = numbers_of(step)
    return f"{'its time and ' if step.has_time else ''}{numbers} number{'s' if numbers != 1 else ''}"


def names_of(step: StreamStep) -> dict[str, Any]:
    """The names for JSON and JavaScript."""
    axes = [{**axis._asdict(), "labels": list(map(harmless, axis.labels))} for axis in step.axes]
    return {"inputs": list(map(harmless, step.inputs)), "axes": axes, "hasTime": step.has_time}


def names_text(step: StreamStep | None) -> str:
    """The names as a constant of a module in JavaScript."""
    return json.dumps(None if step is None else names_of(step), ensure_ascii=False)


def readme_section(step: StreamStep | None, command: str) -> str:
    """What the README of a folder says about the numbers of a step; `command` runs the example program."""
    if step is None:
        return ""
    parts = {
        "NOTES": " ".join(step.notes),
        "INPUTS": "\n".join(input_rows(step)),
        "AXES": "\n".join(axis_rows(step)),
        "PLACE": place_text(step),
        "FIELDS": fields_of(step),
        "PRINTED": printed_text(step),
        "COMMAND": command,
    }
    return filled("stream.md", parts)


def printed_text(step: StreamStep) -> str:
    """What the example program prints."""
    last = step.axes[-1]
    return f"the {last.name} with the highest score and all scores" if last.scores else "the answer"


def input_rows(step: StreamStep) -> Iterator[str]:
    rows = [f"| {place} | {about_input(name, step)} |" for place, name in enumerate(step.inputs)]
    if len(rows) > MOST_LISTED:
        rows[LISTED : -len(TIME) - 1] = ["| ... | ... |"]
    yield from rows


def about_input(name: str, step: StreamStep) -> str:
    is_time = step.has_time and name in step.inputs[-len(TIME) :]
    return f"{shown(name)}: {ABOUT_TIME[name]}" if is_time else shown(name)


def shown(name: str) -> str:
    """A name of a column in a table of Markdown."""
    return f"`{harmless(name)}`".replace("|", "\\|")


def axis_rows(step: StreamStep) -> Iterator[str]:
    for number, axis in enumerate(step.axes):
        labels = axis.labels
        if len(labels) > MOST_LISTED:
            labels = (*labels[:3], "...", labels[-1])
        yield f"| `i{number}`, 0 to {len(axis.labels) - 1} | {axis.name} | {', '.join(map(shown, labels))} |"


def place_text(step: StreamStep) -> str:
    """Where the number of each place of the axes is in the output."""
    text = "i0"
    for number, axis in enumerate(step.axes[1:], 1):
        text = f"{f'({text})' if ' ' in text else text} * {len(axis.labels)} + i{number}"
    return text
