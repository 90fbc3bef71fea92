"""The kinds of task that can be trained, by name: what they read, what they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from linnet.base.suggest import no_such


class Variant(NamedTuple):
    """A form of a unit that is compared under a name of its own, or under that of the unit."""

    unit: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any] = {}  # of its runs, beside those that all runs have


class Comparison(NamedTuple):
    """How units are compared at a task: what is taken where the user names nothing."""

    units: tuple[str, ...]
    budget: int  # parameters of each model
    settings: Mapping[str, Any]
    fitting: Callable[
        [Any], Callable[[Any, int], Any]
    ]  # data -> (model, budget) -> the model as wide as fits
    variants: Callable[[Any], Mapping[str, Variant]] = lambda data: {}  # data -> those there are, by name


class Kind(NamedTuple):
    data: type  # a frozen dataclass: what is read, and how it is cut into batches
    model: type  # a frozen dataclass: what is built
    build: Callable[..., Any]  # (data, model, seed) -> a Task
    keep: Callable[[Any, Path], None]  # writes into the run directory what a model needs to be used alone
    # Where a run of this kind starts from, part by part, if not from the defaults of the parts.
    defaults: Mapping[str, Mapping[str, Any]] = {}
    comparison: Comparison | None = None


KINDS: dict[str, Callable[[], Kind]] = {}


def kind(name: str) -> Kind:
    if name not in KINDS:
        raise ValueError(no_such("task", name, KINDS))
    return KINDS[name]()


def language() -> Kind:
    """a language model"""
    from linnet.models.language import LanguageModelConfig
    from linnet.train.language import COMPARISON, LanguageData, build, keep

    return Kind(LanguageData, LanguageModelConfig, build, keep, comparison=COMPARISON)


def memory(name: str) -> Kind:
    from linnet.train.memory import make_kind

    return make_kind(name)


def copying() -> Kind:
    """copying memory: ten symbols, a wait, the ten symbols"""
    return memory("memory.copy")


def variable() -> Kind:
    """copying memory after a wait of any length"""
    return memory("memory.variable")


def denoising() -> Kind:
    """ten symbols strewn among blanks"""
    return memory("memory.denoise")


def adding() -> Kind:
    """the sum of the two numbers that were marked"""
    return memory("memory.adding")


def pixels() -> Kind:
    """digits of MNIST, a pixel at a time"""
    return memory("memory.smnist")


def permuted_pixels() -> Kind:
    """the same with the pixels in a fixed random order"""
    return memory("memory.psmnist")


KINDS |= {
    "lm": language,
    "memory.copy": copying,
    "memory.variable": variable,
    "memory.denoise": denoising,
    "memory.adding": adding,
    "memory.smnist": pixels,
    "memory.psmnist": permuted_pixels,
}
