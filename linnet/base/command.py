"""What the command `linnet` does before its modules are imported: Ctrl-C is quiet, --version is fast.

`linnet/__init__.py` imports this file first: importing torch takes seconds.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from linnet.base.version import __version__

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


def is_command() -> bool:
    """Return whether this process is `linnet` or `python -m linnet`, not another program that imports it."""
    by_module = ("-m", "linnet") in pairwise(sys.orig_argv)
    return by_module or Path(sys.argv[0]).stem == "linnet"


def end_quietly(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        # Not sys.exit: after a KeyboardInterrupt that nothing has caught, Python ends with another code.
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


if is_command():
    sys.excepthook = end_quietly
    if sys.argv[1:] == ["--version"]:
        # Without torch, which takes seconds to import.
        print(f"linnet {__version__}")
        raise SystemExit(0)
