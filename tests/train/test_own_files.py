"""Which settings name files whose contents a run remembers."""

from __future__ import annotations

from pathlib import Path

from linnet.tasks.classify import ClassifyData
from linnet.tasks.forecast import ForecastData
from linnet.train.own_files import digests


def test_files_are_remembered_by_their_contents(tmp_path: Path):
    file = tmp_path / "reviews.csv"
    file.write_text("text,label\n")
    before = digests(ClassifyData(set="own", path=str(file)))
    assert list(before) == ["path"]
    file.write_text("text,kind\n")
    assert digests(ClassifyData(set="own", path=str(file))) != before


def test_a_column_called_target_is_no_file():
    assert digests(ForecastData()) == {}
    assert digests(ForecastData(target="sales")) == {}
