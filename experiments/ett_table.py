"""The table of ETTh1 and ETTh2 in README.md: our units beside a linear model and seasonal naive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import stdev

from experiments.results import Result, further
from linnet.base.tables import markdown

SETS = {"etth1": "ETTh1", "etth2": "ETTh2"}
KINDS = {"ot": "temperature alone", "all": "all seven channels"}
UNITS = {"": "SRU", "-gru": "GRU"}
BASELINES = ("linear", "seasonal naive")


def ett_part(results: Sequence[Result]) -> str:
    """Return the errors by set, horizon and channels, and how often each unit is ahead of the baselines."""
    known = {line["row"]: line for line in results if (line["table"], line["changed"]) == ("ett", "")}
    tasks = {
        f"{name}-{hours}-{kind}": f"{SETS[name]}, {hours} hours, {KINDS[kind]}"
        for kind in KINDS
        for name in SETS
        for hours in (24, 48)
    }
    units = {end: unit for end, unit in UNITS.items() if any(f"{task}{end}" in known for task in tasks)}
    body = [
        [about, *(error(known.get(f"{task}{end}")) for end in units), *baselines(known.get(task))]
        for task, about in tasks.items()
    ]
    said = [ahead(known, end, unit, kind) for end, unit in units.items() for kind in KINDS]
    return f"{markdown(['', *units.values(), *BASELINES], body)}\n\n{' '.join(said)}"


def error(line: Result | None) -> str:
    """Return the mean squared error, ± its deviation over several seeds, and the mean absolute error."""
    if line is None:
        return "-"
    repeats = [float(value) for value in line["repeats"].split()]
    spread = f" ± {stdev(repeats):.4f}" if len(repeats) > 1 else ""
    return f"{float(line['test']):.4f}{spread} / {float(further(line)['mae']):.3f}"


def baselines(line: Result | None) -> list[str]:
    if line is None:
        return ["-"] * len(BASELINES)
    return [f"{error_of(line, name):.4f} / {error_of(line, name, 'mae'):.3f}" for name in BASELINES]


def error_of(line: Result, baseline: str, figure: str = "mse") -> float:
    return float(further(line)[f"{baseline} {figure}"])


def ahead(known: Mapping[str, Result], end: str, unit: str, kind: str) -> str:
    own = [line for row, line in known.items() if row.endswith(f"-{kind}{end}")]
    counts = [sum(float(line["test"]) < error_of(line, name) for line in own) for name in BASELINES]
    return (
        f"With {'the ' * (kind == 'ot')}{KINDS[kind]}, {unit} is ahead of the linear model in {counts[0]} of "
        f"{len(own)} tasks and of seasonal naive in {counts[1]}."
    )
