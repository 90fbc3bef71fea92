"""linnet list: units, recipes, corpora and plots by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

from linnet.cli.parser import unit_name
from linnet.units import UNITS


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The units with their papers and options, the tasks, the papers' recipes, the corpora, the plots."
    )
    text = f"{', '.join(LISTS)}, or the names of units (everything)"
    command.add_argument("what", nargs="*", type=listed_name, metavar="WHAT", help=text)
    command.set_defaults(run=list_all)


def listed_name(name: str) -> str:
    return name if name in LISTS else unit_name(name)


def list_all(options: argparse.Namespace) -> None:
    wanted = options.what or list(LISTS)
    for name in wanted:
        if name in LISTS and len(wanted) > 1:
            print(f"{name}:")
        for line in LISTS[name]() if name in LISTS else unit_lines([name]):
            print(line)


def unit_lines(names: Sequence[str] = tuple(UNITS)) -> Iterator[str]:
    for name in names:
        paper = str(UNITS[name].__doc__).strip().splitlines()[0]
        yield f"{name:<15}{paper}"
        for option, parameter in UNITS[name].options().items():
            yield f"{'':<15}  {option}={parameter.default!r}"


def recipe_lines() -> Iterator[str]:
    from linnet.train.recipes import RECIPES

    for name, recipe in RECIPES.items():
        yield f"{name:<31}{recipe.about}"


def task_lines() -> Iterator[str]:
    from linnet.tasks import TASKS

    for name, task in TASKS.items():
        yield f"{name:<17}{task.about}"


def corpus_lines() -> Iterator[str]:
    from linnet.data.sources import CORPORA

    for name, source in CORPORA.items():
        yield f"{name:<15}{source.about}"
        yield f"{'':<15}  by {', '.join(source.levels)}; {source.terms}"


def set_lines() -> Iterator[str]:
    from linnet.tasks import TASKS

    for task_name, task in TASKS.items():
        for name, described in task.sets.items():
            yield f"{name:<15}{task_name}: {described.about}"
            yield f"{'':<15}  {described.terms}"


def plot_lines() -> Iterator[str]:
    from linnet.analysis.plots import PLOTS

    for name, plot in PLOTS.items():
        yield f"{name:<15}{plot.about}"


LISTS: dict[str, Callable[[], Iterator[str]]] = {
    "units": unit_lines,
    "tasks": task_lines,
    "recipes": recipe_lines,
    "corpora": corpus_lines,
    "sets": set_lines,
    "plots": plot_lines,
}
