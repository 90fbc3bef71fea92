"""The papers' tables and figures, and our results.

    python experiments/run.py --list                                  list all tables
    python experiments/run.py scrn_table4                             show the paper's results and ours
    python experiments/run.py scrn_table4 --row small-nd-wt           train this row, or resume it
    python experiments/run.py scrn_table4 --row small-nd-wt --lr 0.7  with any option of `linnet train <task>`
    python experiments/run.py --readme                                update the tables of the README

Each table is a TOML file in this folder; see README.md. Each finished run becomes a line of results.csv.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from linnet.analysis.runs import updates_to_solve
from linnet.base.pages import filled
from linnet.base.suggest import did_you_mean, no_such
from linnet.base.tables import markdown, text_table
from linnet.bench.rows import commit
from linnet.cli.folders import overwrite
from linnet.cli.options import add_run_options, changed, given_options
from linnet.cli.parser import Parser
from linnet.runs.config import RunConfig, differences, override
from linnet.runs.records import read_environment, read_metrics, write_atomically
from linnet.train.compare import repeats
from linnet.train.recipes import recipe

HERE = Path(__file__).resolve().parent
RESULTS, README, RUNS = HERE / "results.csv", HERE / "README.md", Path("runs") / "experiments"
BEGIN, END = "<!-- tables: begin, written by run.py --readme -->", "<!-- tables: end -->"
METRICS = ("perplexity", "bpc", "loss", "accuracy", "error", "f1", "bleu")
FIGURES = ("parameters", "rnn_parameters", "valid", "test", "accuracy", "minutes", "solved")
COLUMNS = (
    *("date", "commit", "cpu", "threads", "table", "row", "changed", "epochs", "steps"),
    *("parameters", "valid", "test", "tokens_per_second", "note", "baseline", "solved", "repeats", "also"),
)
# Settings that do not change what a run computes, and `start_from`, which the row determines.
NOT_CHANGES = (
    *("data_dir", "path", "threads", "device", "start_from", "tensorboard"),
    *("log_every", "checkpoint_steps", "checkpoint_seconds"),
)
# The columns of results.csv that are shown for a table with this metric.
MEASURED = {**dict.fromkeys(METRICS, ("valid", "test")), "loss": ("valid", "test", "baseline", "solved")}
Result = dict[str, str]


# ------------------------------------------------------------------------------------- the tables


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
    dynamic: dict[str, float] | None = None  # no training: the settings of a dynamic evaluation of `after`
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
    curves: str = ""  # the split whose rows of each run are stored in curves/: "train" or "valid"
    about: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # settings of all rows, applied after the recipe
    reasons: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # further figures of the test, besides the metric
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
            import tomli as tomllib  # type: ignore[no-redef]
        except ImportError:
            raise ImportError(
                "reading TOML needs Python 3.11 or later, or tomli: pip install tomli"
            ) from None
    return tomllib.loads(text)


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.toml"))


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
    if table.curves not in ("", "train", "valid"):
        raise ValueError(f"curves is 'train' or 'valid', or left out; got {table.curves!r}")
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
        raise ValueError(f"{row.name} of {table.name} is no training run: {state(table, row, [])}")
    config = RunConfig(task=table.task)
    if row.recipe:
        config = override(config, recipe(row.recipe, table.task).settings)
    for settings in (table.settings, row.settings, given or {}):
        config = changed(config, settings)
    return config


# ------------------------------------------------------------------------------------ the results


def read_results(path: Path = RESULTS) -> list[Result]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if not set(reader.fieldnames or ()) <= set(COLUMNS):
            raise ValueError(f"{path} has other columns than {', '.join(COLUMNS)}; give another --results")
        # Older files do not have all columns.
        return [{**dict.fromkeys(COLUMNS, ""), **result} for result in reader]


def store(result: Result, path: Path = RESULTS) -> None:
    """Add a line, or replace the line of the same row with the same changes."""
    lines = {key(old): old for old in [*read_results(path), result]}.values()
    write_atomically(path, csv_of(COLUMNS, lines))


def csv_of(columns: Sequence[str], lines: Iterable[Result]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()


def key(result: Result) -> tuple[str, str, str]:
    return result["table"], result["row"], result["changed"]


def ours(results: Sequence[Result], table: Table, row: Row) -> list[Result]:
    """Return our results for a row."""
    return [result for result in results if (result["table"], result["row"]) == (table.name, row.name)]


def state(table: Table, row: Row, results: Sequence[Result]) -> str:
    """Return when the row was measured with which changes, or why it was not."""
    measured = ours(results, table, row)
    if measured:
        return "; ".join(" ".join(filter(None, [result["date"], result["changed"]])) for result in measured)
    if row.quoted:
        return "quoted by the paper"
    return f"not run: {table.reasons[row.not_run]}" if row.not_run else "not run yet"


# ---------------------------------------------------------------------------------------- running


def folder_of(table: Table, row: str) -> Path:
    return RUNS / table.name / row


def make_run(table: Table, row: Row, given: dict[str, Any], folder: Path | None, note: str) -> Result:
    """Train this row, or resume it, and return its line of the results."""
    if only_evaluates(row):
        evaluate = evaluate_dynamically if row.dynamic is not None else evaluate_otherwise
        return evaluate(table, row, given, folder or folder_of(table, row.after), note)
    folder, commit_at_start = folder or folder_of(table, row.name), commit()
    if row.after:
        given = {"start_from": str(folder_of(table, row.after)), **given}
    config = config_of(table, row, given)
    results = [trained(each, run_folder) for each, run_folder in repeated(table, row, config, folder)]
    first = next(run_folder for _, run_folder in repeated(table, row, config, folder))
    valid = read_metrics(first, "valid")
    measured = {
        "changed": shown_changes(differences(config_of(table, row), config, ignore=NOT_CHANGES)),
        "epochs": valid[-1]["epoch"],
        "steps": results[0]["step"],
        "parameters": results[0]["parameters"],
        **{split: mean(figure(table, each[split]) for each in results) for split in ("valid", "test")},
        "tokens_per_second": round(mean(each["tokens_per_second"] for each in results)),
        **solving(table, valid),
        "also": further(table, [each["test"] for each in results]),
    }
    if len(results) > 1:
        measured["repeats"] = " ".join(text(figure(table, each["test"])) for each in results)
    return line(table, row, {**measured, "commit": commit_at_start, "note": note}, first)


def trained(config: RunConfig, folder: Path) -> dict[str, Any]:
    from linnet.train.loop import train
    from linnet.train.progress import choose

    return train(config, folder, choose())


def repeated(table: Table, row: Row, config: RunConfig, folder: Path) -> Iterator[tuple[RunConfig, Path]]:
    """Yield the run itself, or a run for each seed or fold, each with its folder."""
    if not table.folds:
        yield config, folder
        return
    for label, settings in repeats(config, row.seeds, 0 if row.seeds else table.folds):
        yield override(config, settings), folder / label.strip("-")


def figure(table: Table, numbers: dict[str, float]) -> float:
    """Return the metric of the table; accuracy, error and F1 in %, as in papers."""
    return 100 * (1 - numbers["accuracy"]) if table.metric == "error" else named_figure(table.metric, numbers)


def named_figure(name: str, numbers: dict[str, float]) -> float:
    return numbers[name] * (100 if name in ("accuracy", "f1", "em") else 1)


def further(table: Table, tests: Sequence[dict[str, float]]) -> str:
    """Return the other figures of the tests that the table wants, such as "em 12.5"."""
    return ", ".join(
        f"{name} {text(mean(named_figure(name, each) for each in tests))}" for name in table.also
    )


def solving(table: Table, valid: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the memoryless baseline of a memory task, and the updates until it was solved."""
    if table.metric != "loss":
        return {}
    steps = updates_to_solve(valid)
    return {"baseline": valid[-1]["baseline"], "solved": "never" if steps is None else steps}


