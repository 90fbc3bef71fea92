"""The figures of the pages, in tables and in sentences, are those of the records."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import fresh, rows
from benchmarks.fresh import has_history
from experiments import results, times
from linnet.atlas.record import read_atlas
from tools import decision, figures, microcontroller, pages, targets
from tools.compat import models_page, page, record
from tools.compat.forecasts import measure
from tools.compat.projects import MODELS, PROJECTS

MARK = "<!-- benchmarks/compat.csv: sb3-contrib, time, {}, ratio -->"


def write_readme(path: Path) -> None:
    pages.write_readme(path, rows.read(pages.RESULTS))
    pages.write_engines(path, rows.read(pages.RESULTS))
    pages.write_decision(path, decision.Records.read())


WRITERS: dict[Path, Callable[[Path], object]] = {
    pages.README: write_readme,
    pages.BENCHMARKS: lambda path: pages.write_benchmarks(
        path, rows.read(pages.RESULTS), path.with_name(pages.PLOT.name)
    ),
    pages.WHICH_UNIT: lambda path: pages.write_which_unit(
        path, rows.read(pages.RESULTS), read_atlas(pages.ATLAS_RECORD)
    ),
    pages.ATLAS: lambda path: pages.write_atlas(path, read_atlas(pages.ATLAS_RECORD)),
    pages.DEPLOY: lambda path: pages.write_deploy(path, targets.read_results()),
    pages.INT8: lambda path: pages.write_int8(path, rows.read(pages.RESULTS), microcontroller.read_results()),
    pages.STREAMING: lambda path: pages.write_streaming(path, rows.read(pages.RESULTS)),
    pages.EXPERIMENTS: lambda path: pages.write_rivals(path, measure.read(measure.RESULTS)),
    page.PAGE: lambda path: page.write(path, record.read(record.RESULTS), PROJECTS.values()),
    models_page.PAGE: lambda path: models_page.write(path, record.read(record.RESULTS), MODELS.values()),
}


# Pages say whether the code has changed since a time was measured, which is not known from an archive.
needs_history = pytest.mark.skipif(not has_history(), reason="this is no git clone with all of its commits")


@needs_history
@pytest.mark.parametrize("written", WRITERS, ids=lambda path: path.relative_to(figures.ROOT).as_posix())
def test_the_tables_of_a_page_are_those_of_the_records(written: Path, tmp_path: Path):
    """If this fails after a new record, run python -m tools.pages or python -m tools.compat."""
    copy = shutil.copy(written, tmp_path)
    (tmp_path / pages.PLOT.name).touch()
    WRITERS[written](Path(copy))
    assert Path(copy).read_text(encoding="utf-8") == written.read_text(encoding="utf-8")


@needs_history
def test_the_figures_of_all_pages_are_those_of_the_records():
    """If this fails after a new record, run python -m tools.pages."""
    texts = {page: page.read_text(encoding="utf-8") for page in figures.PAGES}
    assert sum(len(figures.MARK.findall(text)) for text in texts.values()) > 2
    assert {page: figures.updated(text) for page, text in texts.items()} == texts


def test_a_figure_is_written_again_with_its_decimals():
    key = {"project": "sb3-contrib", "what": "time", "contestant": "SRU"}
    ratio = next(float(row["ratio"]) for row in record.read(record.RESULTS) if key.items() <= row.items())
    mark = MARK.format("SRU")
    assert figures.updated(f"took 7.0{mark}, 9{mark}") == f"took {ratio:.1f}{mark}, {ratio:.0f}{mark}"


def test_a_figure_of_several_rows_is_their_mean():
    seeds = ["lrn-seed1", "lrn-seed2"]
    both = [float(row["test"]) for row in results.read_results() if row["row"] in seeds]
    mark = f"<!-- experiments/results.csv: lrn_table6, {'+'.join(seeds)}, , test -->"
    assert len(both) == 2
    assert figures.updated(f"F1 0.00{mark}") == f"F1 {sum(both) / 2:.2f}{mark}"


def test_a_sentence_with_a_time_says_when_it_was_measured():
    """So that it cannot be older than its code without saying so."""
    for path in figures.PAGES:
        for line in path.read_text(encoding="utf-8").splitlines():
            timed = {kind_of(mark) for mark in figures.MARK.finditer(line) if mark["file"] == figures.TIMES}
            dated = {kind_of(mark) for mark in figures.MARK.finditer(line) if mark["when"]}
            assert timed == dated, f"{path.name}: {line[:80]}"


def kind_of(mark: re.Match[str]) -> str:
    return next(word for word in mark["words"].split(", ") if word.startswith("what="))


STEP = "what=step, unit=lstm, mode=step with gradients, d=64"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one measurement, and another one with the second."""
    first = {**dict.fromkeys(rows.COLUMNS, ""), "what": "step", "unit": "lstm", "mode": "step with gradients"}
    first |= {
        "d": "64",
        "ratio_to": "nn.LSTM",
        "ratio": "0.7",
        "date": "2026-11-17T17:08:00Z",
        "p50_ms": "0.1",
    }
    second = {**first, "ratio": "0.8", "date": "2026-11-18T17:08:00Z", "p50_ms": "0.2"}
    monkeypatch.setattr(figures, "read", lambda file: [first, second, {**second, "unit": "gru"}])


