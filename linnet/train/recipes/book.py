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


# The defaults of `linnet train` are chosen for users' data and may change. So a recipe states every setting
# for which a task has a default of its own: these, unless the paper has others.
PLAIN_SGD: Settings = {"optimiser": "sgd", "lr": 1.0, "clip": 0.0}
WHOLE_LENGTH: Settings = {"epochs": 10, "patience": 0, "schedule": "constant", "warmup": 0}
FUSED: Settings = {"fused": True}
WITHOUT_DEFAULTS: dict[str, Settings] = {
    "lm": {},
    "classify": {
        **{**FUSED, "embedding_size": 100, "hidden_size": 128, "input_dropout": 0.3, "pooled_dropout": 0.3},
        **{"unit": "lstm", "bidirectional": False, "num_layers": 2, "pooling": "last", "counts": "none"},
        **{"init": "unit", "updates": 2000, "strip_markup": False, "best_by": "accuracy"},
    },
    "nli": {
        **{**FUSED, "embedding_size": 100, "hidden_size": 100, "input_dropout": 0.2, "output_dropout": 0.2},
        **{"unit": "lstm", "counts": "none", "strip_markup": False, "best_by": "accuracy"},
        "epochs": 5,
    },
    "tag": {
        **{**FUSED, "epsilon": 1e-7, "updates": 2000, "batch": 32},
        **{"character_size": 25, "character_hidden": 25, "rare_dropout": 0.0},
    },
    "translate": {
        **{**FUSED, "epochs": 2, "schedule": "cosine", "warmup": 200, "updates": 2000},
        **{"hidden_size": 192, "num_layers": 1, "heads": 4, "inner_size": 512, "dropout": 0.1},
        **{"pieces": 4000, "tokens": 1024, "ema": 0.0, "ema_warmup": False},
    },
    "read": {"embedding_size": 100, "hidden_size": 100, "input_dropout": 0.3, "output_dropout": 0.3},
}


def put(task: str, name: str, about: str, *parts: Settings) -> None:
    first = (PLAIN_SGD, WHOLE_LENGTH, WITHOUT_DEFAULTS.get(task, {}))
    settings = {key: value for part in (*first, *parts) for key, value in part.items()}
    RECIPES[name] = Recipe(about, settings, task)


def everywhere(rate: float) -> Settings:
    """Dropout on the words, between layers and on the last output."""
    return {"input_dropout": rate, "layer_dropout": rate, "output_dropout": rate}