def store_curve(result: Result, split: str, run_folder: Path, curves: Path) -> None:
    """Write the rows of a split to a CSV file in `curves`; its name contains the changed settings."""
    rows = read_metrics(run_folder, split)
    numbers = [{name: text(value) for name, value in row.items() if name != "split"} for row in rows]
    name = "-".join([result["table"], result["row"], *result["changed"].split()])
    curves.mkdir(parents=True, exist_ok=True)
    write_atomically(curves / f"{name}.csv", csv_of(list(numbers[0]), numbers))


def evaluate_dynamically(table: Table, row: Row, given: dict[str, Any], folder: Path, note: str) -> Result:
    """Return the line of a trained model that keeps learning while it is tested."""
    from linnet.runs.load import load
    from linnet.train import dynamic

    run = load(folder).on(**given)
    corpus, model, settings = run.task.corpus, run.model, dynamic.DynamicConfig(**(row.dynamic or {}))
    known = dynamic.statistics(model, corpus.train, settings)
    test = dynamic.evaluate(model, corpus.test, known, settings, 1)[table.metric]
    return line(
        table, row, {"parameters": model.count(), "test": test, "commit": commit(), "note": note}, folder
    )


def evaluate_otherwise(table: Table, row: Row, given: dict[str, Any], folder: Path, note: str) -> Result:
    """Return the line of a trained model that is evaluated with other settings."""
    import torch

    from linnet.runs.load import load
    from linnet.tasks.evaluation import evaluate

    run = load(folder).on(**given, **row.evaluated)
    model = run.task.build()
    model.load_state_dict(run.model.state_dict())
    torch.manual_seed(run.config.loop.seed)
    numbers = {split: evaluate(run.task, model, split) for split in ("valid", "test")}
    measured = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        **{split: figure(table, found) for split, found in numbers.items()},
        "also": further(table, [numbers["test"]]),
    }
    return line(table, row, {**measured, "commit": commit(), "note": note}, folder)


