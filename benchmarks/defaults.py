"""python -m benchmarks.defaults: what `linnet train` reaches by its defaults, and in how many seconds.

Each case makes its files from a folder of data sets, runs `linnet train` in a new process with one thread and
no options besides its files (one case has none) and the seed, and records the test figure, the best baseline
of the run and the CPU seconds of the process. Language models have a time budget, and race the script
benchmarks/lstm_script.py, which is what a user of torch writes first. Finished rows are not run again.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import linnet
from benchmarks.children import ROOT
from benchmarks.records import COMMIT, INTEGER, NUMBER, TEXT, TIME, WORDS, RecordFile, Row, maybe
from linnet.base.checkout import commit
from linnet.base.files import write_atomically
from linnet.base.machine import processor_name
from linnet.cli.parser import Parser, path_name
from linnet.data.labelled_series_sets import package_folder
from linnet.runs.records import read_result

RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "task": WORDS, "case": WORDS, "seed": INTEGER, "figure": WORDS},
        **{"value": NUMBER, "baseline": TEXT, "baseline_value": maybe(NUMBER), "cpu_seconds": NUMBER},
        **{"threads": INTEGER, "torch": WORDS, "linnet": TEXT, "python": WORDS, "cpu": WORDS},
    },
    key=("task", "case", "seed"),
)
TASK_NAMES = ("classify", "nli", "tag", "translate", "lm", "forecast", "series")
SCRIPT = "nn.LSTM 2x256 script"


class Case(NamedTuple):
    """A training by defaults.

    figure   the name of the recorded figure in result.json
    files    makes the files in a folder, and returns the options that name them
    """

    task: str
    name: str
    figure: str
    files: Callable[[Path, Path], list[str]]
    minutes: float = 0.0  # a time budget; such a case races the script, too


# ---------------------------------------------------------------------------------------------- files


def read_text(data: Path, name: str) -> str:
    """Return the contents of a packed file of the data folder."""
    path = data / name
    if not path.is_file():
        raise SystemExit(f"there is no {path}; give the folder of the data sets with --data-dir")
    unpack = lzma.open if path.suffix == ".xz" else gzip.open
    with unpack(path, "rt", encoding="utf-8", newline="") as file:
        return file.read()


def drawn(rows: Iterable[Any], count: int) -> list[Any]:
    """Return `count` rows at random, always the same."""
    rows = list(rows)
    random.Random(0).shuffle(rows)
    return rows[:count]


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[dict[str, str]]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def reviews(count: int, data: Path, folder: Path) -> list[str]:
    train, test = (
        drawn(csv.DictReader(io.StringIO(read_text(data, f"imdb/{name}.csv.xz"), newline="")), number)
        for name, number in (("train", count), ("test", 1000))
    )
    fields = ("text", "label")
    files = write_rows(folder / "reviews.csv", fields, train), write_rows(folder / "test.csv", fields, test)
    return ["--path", files[0], "--test-path", files[1]]


def pairs(data: Path, folder: Path) -> list[str]:
    fields, files = ("premise", "hypothesis", "label"), []
    for name, count in (("train_first100k", 6000), ("test", 2000)):
        lines = read_text(data, f"snli/{name}.tsv.gz").splitlines()
        head = lines[0].split("\t")
        rows = (dict(zip(head, line.split("\t"), strict=True)) for line in lines[1:])
        files.append(write_rows(folder / f"{name}.csv", fields, drawn(rows, count)))
    return ["--path", files[0], "--test-path", files[1]]


def sentences(data: Path, folder: Path) -> list[str]:
    """4,000 sentences; the last column is the entity, which is the default of `linnet train tag`."""
    files = []
    for name, count in (("train", 4000), ("test", 2000)):
        blocks = read_text(data, f"conll2003/{name}.txt.gz").strip().split("\n\n")
        kept = drawn((block for block in blocks if not block.startswith("-DOCSTART-")), count)
        path = folder / f"{name}.txt"
        path.write_text("\n\n".join(kept) + "\n", encoding="utf-8")
        files.append(str(path))
    return ["--path", files[0], "--test-path", files[1]]


def translations(data: Path, folder: Path) -> list[str]:
    """The first 3,000 lines of both languages; the tenth of them that is the test set is unseen."""
    options = []
    for option, language in (("--source", "en"), ("--target", "de")):
        lines = read_text(data, f"multi30k/train.{language}.gz").splitlines()[:3000]
        path = folder / f"images.{language}"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options += [option, str(path)]
    return options


def characters(data: Path, folder: Path) -> list[str]:
    path = folder / "shakespeare.txt"
    path.write_text(read_text(data, "tinyshakespeare/input.txt.gz"), encoding="utf-8")
    return ["--path", str(path), "--level", "char"]


def hours(data: Path, folder: Path) -> list[str]:
    """A year and eight months of one sensor: the column OT of ETTh1."""
    rows = csv.DictReader(io.StringIO(read_text(data, "ett/ETTh1.csv.xz"), newline=""))
    return ["--path", write_rows(folder / "temperature.csv", ("date", "OT"), list(rows)[: 20 * 30 * 24])]


def weeks(data: Path, folder: Path) -> list[str]:
    """The weekly series of M4 without their test part: a row for each."""
    path = folder / "weeks.csv"
    path.write_text(read_text(data, "m4/Weekly-train.csv.xz"), encoding="utf-8")
    return ["--path", str(path)]


def nothing(data: Path, folder: Path) -> list[str]:
    """No file: the set of the task that comes with a package."""
    return []


def vowels(data: Path, folder: Path) -> list[str]:
    """Recordings of nine speakers, from the package sktime."""
    made = package_folder("japanese_vowels", "JapaneseVowels") / "JapaneseVowels"
    return ["--path", f"{made}_TRAIN.ts", "--test-path", f"{made}_TEST.ts"]


CASES = (
    Case("classify", "2,000 reviews", "accuracy", lambda data, folder: reviews(2000, data, folder)),
    Case("classify", "20,000 reviews", "accuracy", lambda data, folder: reviews(20_000, data, folder)),
    Case("nli", "6,000 pairs", "accuracy", pairs),
    Case("tag", "4,000 sentences", "f1", sentences),
    Case("translate", "3,000 lines", "bleu", translations),
    Case("forecast", "co2, no options", "mase", nothing),
    Case("forecast", "14,400 hours", "mase", hours),
    Case("forecast", "359 weekly series", "mase", weeks),
    Case("series", "270 recordings", "accuracy", vowels),
    *(
        Case("lm", f"characters, {round(60 * minutes)} s", "bpc", characters, minutes)
        for minutes in (1.0, 2.0, 274 / 60)
    ),
)


# ----------------------------------------------------------------------------------------------- runs


class Measured(NamedTuple):
    """The figure of a run, its best baseline and the CPU seconds of the process."""

    value: float
    baseline: str
    baseline_value: float | None
    cpu_seconds: float


def measure(case: Case, seed: int, data: Path) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = case.files(data, folder)
        if case.minutes:
            return race(case, seed, folder, options)
        return trained(case, seed, folder, options)


def trained(case: Case, seed: int, folder: Path, options: Sequence[str]) -> Measured:
    budget = ["--minutes", f"{case.minutes:.4f}"] if case.minutes else []
    run = folder / "run"
    fixed = ["--seed", str(seed), "--threads", "1", "--run-dir", str(run)]
    seconds, _ = child("-m", "linnet", "train", case.task, *options, *budget, *fixed)
    result = read_result(run)
    assert result is not None, run
    return Measured(result["test"][case.figure], *best_baseline(case, result), seconds)


def best_baseline(case: Case, result: dict[str, Any]) -> tuple[str, float | None]:
    """Return the name and the figure of the best baseline of a result; "" and None if there is none."""
    known = [
        (each["figures"][case.figure], each["name"])
        for each in result.get("baselines", ())
        if case.figure in each["figures"]
    ]
    if not known:
        return "", None
    value, name = (max if is_higher_better(case) else min)(known)
    return name, value


def is_higher_better(case: Case) -> bool:
    return case.figure not in ("bpc", "mase")


def race(case: Case, seed: int, folder: Path, options: Sequence[str]) -> Measured:
    """A language model, and the script with the same text, split and seconds as its baseline."""
    ours = trained(case, seed, folder, options)
    seconds = str(60 * case.minutes)
    _, printed = child("-m", "benchmarks.lstm_script", options[1], seconds, str(seed))
    return ours._replace(baseline=SCRIPT, baseline_value=float(printed.split()[-1]))


def child(*arguments: str) -> tuple[float, str]:
    """Run python, and return the CPU seconds of the process and what it printed."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    after = os.times()
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, done.stdout


