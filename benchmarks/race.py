"""python -m benchmarks.race: `linnet race` with several seeds, as rows.

Light units and torch's nn.LSTM of the same width train language models in turn, each for the same seconds of
the processor. A row has the bits per character of the test text, the training speed relative to nn.LSTM, the
time of a single step and the size in int8 of one model. A seed that was raced before replaces its rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import linnet
from benchmarks.children import ROOT
from benchmarks.records import COMMIT, INTEGER, NUMBER, TEXT, TIME, WORDS, RecordFile, Row
from benchmarks.rows import commit
from linnet.base.files import write_atomically
from linnet.base.machine import processor_name
from linnet.cli import race
from linnet.cli.parser import Parser, at_least_one, path_name

RESULTS = ROOT / "benchmarks" / "race.csv"
RECORD = RecordFile(
    {
        **{"date": TIME, "commit": COMMIT, "unit": WORDS, "seed": INTEGER, "hidden_size": INTEGER},
        **{"num_layers": INTEGER, "seconds": INTEGER, "bits": NUMBER, "parameters": INTEGER},
        **{"speed_low": NUMBER, "speed": NUMBER, "speed_high": NUMBER, "step_us": NUMBER, "int8": INTEGER},
        **{"threads": INTEGER, "note": TEXT, "torch": WORDS, "linnet": TEXT, "python": WORDS, "cpu": WORDS},
    },
    key=("unit", "seed"),
)


def measured(seed: int, folder: Path, arguments: Sequence[str]) -> tuple[race.Race, list[Any]]:
    """Run a race, and return it with its entrants; nn.LSTM is the first."""
    command = argparse.ArgumentParser()
    race.add_options(command)
    given = [*arguments, "--seed", str(seed), "--run-dir", str(folder), "--no-open"]
    held = race.Race(command.parse_args(given))
    return held, held.entrants()


def row_of(held: race.Race, each: Any, note: str) -> Row:
    model = held.config.model
    low, median, high = each.ratio
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **{"commit": commit(), "unit": each.name, "seed": str(held.config.loop.seed)},
        **{"hidden_size": str(model.hidden_size), "num_layers": str(model.num_layers)},
        **{"seconds": str(held.seconds), "bits": f"{each.bits:.4f}", "parameters": str(each.parameters)},
        **{"speed_low": f"{low:.3f}", "speed": f"{median:.3f}", "speed_high": f"{high:.3f}"},
        **{"step_us": f"{each.step:.2f}", "int8": str(each.int8), "threads": str(held.threads), "note": note},
        **{"torch": torch.__version__, "linnet": linnet.__version__},
        **{"python": sys.version.split()[0], "cpu": processor_name()},
    }


def read_rows(path: Path = RESULTS) -> list[Row]:
    return RECORD.read(path) if path.exists() else []


def with_rows(rows: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the rows with those of a race, which replace older ones of its seed, by seed."""
    seeds = {row["seed"] for row in new}
    kept = [row for row in rows if row["seed"] not in seeds]
    return sorted([*kept, *new], key=lambda row: int(row["seed"]))


def parser() -> Parser:
    command = Parser(prog="python -m benchmarks.race", description=(__doc__ or "").partition("\n\n")[2])
    add = command.add_argument
    add("--seeds", type=at_least_one, nargs="+", default=[1, 2, 3], help="a race for each (1 2 3)")
    add("--note", default="", help="what else the machine did, for the rows")
    add("--results", type=path_name, default=RESULTS, help="the rows")
    add("race", nargs=argparse.REMAINDER, help="after --: options of linnet race")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    further = options.race[1:] if options.race[:1] == ["--"] else options.race
    rows = read_rows(options.results)
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            held, entrants = measured(seed, Path(folder), further)
            held.say_table(entrants)
        rows = with_rows(rows, [row_of(held, each, options.note) for each in entrants])
        write_atomically(options.results, RECORD.content(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