def line(table: Table, row: Row, measured: dict[str, Any], folder: Path) -> Result:
    environment = read_environment(folder)
    if environment is None:
        raise FileNotFoundError(f"{folder} has no environment.json, which names the machine of the run")
    today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    conditions = {"date": today, "cpu": environment["processor"], "threads": environment["threads"]}
    values = {**conditions, "table": table.name, "row": row.name, **measured}
    return {column: text(values.get(column, "")) for column in COLUMNS}


def shown_changes(changes: dict[str, tuple[Any, Any]]) -> str:
    return " ".join(f"{name}={new}" for name, (_, new) in changes.items())


def text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------- showing


def show(table: Table, results: Sequence[Result]) -> str:
    """Return the paper's results and ours, in plain text."""
    used = [name for name in FIGURES if any(name in row.paper for row in table.row)]
    says = ["the paper says"] if any(row.says for row in table.row) else []
    theirs = [*(f"paper's {name}" for name in used), *says]
    head = ["row", "", *theirs, "our size", *MEASURED[table.metric], "state"]
    body = [cells for row in table.row for cells in lines_of(table, row, results, used, bool(says))]
    source = [table.paper] if table.paper else []
    shown = text_table([head, *body], left=range(len(head)))
    compared = [list(PAIR_HEAD), *paired_lines(table, results)]
    more = ["", text_table(compared, left=range(3))] if len(compared) > 1 else []
    return "\n".join([f"{table.name}: {table.title}", *source, table.about.strip(), "", shown, *more])


PAIR_HEAD = ("table", "set", "models", "paper's difference", "ours", "standard error")


