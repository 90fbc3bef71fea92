"""The machine and the packages that a figure was measured with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from linnet.base.version import __version__


def installed_version(package: str) -> str:
    """Return the version of a distribution, or "" if it is not installed."""
    if package == "linnet-rnn":
        # An editable install keeps the version with which it was made.
        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def processor_name() -> str:
    """Return the processor's model name, or the architecture where the system does not tell the model."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
