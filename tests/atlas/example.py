"""An atlas of three units on one problem, as runs would give it."""

from __future__ import annotations

from typing import Any

from linnet.atlas.record import Atlas, Circumstances, Known, Row

PROBLEM = Known(
    name="parity",
    kind="track a state",
    about="Even or odd?",
    figure="accuracy",
    figure_about="The share of right answers.",
    format=".4f",
    higher=True,
    baseline="memoryless",
    level=0.5,
    budget=5000,
    updates=300,
    reads="memory.parity",
)


def row(unit: str, results: tuple[float | None, ...], view: str = "parameters", **given: Any) -> Row:
    made = tuple(None if value is None else 0 for value in results)
    measured = 0 if view == "parameters" else None
    return Row(view, "parity", unit, 20, 5000, 300, results, made, measured, **given)


ATLAS = Atlas(
    form="quick",
    seeds=(1, 2, 3),
    circumstances=(Circumstances("2026-11-19", "0123abc", "a processor", {"torch": "2.13.0"}),),
    problems=(PROBLEM,),
    rows=(
        row("lstm", (1.0, 1.0, 0.97), update_ms=2.0, step_us=12.0, int8_bytes=6000, int8=(1.0, 0.99, 0.97)),
        row("sru", (0.9, 0.99, 0.95), update_ms=1.5, step_us=9.0, int8_bytes=7000),
        row("eurnn", (0.5, None, 0.51), update_ms=3.0, notes=("no stream: it has none",)),
        row("lstm", (1.0, 1.0, 0.97), "time"),
        row("sru", (0.93, 0.96, 0.96), "time"),
        row("eurnn", (0.5, 0.49, 0.5), "time"),
    ),
    left_out={"permuted MNIST": "the files of MNIST were not found"},
    options={"lstm": {"peepholes": True}},
)