def paired_lines(table: Table, results: Sequence[Result]) -> Iterator[list[str]]:
    """Yield the mean differences of pairs of models on the same folds, the paper's and ours."""
    rows = {row.name: row for row in table.row}
    for one, other in table.pairs:
        for name in (name for name in rows if name.endswith(f"-{one}")):
            group = name.removesuffix(f"-{one}")
            both = [rows[each] for each in (name, f"{group}-{other}") if each in rows]
            difference = (
                paired_difference(*(ours(results, table, row) for row in both)) if len(both) == 2 else None
            )
            if difference:
                theirs = [row.paper.get("test") for row in both]
                published = "-" if None in theirs else f"{theirs[0] - theirs[1]:+.1f}"  # type: ignore[operator]
                yield [
                    table.name,
                    group,
                    f"{one} - {other}",
                    published,
                    f"{difference[0]:+.2f}",
                    f"{difference[1]:.2f}",
                ]


def paired_difference(one: Sequence[Result], other: Sequence[Result]) -> tuple[float, float] | None:
    """Return the mean difference of runs with the same changes, and its standard error."""
    known = {result["changed"]: result["repeats"].split() for result in other}
    for result in one:
        values, others = result["repeats"].split(), known.get(result["changed"], [])
        if len(values) == len(others) > 1:
            differences = [float(a) - float(b) for a, b in zip(values, others, strict=True)]
            return mean(differences), stdev(differences) / len(differences) ** 0.5
    return None


def lines_of(
    table: Table, row: Row, results: Sequence[Result], used: list[str], says: bool
) -> Iterator[list[str]]:
    theirs = [*(short(row.paper.get(name)) for name in used), *([row.says or "-"] if says else [])]
    for result in ours(results, table, row) or [dict.fromkeys(COLUMNS, "")]:
        measured = [shown_cell(result[name]) for name in ("parameters", *MEASURED[table.metric])]
        described = state(table, row, [result] if result["row"] else [])
        yield [row.name, row.label, *theirs, *measured, described]


def shown_cell(cell: str) -> str:
    """Return a number in short form; a word, such as "never", stays as it is."""
    return cell if cell.isalpha() else short(number(cell))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


def short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:.2f}M" if value >= 1e5 else f"{value:g}"


def list_tables(results: Sequence[Result]) -> str:
    tables = map(read_table, names())
    lines = [[table.name, progress(table, results), table.title] for table in tables]
    return text_table(lines, left=range(3))


def progress(table: Table, results: Sequence[Result]) -> str:
    """Return how many rows were measured, of those that are neither quoted nor only settings."""
    rows = [row for row in table.row if not row.quoted and not row.expected]
    return f"{sum(bool(ours(results, table, row)) for row in rows)} of {len(rows)}" if rows else "-"


# ------------------------------------------------------------------------------------- the README


def readme_part(results: Sequence[Result]) -> str:
    """Return a list of all tables with their progress, then all results with their conditions."""
    tables = [read_table(name) for name in names()]
    head = ["table", "what", "measured", "not run"]
    body = [
        [f"[{t.name}]({t.name}.toml)", t.title, progress(t, results), " / ".join(left(t, results)) or "-"]
        for t in tables
    ]
    compared = [line for table in tables for line in paired_lines(table, results)]
    pairs = f"\n\n{markdown(PAIR_HEAD, compared)}" if compared else ""
    return f"{markdown(head, body)}\n\n{measured_part(tables, results)}{pairs}"


def left(table: Table, results: Sequence[Result]) -> list[str]:
    """Return the reasons why rows are not measured, each once."""
    rows = [row for row in table.row if not row.quoted and not ours(results, table, row)]
    return list(dict.fromkeys(table.reasons[row.not_run] if row.not_run else "not yet" for row in rows))


def measured_part(tables: Sequence[Table], results: Sequence[Result]) -> str:
    head = [
        "row",
        "",
        "paper: valid, test",
        "ours: valid, test",
        "size",
        "epochs, updates",
        "changed",
        "circumstances",
    ]
    body = [
        [f"{table.name} {row.name}", row.label, paper_of(row), pair(result), *circumstances(result)]
        for table in tables
        for row in table.row
        for result in ours(results, table, row)
    ]
    return markdown(head, body) if body else "Nothing is measured yet."