# ----------------------------------------------------------------------------------------------- rows


def row_of(case: Case, seed: int, found: Measured) -> Row:
    baseline = "" if found.baseline_value is None else f"{found.baseline_value:.5g}"
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{"commit": commit(), "task": case.task, "case": case.name, "seed": str(seed)},
        **{"figure": case.figure, "value": f"{found.value:.5g}", "baseline": found.baseline},
        **{"baseline_value": baseline, "cpu_seconds": f"{found.cpu_seconds:.1f}", "threads": "1"},
        **{"torch": version("torch"), "linnet": linnet.__version__},
        **{"python": sys.version.split()[0], "cpu": processor_name()},
    }


def key(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in RECORD.key)


def read_rows(path: Path) -> list[Row]:
    return RECORD.read(path) if path.exists() else []


def with_row(rows: list[Row], new: Row) -> list[Row]:
    """Return the rows with a new one, which replaces that of the same case and seed, by case."""
    order = [case.name for case in CASES]
    kept = [row for row in rows if key(row) != key(new)]
    return sorted([*kept, new], key=lambda row: (order.index(row["case"]), int(row["seed"])))


def write(path: Path, rows: list[Row]) -> None:
    """Write the rows, and the table next to them."""
    write_atomically(path, RECORD.content(rows))
    write_atomically(path.with_suffix(".md"), table(rows).encode())


