"""What reading the text of a plan checks: the fields of an object, and the kinds of operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.program.trace import LOGICAL


class MalformedError(ValueError):
    """A text is not that of a plan."""

    def __init__(self, problem: str):
        super().__init__(
            f"the plan of a linnet::scan cannot be read: {problem}. It is written by torch.compile and "
            "torch.export; export the model again with this version of Linnet"
        )


def need(true: bool, problem: str) -> None:
    if not true:
        raise MalformedError(problem)


def fields(value: Any, expected: Sequence[str]) -> dict[str, Any]:
    found = sorted(value) if isinstance(value, dict) else type(value).__name__
    need(found == sorted(expected), f"the fields {sorted(expected)} were expected; got {found}")
    return value


def check_kinds(op: str, truths: Sequence[bool]) -> None:
    """Numbers and truth values do not mix."""
    expected = [True, False, False] if op == "where" else [op in LOGICAL] * len(truths)
    need(list(truths) == expected, f"{op} got truth values for numbers, or numbers for truth values")
