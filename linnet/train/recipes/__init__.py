"""The papers' recipes by name, each a run that can be changed field by field.

Where a paper does not say, its authors' code decides. The text of a recipe says where it differs from both.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.base.suggest import did_you_mean
from linnet.train.recipes import language, memory, ready, texts, tracking
from linnet.train.recipes.book import RECIPES, Recipe

__all__ = ["RECIPES", "Recipe", "recipe"]

BOOKS: tuple[Callable[[], None], ...] = (
    *(language.add_ran, language.add_lrn, texts.add_lrn_ner, language.add_nru, memory.add_nru_memory),
    *(language.add_sru, language.add_scrn, texts.add_classification, texts.add_lrn_snli),
    *(texts.add_reading, texts.add_translation, memory.add_oscillators, memory.add_rows),
    *(tracking.add_minrnns, tracking.add_xlstm_parity, ready.add_ready),
)
for add_recipes in BOOKS:
    add_recipes()


def recipe(name: str, task: str | None = None) -> Recipe:
    """Return a recipe by its name; if `task` is given, it must be a recipe of that task."""
    if name not in RECIPES:
        raise ValueError(
            f"no recipe {name!r}{did_you_mean(name, RECIPES) or ';'} `linnet list recipes` has them all"
        )
    found = RECIPES[name]
    if task is not None and found.task != task:
        raise ValueError(f"{name} is a recipe of the task {found.task}, and this is {task}")
    return found