def table(rows: list[Row]) -> str:
    """Return the rows as a page: one line for each case, with the figures of all its seeds."""
    lines = [
        "# What `linnet train` reaches by its defaults\n",
        "Written by `python -m benchmarks.defaults`. Each run has its files (that of co2 has none) and a "
        "seed, and no other option; CPU seconds are those of the whole command, with one thread. The "
        f"baseline is the best one of the run; that of language models is the {SCRIPT} with the same "
        "seconds. Bits per character (bpc) and MASE: lower is better.\n",
        "| task | data | figure | by seed | baseline | CPU seconds | date, commit |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        own = [row for row in rows if row["case"] == case.name]
        if own:
            lines.append(line(own))
    versions = {f"torch {row['torch']}, Python {row['python']}, {row['cpu']}" for row in rows}
    return "\n".join([*lines, "", f"Versions: {'; '.join(sorted(versions)) or 'none'}. One thread.", ""])


def line(rows: list[Row]) -> str:
    first = rows[0]
    figures = ", ".join(f"{row['value']} ({row['seed']})" for row in rows)
    known = sorted({f"{row['baseline']} {row['baseline_value']}" for row in rows if row["baseline"]})
    seconds = " to ".join(dict.fromkeys((f"{min(cpu(rows)):.0f}", f"{max(cpu(rows)):.0f}")))
    made = ", ".join(sorted({f"{row['date'][:10]} {row['commit']}" for row in rows}))
    cells = (first["task"], first["case"], first["figure"], figures, "; ".join(known), seconds, made)
    return f"| {' | '.join(cells)} |"


def cpu(rows: list[Row]) -> list[float]:
    return [float(row["cpu_seconds"]) for row in rows]


# -------------------------------------------------------------------------------------------- command


def task_names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in TASK_NAMES:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(TASK_NAMES)}; got {name!r}")
    return names


def parser() -> Parser:
    command = Parser(prog="python -m benchmarks.defaults", description=(__doc__ or "").partition("\n\n")[2])
    add = command.add_argument
    add("--data-dir", type=path_name, default=Path("../shared/data"), help="the data sets (../shared/data)")
    add("--only", type=task_names, default=list(TASK_NAMES), metavar="TASKS", help="some of the tasks (all)")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="a run for each (1 2 3)")
    add("--again", action="store_true", help="run finished rows again")
    add("--results", type=path_name, default=ROOT / "benchmarks" / "defaults.csv", help="the rows")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not options.data_dir.is_dir():
        raise SystemExit(
            f"there is no folder {options.data_dir}; give the folder of the data sets with --data-dir"
        )
    rows = read_rows(options.results)
    for case, seed in wanted(options.only, options.seeds, () if options.again else rows):
        row = row_of(case, seed, measure(case, seed, options.data_dir.resolve()))
        rows = with_row(rows, row)
        write(options.results, rows)
        print(json.dumps({name: row[name] for name in SHOWN}), flush=True)
    return 0


SHOWN = ("task", "case", "seed", "figure", "value", "baseline", "baseline_value", "cpu_seconds")


def wanted(only: Sequence[str], seeds: Sequence[int], done: Sequence[Row]) -> list[tuple[Case, int]]:
    """Return the cases and seeds that are to be run, by case."""
    known = {key(row) for row in done}
    asked = [(case, seed) for case in CASES if case.task in only for seed in seeds]
    return [(case, seed) for case, seed in asked if (case.task, case.name, str(seed)) not in known]


if __name__ == "__main__":
    sys.exit(main())
