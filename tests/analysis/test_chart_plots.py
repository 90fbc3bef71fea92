"""Charts of answers: kept with a run, read back, refused if damaged, drawn with numbers and with times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from linnet.analysis.chart_plots import LOOKS, draw_charts
from linnet.analysis.drawing import house_style, inline
from linnet.runs.charts import read_charts, write_charts
from linnet.runs.errors import Damaged
from linnet.runs.records import write_json
from linnet.runs.untrusted import read_json, sealed
from linnet.tasks.results import Band, Chart, Line

pytest.importorskip("matplotlib")

DAYS = ("2024-01-30", "2024-01-31", "2024-02-01T12:00:00")


def chart(x: tuple[Any, ...] = DAYS) -> Chart:
    lines = (Line("values", x, (1.0, math.nan, 3.0)), Line("$ made $", x[1:], (2.0, 2.5)))
    return Chart(
        "a <title> of $5 and $6",
        "About it.",
        "day",
        "sales",
        lines,
        (Band("80 %", x[1:], (1.0, 2.0), (3.0, 4.0), 1),),
    )


@pytest.mark.parametrize("x", [DAYS, (1, 2.5, 4)])
def test_charts_are_read_as_they_were_written(x: tuple[Any, ...], tmp_path: Path):
    assert read_charts(tmp_path) == []
    write_charts(tmp_path, [])
    assert read_charts(tmp_path) == []
    write_charts(tmp_path, [chart(x), chart(x)])
    first, second = read_charts(tmp_path)
    assert math.isnan(first.lines[0].y[1])
    assert str(first) == str(second) == str(chart(x))


def test_of_too_many_charts_the_first_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("linnet.runs.charts.SMALL", 10_000)
    long = Chart("long", "", "", "", (Line("y", tuple(range(100)), (0.5,) * 100),))
    write_charts(tmp_path, [long] * 9)
    assert 1 <= len(read_charts(tmp_path)) < 9


DAMAGES: list[tuple[str, Any]] = [
    ("lines", None),
    ("title", 5),
    ("lines", [{"label": "y", "x": [1, 2], "y": [1]}]),
    ("lines", [{"label": "y", "x": [1, "2024-01-01"], "y": [1, 2]}]),
    ("lines", [{"label": "y", "x": ["yesterday"], "y": [1]}]),
    ("lines", [{"label": "y", "x": ["2024-01-01", "+99999-01-01"], "y": [1, 2]}]),
    ("lines", [{"label": "y", "x": [1], "y": [math.inf]}]),
    ("bands", [{"label": "b", "x": [1], "low": [1], "high": [2], "line": 7}]),
]


@pytest.mark.parametrize(("name", "value"), DAMAGES)
def test_a_damaged_chart_is_refused(name: str, value: Any, tmp_path: Path):
    write_charts(tmp_path, [chart()])
    path = tmp_path / "charts.json"
    found = read_json(path)["charts"][0]
    write_json(path, sealed({"charts": [{**found, name: value}]}))
    with pytest.raises(Damaged, match=r"charts\.json"):
        read_charts(tmp_path)


def test_a_changed_file_is_refused(tmp_path: Path):
    write_charts(tmp_path, [chart()])
    path = tmp_path / "charts.json"
    path.write_text(path.read_text().replace("About it", "About us"))
    with pytest.raises(Damaged, match="seal"):
        read_charts(tmp_path)


def test_a_figure_has_the_lines_and_bands_of_its_charts():
    with house_style():
        figure = draw_charts([[chart(), chart()], [chart((1, 2, 3))]])
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [len(axes.get_lines()) for axes in shown] == [2, 2, 2]
    assert [len(axes.collections) for axes in shown] == [1, 1, 1]
    assert [line.get_color() for line in shown[0].get_lines()] == [look.color for look in LOOKS[:2]]
    # A value between gaps is a point, as there is no line to it.
    assert [line.get_marker() for line in shown[0].get_lines()] == ["o", "None"]
    svg = inline(figure, "answers", "answers")
    assert "a &lt;title&gt; of $5 and $6" in svg
    assert "$ made $" in svg
    assert "#1f5fbf" not in svg.lower()