def paper_of(row: Row) -> str:
    return pair(row.paper) if row.paper or not row.says else row.says


def pair(figures: dict[str, Any]) -> str:
    numbers = ", ".join(short(number(str(figures.get(name, "")))) for name in ("valid", "test"))
    solved = figures.get("solved", "")
    return (
        f"{numbers}; {f'solved after {solved}' if str(solved).isdigit() else 'not solved'}"
        if solved
        else numbers
    )


def circumstances(result: Result) -> list[str]:
    where = f"{result['threads']} thread{'s' * (result['threads'] != '1')} of {result['cpu']}"
    when = f"{result['date']}, commit {result['commit'] or 'unknown'}, {where}"
    speed = f", {int(result['tokens_per_second']):,} tokens/s" if result["tokens_per_second"] else ""
    note = "".join(f"; {result[name]}" for name in ("also", "note") if result[name])
    size = short(number(result["parameters"]))
    length = f"{result['epochs']}, {int(result['steps']):,}" if result["steps"] else "-"
    return [size, length, result["changed"] or "-", f"{when}{speed}{note}"]


def page() -> str:
    """Return the README with its tables up to date."""
    return filled(README, readme_part(read_results()), BEGIN, END)


# ----------------------------------------------------------------------------------- command line


def parser(task: str) -> Parser:
    result = Parser(prog="experiments/run.py", description="The papers' tables and figures, and our results.")
    add = result.add_argument
    add("table", nargs="?", help="the name of a TOML file in this folder, without .toml")
    add("--list", action="store_true", help="list all tables and how many rows were measured")
    add("--readme", action="store_true", help="update the tables of the README")
    add("--row", help="train this row, or resume it, and store its results")
    add("--folds", type=int, default=0, help="the number of folds (that of the table)")
    add(
        "--run-dir", type=Path, dest="folder", metavar="DIR", help=f"the run directory ({RUNS}/<table>/<row>)"
    )
    add("--overwrite", action="store_true", help="delete the existing run and start over")
    add("--results", type=Path, default=RESULTS, metavar="CSV", help="the file of results (results.csv)")
    add("--note", default="", help="a remark to store with the results")
    result.set_defaults(task=task)
    add_run_options(result, task)
    return result


def task_of(arguments: Sequence[str]) -> str:
    """Return the task of the table, which is the first argument."""
    first = next(iter(arguments), "-")
    return "lm" if first.startswith("-") else read_table(first).task


def run(options: argparse.Namespace) -> None:
    results, given = read_results(options.results), given_options(options, options.task)
    if options.readme:
        write_atomically(README, page().encode())
    elif options.list or not options.table:
        print(list_tables(results))
    elif options.row:
        run_row(options, given)
    elif given:
        raise ValueError("options of a run need --row, the name of the run")
    else:
        print(show(read_table(options.table), results))


def run_row(options: argparse.Namespace, given: dict[str, Any]) -> None:
    table = read_table(options.table)
    row = table.find(options.row)
    if options.folds:
        table = dataclasses.replace(table, folds=options.folds)
    if not is_run(table, row):
        raise ValueError(f"{row.name} of {table.name} cannot be run; {state(table, row, [])}")
    if options.overwrite and not only_evaluates(row):
        folder = options.folder or folder_of(table, row.name)
        for _, run_folder in repeated(table, row, config_of(table, row, given), folder):
            overwrite(run_folder)
    result = make_run(table, row, given, options.folder, options.note)
    store(result, options.results)
    if table.curves:
        folder = options.folder or folder_of(table, row.name)
        store_curve(result, table.curves, folder, options.results.parent / "curves")
    print(show(dataclasses.replace(table, row=(row,)), [result]))


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        # The options of a run are those of the table's task.
        run(parser(task_of(sys.argv[1:] if arguments is None else arguments)).parse_args(arguments))
    except KeyboardInterrupt:
        print("run.py: stopped; the same command resumes from the last checkpoint", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
