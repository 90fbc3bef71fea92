"""The kinds of task that can be trained, by name: what they read, what they build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from linnet.train.errors import nearest


class Kind(NamedTuple):
    data: type  # a frozen dataclass: what is read, and how it is cut into batches
    model: type  # a frozen dataclass: what is built
    build: Callable[..., Any]  # (data, model, seed) -> a Task
    keep: Callable[[Any, Path], None]  # writes into the run directory what a model needs to be used alone


KINDS: dict[str, Callable[[], Kind]] = {}


def kind(name: str) -> Kind:
    if name not in KINDS:
        raise ValueError(f"no task {name!r}{nearest(name, KINDS)} The tasks are {', '.join(KINDS)}")
    return KINDS[name]()


def language() -> Kind:
    from linnet.models.language import LanguageModelConfig
    from linnet.train.language import LanguageData, build, keep

    return Kind(LanguageData, LanguageModelConfig, build, keep)


KINDS["lm"] = language
