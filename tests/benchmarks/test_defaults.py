"""The benchmark of defaults makes its files, keeps its rows, continues where it stopped, and shows them."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest

from benchmarks import defaults, lstm_script
from benchmarks.defaults import CASES, Case, Measured
from linnet.tasks import TASKS

FOUND = Measured(0.868, "TF-IDF + logistic regression", 0.815, 28.8)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Data sets of a few lines, as the data folder has them."""
    folder = tmp_path / "data"
    texts: dict[str, str] = {
        **{
            f"imdb/{name}.csv.xz": 'label,text\n0,"dull,\nsad"\n1,fine bird\n' * 40
            for name in ("train", "test")
        },
        **{
            f"snli/{name}.tsv.gz": "premise\thypothesis\tlabel\tpairID\n" + 'a "b\tc\t1\tx\n' * 5
            for name in ("train_first100k", "test")
        },
        **{
            f"conll2003/{name}.txt.gz": "-DOCSTART- -X- O O\n\nAnna N B B-PER\nsang V O O\n\nBen N B B-PER\n"
            for name in ("train", "test")
        },
        **{f"multi30k/train.{language}.gz": "one\n" * 3200 for language in ("en", "de")},
        "ett/ETTh1.csv.xz": "date,HUFL,OT\n2016-07-01 00:00:00,5.8,30.5\n2016-07-01 01:00:00,5.7,27.8\n",
        "m4/Weekly-train.csv.xz": '"V1","V2","V3"\n"W1","1089.2","1078.91"\n',
        "tinyshakespeare/input.txt.gz": "to be or not to be\n" * 60,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pack = lzma.compress if name.endswith("xz") else gzip.compress
        (folder / name).write_bytes(pack(text.encode()))
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_files_of_each_case(case: Case, data: Path, tmp_path: Path):
    made = tmp_path / "made"
    made.mkdir()
    options = case.files(data, made)
    assert case.task in TASKS
    named = [Path(word) for word in options if word.startswith("/")]
    assert bool(named) == (case.name != "co2, no options")
    assert all(path.stat().st_size for path in named)
    if case.task == "tag":
        assert "DOCSTART" not in named[0].read_text()
    if case.task == "translate":
        assert len(named[0].read_text().splitlines()) == 3000


def test_a_real_run_by_its_defaults(data: Path):
    found = defaults.measure(CASES[0], 1, data)
    assert 0 <= found.value <= 1
    assert found.baseline in ("majority", "TF-IDF + logistic regression")
    assert found.cpu_seconds > 0.5


def test_a_finished_row_is_not_run_again(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ran: list[tuple[str, int]] = []

    def measure(case: Case, seed: int, folder: Path) -> Measured:
        ran.append((case.name, seed))
        return FOUND

    monkeypatch.setattr(defaults, "measure", measure)
    results = tmp_path / "defaults.csv"
    common = ["--data-dir", str(data), "--results", str(results), "--only", "nli"]
    assert defaults.main([*common, "--seeds", "2"]) == 0
    assert defaults.main([*common, "--seeds", "1", "2"]) == 0
    assert ran == [("6,000 pairs", 2), ("6,000 pairs", 1)]
    assert defaults.main([*common, "--seeds", "2", "--again"]) == 0
    assert ran[2:] == [("6,000 pairs", 2)]
    assert [row["seed"] for row in defaults.read_rows(results)] == ["1", "2"]
    page = results.with_suffix(".md").read_text()
    assert (
        "| nli | 6,000 pairs | accuracy | 0.868 (1), 0.868 (2) | TF-IDF + logistic regression 0.815 |" in page
    )


def test_the_best_baseline_is_shown():
    def of(figure: str, *values: float) -> Any:
        names = enumerate(values)
        result = {"baselines": [{"name": f"b{n}", "figures": {figure: value}} for n, value in names]}
        return defaults.best_baseline(CASES[0]._replace(figure=figure), result)

    assert of("accuracy", 0.5, 0.8) == ("b1", 0.8)
    assert of("bpc", 2.0, 3.0) == ("b0", 2.0)
    assert defaults.best_baseline(CASES[0], {}) == ("", None)


def test_a_missing_folder_is_answered(tmp_path: Path, data: Path):
    with pytest.raises(
        SystemExit, match=r"there is no folder .*give the folder of the data sets with --data-dir"
    ):
        defaults.main(["--data-dir", str(tmp_path / "none")])
    (data / "snli" / "test.tsv.gz").unlink()
    with pytest.raises(SystemExit, match=r"there is no .*test\.tsv\.gz; give the folder"):
        defaults.pairs(data, tmp_path)
    with pytest.raises(SystemExit):
        defaults.main(["--data-dir", str(data), "--only", "nly"])


def test_the_script_learns_and_prints_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be\n" * 1000)
    lstm_script.main(str(path), "1.5", "1")
    assert float(capsys.readouterr().out) < 3
