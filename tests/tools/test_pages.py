"""The tables of the pages come from the recorded rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import rows
from benchmarks.run import run
from benchmarks.settings import Settings, quick
from experiments import small_models
from tests.atlas.example import ATLAS
from tools import microcontroller, pages, targets


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "results.csv"
    settings = replace(quick(Settings(threads=1)), rounds=1, units=("sru", "lrn"), references=())
    for what in ("speed", "steps"):
        run(settings, what, path, again=False, say=lambda text: None)
    return path


def page_with(path: Path, *tables: str) -> Path:
    """A page with empty markers of these tables."""
    body = "".join("{}\nold\n{}\n".format(*pages.markers(table)) for table in tables)
    path.write_text(f"before\n{body}after\n", encoding="utf-8")
    return path


def test_the_readme_table_comes_from_the_last_rows(tmp_path: Path, measured: Path):
    readme = page_with(tmp_path / "README.md", "speed")
    begin, end = pages.markers("speed")
    found = rows.read(measured)
    key = {"what": "speed", "unit": "sru", "mode": "inference", "ratio_to": "nn.LSTM"}
    old = next(row for row in found if key.items() <= row.items())
    pages.write_readme(readme, [*found, {**old, "ratio": "0.1234", "met": "yes"}])
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{begin}\n\nTime relative to `nn.LSTM`")
    assert text.endswith(f"\n\n{end}\nafter\n")
    assert "\nold\n" not in text
    assert "| unit | layer, 6x3x16: inference / training | one step of a cell, 1x1x16 |" in text
    assert "| SRU | 0.12 / " in text
    pages.write_readme(readme, [*found, {**old, "ratio": "0.1234", "met": "yes"}])
    assert readme.read_text(encoding="utf-8") == text


def test_the_page_of_benchmarks_has_all_sizes_and_the_targets(tmp_path: Path, measured: Path):
    page = page_with(tmp_path / "README.md", "speed", "targets")
    plot = tmp_path / "folder" / "speed.png"
    plot.parent.mkdir()
    plot.write_bytes(b"")
    pages.write_benchmarks(page, rows.read(measured), plot)
    text = page.read_text(encoding="utf-8")
    assert "| unit | 6x3x16 |" in text
    assert "| unit | 1x1x16 |" in text
    assert "](folder/speed.png)" in text
    assert "| measured | relative to | result | target | met |" in text
    assert "| SRU, LRN training, d = 16 | the limit | " in text
    assert "\nold\n" not in text


def test_a_readme_without_markers_is_left_alone(tmp_path: Path, measured: Path):
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="must hold once each"):
        pages.write_readme(readme, rows.read(measured))
    assert readme.read_text() == "nothing here\n"


def test_the_engines_of_the_readme_have_a_line_each(tmp_path: Path, measured: Path):
    readme = page_with(tmp_path / "README.md", "engines")
    found = rows.read(measured)
    row = {**found[0], "what": "engines", "mode": "one thread", "L": "16", "ratio_to": "ONNX Runtime"}
    made = [
        {**row, "unit": unit, "d": d, "ratio": r}
        for unit, d, r in (("lstm", "32", "0.5"), ("lstm", "64", "0.9"))
    ]
    pages.write_engines(readme, [*found, *made])
    text = readme.read_text(encoding="utf-8")
    assert "one sequence of 16 to 16 steps, 32 to 64 channels" in text
    assert "| ONNX Runtime | 0.50 to 0.90 | - | - | - |" in text
    with pytest.raises(ValueError, match="--what engines"):
        pages.write_engines(readme, found)


def test_the_page_of_exports_has_a_row_for_each_recorded_target(tmp_path: Path):
    results = tmp_path / "targets.csv"
    day = {"date": "2026-11-17T06:00:00Z", "commit": "abcdef0"}
    targets.record([targets.Result("js-node", 54, 1.7e-6, "lrn", **day)], results)
    targets.record([targets.Result("cortex-m7", 54, 2.6e-6, "sru", **day)], results)
    page = page_with(tmp_path / "deploy.md", "targets")
    pages.write_deploy(page, targets.read_results(results))
    *_, first, second, _, _, _ = page.read_text(encoding="utf-8").splitlines()
    # In the order of the targets, not in that of the recordings.
    assert first.startswith("| C on Cortex-M7 without an operating system (QEMU, ")
    assert first.endswith(" | 54 | 2.6e-06 | 2026-11-17, commit abcdef0 |")
    assert second == "| JavaScript in Node | 54 | 1.7e-06 | 2026-11-17, commit abcdef0 |"


def test_the_tables_of_int8_have_the_recorded_rows(tmp_path: Path, measured: Path):
    page = page_with(tmp_path / "int8.md", "small models", "whole numbers", "times", "microcontroller")
    counts = [
        {
            "model": "GRU 64",
            "arithmetic": "integer",
            "processor": name,
            "instructions": count,
            "flash": "30636",
        }
        | {"memory": "896", "difference": "0.004", "compiler": "12.2.1", "emulator": "7.2"}
        | {"date": "2026-11-18T12:00:00Z", "commit": ""}
        for name, count in (("Cortex-M4", "71918"), ("Cortex-M7", "71000"))
    ]
    (old, *_) = rows.read(measured)
    race = {**old, "what": "int8", "unit": "sru", "mode": "step", "ratio": "0.473", "ratio_to": "float32"}
    pages.write_int8(page, [{**race, "L": "1", "B": "1", "d": "512"}], counts)
    text = page.read_text(encoding="utf-8")
    assert "gcc 12.2.1, QEMU 7.2, measured on 2026-11-18, commit unknown." in text
    assert "| GRU 64 | integer | 71,918 | 71,000 | 30,636 | 896 | 0.004 |" in text
    assert "| unit | step, 1x1x512 |" in text
    assert "| SRU | 0.47 |" in text


def test_the_figures_of_rounded_models_are_recorded_by_model(tmp_path: Path):
    figures = dict(zip(small_models.FIGURES, ("9.1", "9.2", "9.3", "0.26"), strict=True))
    row = {"date": "2026-11-18", "commit": "", "figure": "perplexity", "note": "", **figures}
    path = tmp_path / "small_models.csv"
    for name, value in (("trec-sru", "8"), ("ptb-sru", "7"), ("trec-sru", "6")):
        small_models.store({**row, "model": name, "int8": value}, path)
    first, second = small_models.table(small_models.RECORD.read(path)).splitlines()[2:]
    assert first.startswith("| SRU, 2 x 200, Penn Treebank, 6 epochs | perplexity | 9.1 | 7 | 9.3 | 0.26 |")
    assert second.startswith("| SRU, 2 x 128, TREC, 8 epochs | perplexity | 9.1 | 6 | 9.3 | 0.26 |")


def test_a_frame_of_a_stream_is_told_in_microseconds(measured: Path):
    (old, *_) = rows.read(measured)
    row = {**old, "what": "blocks", "unit": "sru", "L": "200", "d": "64"}
    made = [
        {**row, "backend": how, "p50_ms": time} for how, time in (("run", "0.08"), ("step by step", "2.7"))
    ]
    assert pages.frames_table(made).splitlines()[-1] == "| SRU | 64 | 13.5 | 0.4 | - |"
    assert "--what blocks" in pages.frames_table([])


def test_forecasts_of_other_libraries_have_the_mean_of_their_seeds():
    row = {"set": "toy", "contestant": "a", "train_seconds": "9", "smape": "10.12", "cpu": "a processor"}
    row |= {"date": "2026-11-18T12:00:00Z", "commit": "abc"}
    found = [{**row, "mase": mase} for mase in ("0.9", "1.1")]
    shown = pages.rivals_table(found, ["toy"], {"a": "A", "b": "B"}).splitlines()
    assert shown[-2:] == ["| A | 1.00 ± 0.14, 10.1 (9 s, 2 seeds) |", "| B |  |"]


def test_tables_of_times_say_that_the_code_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pages, "since", lambda rows, what="": f"; changed: {what}")
    found = rows.read(pages.RESULTS)
    assert "; changed: " in pages.short_table(found)
    for table in (pages.speed_table, pages.engines_table, pages.targets_table, pages.int8_table):
        assert "; changed: " in table(found)
    assert "; changed: " in pages.memory_table(pages.peaks(found))
    monkeypatch.setattr(pages, "since", lambda rows, what="": f"; the code has changed since {list(rows)}")
    assert "The code has changed since [{'commit': '0123abc'}]." in pages.best_units(ATLAS)
    monkeypatch.setattr(pages, "since", lambda rows, what="": f"; changed: {what}")
    assert "; changed: target" in pages.exports_table(targets.read_results())
    assert "; changed: microcontroller" in pages.microcontroller_table(microcontroller.read_results())


def test_the_table_of_memory_starts_with_the_smallest(measured: Path):
    (old, *_) = rows.read(measured)
    new = {**old, "what": "memory", "mode": "training", "ratio_to": "nn.LSTM", "memory": "new"}
    large = {**new, "unit": "sru", "peak_mb": "120.4", "ratio": "0.5"}
    small = {**new, "unit": "lrn", "peak_mb": "86.2", "ratio": "0.36"}
    table = pages.memory_table(pages.peaks([large, small]))
    assert table.splitlines()[-2:] == ["| LRN | 86 | 0.36 |", "| SRU | 120 | 0.50 |"]


def test_the_tables_of_the_atlas_say_which_units_are_best(tmp_path: Path):
    page = page_with(tmp_path / "atlas.md", "atlas")
    pages.write_atlas(page, ATLAS)
    text = page.read_text(encoding="utf-8")
    assert "The quick form: 3 units, 1 task, 3 seeds" in text
    assert "| LSTM | **0.990 ± 0.043** |" in text
    best = "LSTM 0.990 ± 0.043, SRU 0.947 ± 0.112, EURNN 0.505 ± 0.064 (2 of 3 seeds)"
    line = f"| parity | accuracy | 0.500 (memoryless) | {best} | SRU (9.0 µs; 2 in reach) |"
    assert line in pages.best_units(ATLAS)


@pytest.mark.parametrize(
    ("page", "table"),
    [
        (pages.README, "speed"),
        (pages.README, "engines"),
        (pages.README, "decision"),
        (pages.README, "libraries"),
        (pages.BENCHMARKS, "speed"),
        (pages.BENCHMARKS, "targets"),
        (pages.WHICH_UNIT, "memory"),
        (pages.WHICH_UNIT, "atlas"),
        (pages.ATLAS, "atlas"),
        (pages.DEPLOY, "targets"),
        (pages.INT8, "small models"),
        (pages.INT8, "whole numbers"),
        (pages.INT8, "times"),
        (pages.INT8, "microcontroller"),
        (pages.READY, "ready"),
        (pages.STREAMING, "frames"),
        (pages.EXPERIMENTS, "rivals"),
    ],
)
def test_the_pages_of_this_repository_have_the_markers(page: Path, table: str):
    text = page.read_text(encoding="utf-8")
    assert [text.count(marker) for marker in pages.markers(table)] == [1, 1]
