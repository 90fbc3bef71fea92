"""Parsing of the command line, with errors of one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from linnet.base.suggest import did_you_mean, no_such
from linnet.runs.ready import is_ready
from linnet.runs.remote import is_url
from linnet.units import UNITS

DEVICES = ("cpu", "cuda")
ALL = "--all"
"""With --help: show all options, not only those that most runs set."""


class HelpFormatter(argparse.HelpFormatter):
    """Help with a wider column for the names of options, so that most texts begin on the same line."""

    def __init__(self, prog: str, **given: Any):
        super().__init__(prog, max_help_position=32, **given)


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one line: what is wrong, the nearest valid name, and where the help is."""

    def __init__(self, *arguments: Any, **given: Any):
        super().__init__(*arguments, **{"formatter_class": HelpFormatter, **given})

    def error(self, message: str) -> NoReturn:
        line = " ".join(f"{message}{self.hint(message)}".split())
        self.exit(2, f"{self.prog}: error: {line} (see {self.prog} --help)\n")

    def hint(self, message: str) -> str:
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            return did_you_mean(wrong[1], re.findall(r"[\w.-]+", wrong[2]))
        if wrong := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            return did_you_mean(wrong[1], self.flags())
        return ""

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]


class LazyParser(Parser):
    """Adds its options when it first parses: the modules that define them take time to import.

    Options may come before, between and after the positional arguments.
    """

    fill: Callable[[argparse.ArgumentParser], None] | None = None
    # The arguments, and the first of them: the options may depend on them.
    words: Sequence[str] = ()
    # The groups of options that help shows with --all only.
    further: Sequence[Any] = ()
    first_word: str | None = None

    def parse_known_args(self, *arguments: Any, **given: Any) -> Any:
        # parse_known_intermixed_args below calls this method.
        if self.fill is None:
            return super().parse_known_args(*arguments, **given)
        self.words = (arguments[0] if arguments else None) or ()
        self.first_word = next(iter(self.words), None)
        fill, self.fill = self.fill, None
        fill(self)
        if self._subparsers is not None:
            return super().parse_known_args(*arguments, **given)
        found, left = self.parse_known_intermixed_args(*arguments, **given)
        if left:
            # Otherwise the main parser would report it, and compare it with its own options.
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def format_help(self) -> str:
        if not self.further or ALL in self.words:
            return super().format_help()
        everything = self._action_groups
        self._action_groups = [group for group in everything if group not in self.further]
        try:
            shown = super().format_help()
        finally:
            self._action_groups = everything
        count = sum(len(group._group_actions) for group in self.further)
        return f"{shown}\n{count} further options: {self.prog} --help {ALL}\n"


def unit_name(name: str) -> str:
    if name in UNITS:
        return name
    raise argparse.ArgumentTypeError(no_such("unit", name, UNITS))


def path_name(text: str) -> Path:
    """A file or a folder; an empty text, as from an unset variable of the shell, would be the folder "."."""
    if not text:
        raise argparse.ArgumentTypeError("expected the name of a file or a folder; got an empty text")
    return Path(text)


def run_name(text: str) -> Path | str:
    """A folder, a URL in a store, or a model of the package, such as ready:punctuate."""
    return text if is_url(text) or is_ready(text) else path_name(text)


def at_least_one(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1; got {text!r}")
    return int(text)
