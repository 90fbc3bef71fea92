"""The table of several runs, as text and for reports: columns of figures, each with an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from linnet.analysis.runs import Recorded, best_value, main_figure, shown_figures, speed_of
from linnet.base import tables
from linnet.tasks.results import Figure

DASH = "\N{EN DASH}"
"""The cell of a value that is not known yet."""

PARAMETERS = Figure("parameters", "parameters", "The number of trained weights of the model.", ",.0f")
UPDATES = Figure("step", "updates", "The number of updates of the weights in training.", ",.0f")
SPEED = Figure("speed", "tokens/s", "Tokens that the model is trained on per second.", ",.0f", True)


@dataclass(frozen=True)
class Column:
    """A figure, with its value in each run."""

    figure: Figure
    label: str
    values: list[float | None]
    may_be_shared: bool = True

    def cells(self) -> list[str]:
        return [DASH if value is None else self.figure.show(value) for value in self.values]


def columns(runs: Sequence[Recorded]) -> list[Column]:
    """Return the main figure on validation and test data, then all figures that differ between the runs."""
    return [column for column in all_columns(runs) if not is_shared(column)]


def shared(runs: Sequence[Recorded]) -> list[Column]:
    """Return the columns that are the same for all runs: a sentence has them, so the table is narrower."""
    return [column for column in all_columns(runs) if is_shared(column)]


def is_shared(column: Column) -> bool:
    return column.may_be_shared and len(column.values) > 1 and len(set(column.values)) == 1


def all_columns(runs: Sequence[Recorded]) -> list[Column]:
    main, *others = shown_figures(runs)
    further = [
        *(
            Column(each, f"test {each.label}", [result_of(run, "test", each.name) for run in runs])
            for each in others
            # The plots show the loss, and the main figure is often a function of it.
            if each.name != "loss"
        ),
        Column(PARAMETERS, PARAMETERS.label, [result_of(run, "parameters") for run in runs]),
        Column(UPDATES, UPDATES.label, [result_of(run, "step") for run in runs]),
        Column(SPEED, SPEED.label, [speed_of(run) for run in runs]),
    ]
    valid, test = [best_value(run, main) for run in runs], [result_of(run, "test", main.name) for run in runs]
    return [
        Column(main, f"valid {main.label}", valid, may_be_shared=False),
        Column(main, f"test {main.label}", test, may_be_shared=False),
        *(each for each in further if any_known(each.values)),
    ]


def any_known(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def result_of(run: Recorded, *names: str) -> float | None:
    value = run.result
    for name in names:
        value = (value or {}).get(name)
    return value


def best_run(runs: Sequence[Recorded]) -> Recorded | None:
    """Return the run with the best main figure on validation data; all are of the same problem."""
    if not runs:
        return None
    main = main_figure(runs[0])
    known = [
        (value, number) for number, run in enumerate(runs) if (value := best_value(run, main)) is not None
    ]
    if not known:
        return None
    value, number = max(known) if main.higher else min(known)
    return runs[number]


def text_table(runs: Sequence[Recorded]) -> str:
    return "\n".join(filter(None, [tables.text_table(list(rows(runs)), left=(0,)), shared_line(runs)]))


def shared_line(runs: Sequence[Recorded]) -> str:
    """Return a sentence about the shared columns, such as "All runs: updates 300."."""
    known = [f"{column.label} {column.cells()[0]}" for column in shared(runs)]
    return f"All runs: {', '.join(known)}." if known else ""


def rows(runs: Sequence[Recorded]) -> Iterator[tuple[str, ...]]:
    """Yield the head, then a row of cells for each run."""
    shown = columns(runs)
    yield ("run", *(column.label for column in shown))
    yield from zip([run.name for run in runs], *(column.cells() for column in shown), strict=True)
