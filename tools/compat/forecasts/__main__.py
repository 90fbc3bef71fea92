"""Measure forecasts of other libraries and of Linnet on the same series, with the same CPU time."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rows import Row
from tools.compat.environments import FOLDER
from tools.compat.forecasts import measure
from tools.compat.forecasts.contestants import CONTESTANTS, Contestant
from tools.compat.forecasts.sets import SETS, ForecastSet, Question, question
from tools.compat.forecasts.table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not in the record yet; a contestant that fails is named, and the others go on."""
    options = parsed(arguments)
    if options.table:
        print_tables(measure.read(options.results), options.sets)
        return 0
    done = {(row["set"], row["contestant"], row["seed"]) for row in measure.read(options.results)}
    failed = False
    for name in options.sets:
        missing = [
            (CONTESTANTS[contestant], seed)
            for seed in options.seeds
            for contestant in options.contestants
            if (name, contestant, str(seed)) not in done
        ]
        asked = question(SETS[name]) if missing else None
        for contestant, seed in missing:
            assert asked is not None
            failed |= not measure_one(SETS[name], contestant, asked, seed, options.results)
    return int(failed)


def print_tables(rows: Sequence[Row], names: Sequence[str]) -> None:
    for name in names:
        print(f"{name}\n\n{table(rows, name)}\n")


def measure_one(
    chosen: ForecastSet, contestant: Contestant, asked: Question, seed: int, results: Path
) -> bool:
    try:
        row = measure.measured(chosen, contestant, asked, seed)
    except (subprocess.SubprocessError, RuntimeError) as error:
        log = FOLDER / f"forecasts-{contestant.name}.log"
        print(f"{chosen.name} {contestant.name} failed, see {log}: {error}", file=sys.stderr, flush=True)
        return False
    measure.save(results, row)
    print(measure.shown(row), flush=True)
    return True


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.compat.forecasts", description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--contestants", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--results", type=Path, default=measure.RESULTS, metavar="CSV")
    parser.add_argument("--table", action="store_true", help="print the record in Markdown, measure nothing")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