@pytest.mark.usefixtures("steps")
def test_a_time_is_that_of_the_newest_row_and_ranges_are_over_all_runs():
    def written(words: str) -> str:
        return figures.updated(f"9.00<!-- {figures.TIMES}: {words} -->").partition("<")[0]

    assert written(f"{STEP}, ratio") == "0.80"
    assert written(f"{STEP}, p50_ms in µs") == "200.00"
    assert [written(f"{STEP}, {which} ratio") for which in ("lowest", "highest")] == ["0.70", "0.80"]
    with pytest.raises(ValueError, match="has 2 measurements of what=step, ratio; expected one: name more"):
        written("what=step, ratio")
    with pytest.raises(ValueError, match="has no row of what=foo"):
        written("what=foo, ratio")


@pytest.mark.usefixtures("steps")
def test_a_parenthesis_has_the_dates_and_says_whether_the_code_has_changed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fresh, "since", lambda rows, what: f"; changed since {len(rows)}")
    mark = f"<!-- {figures.TIMES}: {STEP}, when -->"
    expected = "(measured on 2026-11-17 to 2026-11-18, commit unknown; changed since 2)"
    assert figures.updated(f"in a run (yesterday){mark}.") == f"in a run {expected}{mark}."


def test_further_figures_of_a_result_and_shares_in_percent():
    found = next(row for row in results.read_results() if (row["table"], row["row"]) == ("m4_hourly", "gru"))
    mark = "<!-- experiments/results.csv: m4_hourly, gru, , {} -->"
    mase = found["also"].split()[1].rstrip(",")
    assert figures.updated(f"9.0000{mark.format('mase')}") == f"{float(mase):.4f}{mark.format('mase')}"
    share = mark.format("mase in %")
    assert figures.updated(f"7{share}") == f"{100 * float(mase):.0f}{share}"
    count = mark.format("parameters")
    assert figures.updated(f"1,000{count}") == f"{int(found['parameters']):,}{count}"


def test_a_figure_may_be_a_ratio_of_two_rows():
    p50 = {line["row"]: float(line["p50_ms"]) for line in times.read_times() if line["table"] == "lrn_table1"}
    mark = "<!-- experiments/times.csv: lrn_table1, lrn, p50_ms over lstm -->"
    assert figures.updated(f"9.0000{mark}") == f"{p50['lrn'] / p50['lstm']:.4f}{mark}"


def test_a_star_stands_for_all_seeds():
    found = measure.read(measure.RESULTS)
    of = [float(row["mase"]) for row in found if (row["set"], row["contestant"]) == ("co2", "linnet-sru")]
    mark = "<!-- experiments/forecast_rivals.csv: co2, linnet-sru, *, mase -->"
    assert figures.updated(f"0.0000{mark}") == f"{sum(of) / len(of):.4f}{mark}"


def test_a_row_that_is_not_recorded_is_named():
    with pytest.raises(ValueError, match=r"compat\.csv has no row of sb3-contrib, time, FOO"):
        figures.updated(f"0.5{MARK.format('FOO')}")
