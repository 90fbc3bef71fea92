"""linnet list: units, recipes, corpora and plots by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

from linnet.cli.parser import unit_name
from linnet.units import UNITS


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = (
        "The units with their papers and options, the tasks, the papers' recipes, the corpora, the plots and "
        "the trained models of the package."
    )
    text = f"{', '.join(LISTS)}, or the names of units (the units, and the names of the tasks)"
    command.add_argument("what", nargs="*", type=listed_name, metavar="WHAT", help=text)
    command.add_argument("--all", action="store_true", help="everything, with the options of the units")
    command.set_defaults(run=list_all)


def listed_name(name: str) -> str:
    return name if name in LISTS else unit_name(name)


def list_all(options: argparse.Namespace) -> None:
    if not (options.what or options.all):
        print("\n".join(first_lines()))
        return
    wanted = options.what or list(LISTS)
    for name in wanted:
        if name in LISTS and len(wanted) > 1:
            print(f"{name}:")
        for line in LISTS[name]() if name in LISTS else unit_lines([name]):
            print(line)


def first_lines() -> Iterator[str]:
    """What a newcomer looks for."""
    from linnet.tasks import TASKS

    yield "units:"
    yield from (paper_line(name) for name in UNITS)
    yield f"tasks: {', '.join(TASKS)}"
    others = [name for name in LISTS if name != "units"]
    yield f"more: linnet list {'|'.join(others)}; linnet list sru for its options; linnet list --all"


def paper_line(name: str) -> str:
    paper = str(UNITS[name].__doc__).strip().splitlines()[0]
    return f"{name:<15}{paper}"


def unit_lines(names: Sequence[str] = tuple(UNITS)) -> Iterator[str]:
    for name in names:
        yield paper_line(name)
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


def ready_lines() -> Iterator[str]:
    from linnet.runs.ready import NAMES, PREFIX
    from linnet.train.recipes import RECIPES

    for name in NAMES:
        recipe = RECIPES[f"ready-{name}"]
        yield f"{PREFIX + name:<17}{recipe.task}: {recipe.about}"


def corpus_lines() -> Iterator[str]:
    from linnet.data.sources import CORPORA

    for name, source in CORPORA.items():
        yield f"{name:<15}{source.about}"
        yield f"{'':<15}  by {', '.join(source.levels)}; {source.terms}"


def set_lines() -> Iterator[str]:
    from linnet.tasks import TASKS

    for task_name, task in TASKS.items():
        for name, described in task.sets.items():
            yield f"{name:<17}{task_name}: {described.about}"
            yield f"{'':<17}  {described.terms}"


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
    "ready": ready_lines,
}
