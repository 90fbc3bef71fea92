"""Where Linnet is found: the one place that decides what messages and pages say about it."""

from __future__ import annotations

# The name on the package index, where `linnet` is another project.
NAME = "linnet-rnn"
# True from the first release on: then run `python -m tools.install`, which writes it in all pages.
ON_INDEX = False
# To be set before the first release; a test compares pyproject.toml and CITATION.cff with it.
REPOSITORY = "https://github.com/linnet-rnn/linnet"


def install(extra: str = "") -> str:
    """Return the command that installs Linnet with the packages of an extra."""
    packages = f"[{extra}]" if extra else ""
    where = f"{NAME}{packages}" if ON_INDEX else f".{packages}"
    return f"pip install '{where}'" if extra else f"pip install {where}"


def install_anywhere(extra: str) -> str:
    """Return the same for somebody who has no checkout, such as the reader of a notebook."""
    return install(extra) if ON_INDEX else f"pip install '{NAME}[{extra}] @ git+{REPOSITORY}'"


def advice(extra: str) -> str:
    """Return what an error says after a package is missing: the command, and where it works."""
    return install(extra) if ON_INDEX else f"{install(extra)} in a checkout of Linnet"
