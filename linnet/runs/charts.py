"""The charts that a task keeps with a run: `charts.json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linnet.runs.records import as_json, write_json
from linnet.runs.untrusted import (
    SMALL,
    check,
    check_finite,
    check_object,
    check_text,
    read_json,
    sealed,
    unsealed,
)
from linnet.tasks.results import Band, Chart, Line

FILE = "charts.json"


def write_charts(folder: Path, charts: Sequence[Chart]) -> None:
    """Write the charts of a test, if there are any; of too many to be read again, the first."""
    kept = [plain(each) for each in charts]
    while kept and len(as_json(kept)) > SMALL // 2:
        kept.pop()
    if kept:
        write_json(folder / FILE, sealed({"charts": kept}))


def plain(value: Any) -> Any:
    """Return a chart as JSON has it: NaN is null."""
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, str | int):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return [plain(each) for each in value]


def read_charts(folder: Path) -> list[Chart]:
    """Return the charts of a test; none if the task has none or the run is not finished."""
    path = Path(folder) / FILE
    value = read_json(path)
    if value is None:
        return []
    found = unsealed(path, value)
    check_object(path, "it", found, ("charts",))
    check(isinstance(found["charts"], list), path, "its charts are not a list")
    return [chart_from(path, each) for each in found["charts"]]


def chart_from(path: Path, value: Any) -> Chart:
    check_object(path, "a chart", value, Chart._fields)
    check(len(value) == len(Chart._fields), path, "a chart has other fields")
    for name in ("title", "about", "x_label", "y_label"):
        check_text(path, name, value[name])
    for name in ("lines", "bands"):
        check(isinstance(value[name], list), path, f"the {name} of a chart are not a list")
    lines = tuple(line_from(path, each) for each in value["lines"])
    bands = tuple(band_from(path, each, len(lines)) for each in value["bands"])
    kinds = {is_time(x) for each in [*(line.x for line in lines), *(band.x for band in bands)] for x in each}
    check(len(kinds) < 2, path, "a chart has both numbers and times")
    return Chart(**{**value, "lines": lines, "bands": bands})


def line_from(path: Path, value: Any) -> Line:
    check_object(path, "a line", value, Line._fields)
    check_text(path, "label", value["label"])
    x = places_from(path, value["x"])
    return Line(value["label"], x, numbers_from(path, value["y"], len(x)))


def band_from(path: Path, value: Any, lines: int) -> Band:
    check_object(path, "a band", value, Band._fields)
    check_text(path, "label", value["label"])
    right = isinstance(value["line"], int) and 0 <= value["line"] < lines
    check(right, path, "a band has the colour of a line that is not there")
    x = places_from(path, value["x"])
    low, high = (numbers_from(path, value[name], len(x)) for name in ("low", "high"))
    return Band(value["label"], x, low, high, value["line"])


def is_time(x: Any) -> bool:
    return isinstance(x, str)


def places_from(path: Path, found: Any) -> tuple[Any, ...]:
    """Return numbers, or texts that are times."""
    check(isinstance(found, list), path, "the x of a chart are not a list")
    for each in found:
        if is_time(each):
            check(is_readable(each), path, f"the x of a chart is {each!r}, and not a time")
        else:
            check_finite(path, "x", each)
    return tuple(found)


def is_readable(text: str) -> bool:
    """Whether matplotlib can draw a time: those of the years 1 to 9999."""
    try:
        time = np.datetime64(text, "s")
    except ValueError:
        return False
    return bool(np.datetime64("0001-01-01") <= time <= np.datetime64("9999-12-31"))


def numbers_from(path: Path, found: Any, count: int) -> tuple[float, ...]:
    """Return as many numbers as there are x; null is NaN."""
    check(isinstance(found, list) and len(found) == count, path, f"a line of a chart has not {count} values")
    for each in found:
        if each is not None:
            check_finite(path, "a value of a chart", each)
    return tuple(math.nan if each is None else each for each in found)
