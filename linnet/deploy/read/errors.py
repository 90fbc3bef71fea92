"""The one error of files that cannot be read as a model."""

from __future__ import annotations


class UnreadableModel(ValueError):  # noqa: N818, says what the file is
    """A model file is damaged, exceeds a limit, or has parts that Linnet does not read."""
