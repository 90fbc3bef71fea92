"""The time of a training update of each row of a table, measured in turn.

    python -m experiments.times lrn_table1 --rows lstm gru atr sru lrn --data-dir DIR

All rows train on the same batches, round after round, so that their times can be compared even on a machine
with other work; with one thread, they are the processor's. The results replace those of the table in
times.csv, from which `python -m experiments.run --readme` writes the README.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.fresh import since
from benchmarks.records import COMMIT, INTEGER, NUMBER, TIME, WORDS, RecordFile
from benchmarks.rows import circumstances
from experiments.results import Result, text
from experiments.tables import HERE, Row, Table, config_of, read_table
from linnet.base.tables import markdown
from linnet.bench.timing import Call, clock_of, race
from linnet.cli.parser import Parser, path_name
from linnet.runs.records import write_atomically
from linnet.tasks.base import Task
from linnet.train.fabric import make_fabric
from linnet.train.loop import Run
from linnet.train.progress import Silent

TIMES = HERE / "times.csv"
RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "cpu": WORDS, "threads": INTEGER, "table": WORDS, "row": WORDS},
        **{"updates_per_epoch": INTEGER, "p20_ms": NUMBER, "p50_ms": NUMBER, "p80_ms": NUMBER},
        "tokens_per_second": INTEGER,
    },
    key=("table", "row"),
)
Say = Callable[[str], None]


def measure(
    table: Table, rows: Sequence[Row], given: dict[str, Any], rounds: int, threads: int, say: Say
) -> list[Result]:
    """Time the updates of these rows in turn; the first row is that which the others are compared with."""
    runs: dict[str, Run] = {}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows:
            task = next(iter(runs.values())).task if runs else None
            runs[row.name] = run_of(table, row, {**given, "threads": threads}, Path(folder), task)
        calls = {name: partial(update_of, run) for name, run in runs.items()}
        times = race(calls, rounds, threads, 600.0, say, clock=clock_of(threads))
    shared = {**circumstances(threads), "table": table.name}
    return [
        line({**shared, "row": name, **size_of(runs[name], each.p50), **each.columns()})
        for name, each in times.items()
    ]


def run_of(table: Table, row: Row, given: dict[str, Any], folder: Path, task: Task | None) -> Run:
    config = config_of(table, row, given)
    return Run(config, folder / row.name, make_fabric(config.loop), Silent(), task)


def update_of(run: Run) -> Call:
    """A call that makes one update, with the next batch."""
    run.updater.stepper.train()
    batches = cycle(run.task.batches("train", 1))
    return lambda: run.updater.update([next(batches)])


def size_of(run: Run, milliseconds: float) -> dict[str, Any]:
    here = run.context.here
    speed = round(1000 * here.tokens / here.step / milliseconds)
    return {"updates_per_epoch": run.task.batches_per_epoch(1), "tokens_per_second": speed}


def line(values: dict[str, Any]) -> Result:
    return {column: text(values[column]) for column in RECORD.columns}


# ------------------------------------------------------------------------------------------- the file


def read_times(path: Path = TIMES) -> list[Result]:
    return RECORD.read(path) if path.exists() else []


def store(lines: Sequence[Result], path: Path = TIMES) -> None:
    """Add the lines of a table in place of those that it had."""
    others = [old for old in read_times(path) if old["table"] != lines[0]["table"]]
    write_atomically(path, RECORD.content([*others, *lines]))


def times_part(lines: Sequence[Result]) -> str:
    """The times as a table of the README; ratios are to the first row of each table."""
    head = ["row", "ms per update", "ratio", "tokens/s", "s per epoch", "the paper says", "circumstances"]
    first: dict[str, float] = {}
    body = []
    for each in lines:
        table, taken = each["table"], float(each["p50_ms"])
        ratio = taken / first.setdefault(table, taken)
        epoch = f"{taken * float(each['updates_per_epoch']) / 1000:.0f}"
        row = read_table(table).find(each["row"])
        where = f"{each['date'][:10]}, commit {each['commit']}, {each['threads']} threads of {each['cpu']}"
        cells = [f"{table} {row.name}", f"{taken:.0f}", f"{ratio:.2f}", f"{int(each['tokens_per_second']):,}"]
        body.append([*cells, epoch, row.says or "-", where])
    about = f"Times of updates at these commits{since(lines, 'update')}."
    return f"{about}\n\n{markdown(head, body)}"


# --------------------------------------------------------------------------------------- command line


def parser() -> Parser:
    result = Parser(prog="python -m experiments.times", description="The time of an update of each row.")
    add = result.add_argument
    add("table", help="the name of a TOML file in this folder, without .toml")
    add("--rows", nargs="+", required=True, help="the rows; the others are compared with the first")
    add("--data-dir", help="the folder of the data sets")
    add("--rounds", type=int, default=20, help="updates of each row (20)")
    add("--threads", type=int, default=2, help="threads (2)")
    add("--times", type=path_name, default=TIMES, metavar="CSV", help="the file of times (times.csv)")
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    table = read_table(options.table)
    rows = [table.find(name) for name in options.rows]
    given = {"data_dir": options.data_dir} if options.data_dir else {}
    read_times(options.times)  # a damaged file is an error before anything is measured
    lines = measure(table, rows, given, options.rounds, options.threads, print)
    store(lines, options.times)
    print(times_part(lines))


if __name__ == "__main__":
    main()
