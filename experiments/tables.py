"""The tables of the papers: each is a TOML file in this folder, whose rows are runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.base.suggest import did_you_mean, no_such
from linnet.cli.options import changed
from linnet.runs.config import RunConfig, override
from linnet.train.recipes import recipe

HERE = Path(__file__).resolve().parent
OTHERS = ("claims",)  # TOML files of this folder that are no tables
METRICS = ("perplexity", "bpc", "loss", "accuracy", "error", "f1", "bleu", "smape", "mse")
FIGURES = ("parameters", "rnn_parameters", "valid", "test", "accuracy", "minutes", "solved")


@dataclass(frozen=True)
class Row:
    """A row of a table: a run, or a result that the paper quotes from another paper."""

    name: str
    label: str
    recipe: str = ""  # of `linnet list recipes`
    settings: dict[str, Any] = field(default_factory=dict)  # settings that differ from the recipe
    paper: dict[str, float] = field(default_factory=dict)  # the paper's results, by the names in FIGURES
    says: str = ""  # the paper's result in words, if it has a curve and no number
    quoted: bool = False  # the paper quotes the results from another paper
    not_run: str = ""  # why it is not run, a key of the table's `reasons`
    after: str = ""  # the row whose best checkpoint this one starts from
    dynamic: dict[str, Any] | None = None  # no training: the settings of a dynamic evaluation of `after`
    evaluated: dict[str, Any] = field(default_factory=dict)  # no training: `after`, with these settings
    expected: dict[str, Any] = field(default_factory=dict)  # settings that the recipe must have
    seeds: tuple[int, ...] = ()  # a run for each seed instead of each fold


@dataclass(frozen=True)
class Table:
    """A TOML file: its rows, and the settings that they share."""

    name: str
    title: str
    paper: str  # "": an experiment of ours
    metric: str
    row: tuple[Row, ...]
    task: str = "lm"  # of `linnet train`
    curves: tuple[str, ...] = ()  # the splits whose rows of each run are stored in curves/
    about: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # settings of all rows, applied after the recipe
    reasons: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # further figures of the test, besides the metric
    beside: tuple[str, ...] = ()  # baselines of the runs whose figure is stored with `also`
    folds: int = 0  # train each row on this many folds, and report means (0: a single run)
    pairs: tuple[tuple[str, str], ...] = ()  # models to compare on the same folds; rows are <set>-<model>

    def find(self, name: str) -> Row:
        rows = {row.name: row for row in self.row}
        if name not in rows:
            raise ValueError(f"{self.name} has {no_such('row', name, rows)}")
        return rows[name]


def parse(text: str) -> dict[str, Any]:
    try:
        import tomllib
    except ImportError:
        try:
            import tomli as tomllib
        except ImportError:
            raise ImportError(
                "reading TOML needs Python 3.11 or later, or tomli: pip install tomli"
            ) from None
    return tomllib.loads(text)


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.toml") if path.stem not in OTHERS)


def read_table(name: str) -> Table:
    path = HERE / f"{name}.toml"
    if not path.exists():
        raise ValueError(no_such("table", name, names()))
    try:
        values = parse(path.read_text(encoding="utf-8"))
        rows = tuple(make(Row, row) for row in values.pop("row"))
        return checked(make(Table, {**values, "name": name, "row": rows}))
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def make(cls: type, values: dict[str, Any]) -> Any:
    known = [each.name for each in dataclasses.fields(cls)]
    for name in values:
        if name not in known:
            raise ValueError(f"a {cls.__name__.lower()} has no {name!r}{did_you_mean(name, known)}")
    return cls(**values)


def checked(table: Table) -> Table:
    if table.metric not in METRICS:
        raise ValueError(f"metric is one of {', '.join(METRICS)}; got {table.metric!r}")
    if not isinstance(table.curves, (list, tuple)) or not set(table.curves) <= {"train", "valid"}:
        raise ValueError(f"curves is a list of 'train' and 'valid', or left out; got {table.curves!r}")
    twice = {row.name for row in table.row if sum(other.name == row.name for other in table.row) > 1}
    if twice:
        raise ValueError(f"rows of the same name: {', '.join(sorted(twice))}")
    for row in table.row:
        check_row(table, row)
    return table


def check_row(table: Table, row: Row) -> None:
    for name in row.paper:
        if name not in FIGURES:
            raise ValueError(f"{row.name}: a paper's figures are {', '.join(FIGURES)}; got {name!r}")
    if row.not_run and row.not_run not in table.reasons:
        raise ValueError(f"{row.name}: no reason {row.not_run!r}{did_you_mean(row.not_run, table.reasons)}")
    if not (row.quoted or row.not_run or is_run(table, row)):
        raise ValueError(f"{row.name}: a row needs a recipe, settings, quoted = true, or a reason in not_run")
    if row.after:
        table.find(row.after)
    if row.evaluated and not row.after:
        raise ValueError(f"{row.name}: `evaluated` needs `after`, the row whose weights are evaluated")


def is_run(table: Table, row: Row) -> bool:
    """Return whether the row has the settings of a run, whether or not it was run."""
    return not row.quoted and bool(row.recipe or row.settings or only_evaluates(row))


def only_evaluates(row: Row) -> bool:
    """Return whether the row evaluates the weights of the row `after`, and trains nothing."""
    return row.dynamic is not None or bool(row.evaluated)


def config_of(table: Table, row: Row, given: dict[str, Any] | None = None) -> RunConfig:
    """Return the recipe with the settings of the table, of the row and of the command line, in this order."""
    if not is_run(table, row) or only_evaluates(row):
        raise ValueError(f"{row.name} of {table.name} is no training run: {why_not_run(table, row)}")
    config = RunConfig(task=table.task)
    if row.recipe:
        config = override(config, recipe(row.recipe, table.task).settings)
    for settings in (table.settings, row.settings, given or {}):
        config = changed(config, settings)
    return config


def why_not_run(table: Table, row: Row) -> str:
    if row.quoted:
        return "quoted by the paper"
    return f"not run: {table.reasons[row.not_run]}" if row.not_run else "not run yet"
