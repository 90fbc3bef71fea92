"""How the command line reads, and how it answers what it cannot read."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable
from typing import NoReturn

from linnet.layers.stacks import UNITS


class Parser(argparse.ArgumentParser):
    """Answers a wrong name with the nearest right one."""

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}{self.hint(message)}")

    def hint(self, message: str) -> str:
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            near = nearest(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        elif wrong := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            near = nearest(wrong[1], self.flags())
        else:
            near = ""
        return f"; {near}" if near else ""

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]


def nearest(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.4)
    return f"did you mean {found[0]!r}?" if found else ""


def unit_name(name: str) -> str:
    if name in UNITS:
        return name
    hint = " ".join(filter(None, [nearest(name, UNITS), f"the units are {', '.join(UNITS)}"]))
    raise argparse.ArgumentTypeError(f"no unit {name!r}; {hint}")


def at_least_one(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)
