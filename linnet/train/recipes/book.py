"""A recipe, the list of recipes, and how to add to it."""

from __future__ import annotations

from typing import Any, NamedTuple

Settings = dict[str, Any]


class Recipe(NamedTuple):
    about: str
    settings: Settings
    task: str = "lm"


RECIPES: dict[str, Recipe] = {}


def add(name: str, about: str, *parts: Settings, **more: Any) -> None:
    """Add a recipe of a language model; later parts override earlier ones."""
    put("lm", name, about, *parts, more)


# The defaults of `linnet train` are not those of the papers, so every recipe states these three.
PLAIN_SGD: Settings = {"optimiser": "sgd", "lr": 1.0, "clip": 0.0}


def put(task: str, name: str, about: str, *parts: Settings) -> None:
    settings = {key: value for part in (PLAIN_SGD, *parts) for key, value in part.items()}
    RECIPES[name] = Recipe(about, settings, task)


def everywhere(rate: float) -> Settings:
    """Dropout on the words, between layers and on the last output."""
    return {"input_dropout": rate, "layer_dropout": rate, "output_dropout": rate}
