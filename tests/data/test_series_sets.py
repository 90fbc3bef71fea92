"""Sets of series that are in an installed package."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from linnet.data import series_sets
from linnet.data.errors import DataError, MissingDataError
from linnet.data.layouts import SeriesColumns
from linnet.data.series_sets import SERIES_SETS, load_series

needs_package = pytest.mark.skipif(find_spec("statsmodels") is None, reason="needs the extra series")


@needs_package
@pytest.mark.parametrize(
    ("name", "count", "frequency", "start", "length", "first", "last"),
    [
        ("sunspots", 1, "Y", "1700-01-01", 309, 5, 2.9),
        ("co2", 1, "W", "1958-03-29", 2284, 316.1, 371.5),
        ("elnino", 1, "M", "1950-01-01", 732, 23.11, 22.07),
        ("macrodata", 12, "Q", "1959-01-01", 203, 2710.349, 12990.341),
    ],
)
def test_sets_of_statsmodels(name, count, frequency, start, length, first, last):
    known = {*sys.modules}
    table = load_series(name)
    series = table.series[0]
    assert (len(table.series), str(table.frequency), str(series.start)[:10]) == (count, frequency, start)
    assert (len(series), series.values[0, 0], series.values[-1, 0]) == (length, first, last)
    assert "statsmodels" not in {*sys.modules} - known


@needs_package
def test_co2_has_gaps_months_are_in_order_and_the_macroeconomic_series_have_names():
    assert load_series("elnino").series[0].values[:3, 0].tolist() == [23.11, 24.2, 25.37]
    assert np.isnan(load_series("co2").series[0].values).sum() == 59
    names = [series.name for series in load_series("macrodata").series]
    assert (names[0], names[-1]) == ("realgdp", "realint")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(series_sets, "find_spec", lambda name: None)
    with pytest.raises(MissingDataError, match=r"package statsmodels: pip install '.*\[series\]'"):
        load_series("co2")


def test_columns_of_a_set_by_name():
    (series,) = load_series("macrodata", columns=SeriesColumns(targets=("unemp",))).series
    assert (len(series), series.values[0, 0]) == (203, 5.8)


def packed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, **texts: str) -> None:
    """Write the files of a set, which are not the published ones."""
    files = [replace(file, checksum=None) for file in SERIES_SETS[name].files]
    for file, text in zip(files, texts.values(), strict=True):
        (folder / file.name).write_text(text)
    monkeypatch.setitem(SERIES_SETS, name, replace(SERIES_SETS[name], files=tuple(files)))


def test_m4_has_its_training_and_its_test_part_in_one_series(tmp_path, monkeypatch):
    train = '"V1","V2","V3","V4"\n"H1",1,2,3\n"H2",4,5,\n'
    packed(tmp_path, monkeypatch, "m4-hourly", train=train, test='"V1","V2"\n"H2",6\n"H1",7\n')
    table = load_series("m4-hourly", data_dir=tmp_path)
    assert [(series.name, series.values[:, 0].tolist()) for series in table.series] == [
        ("H1", [1, 2, 3, 7]),
        ("H2", [4, 5, 6]),
    ]


def test_ett_is_cut_after_twenty_months(tmp_path, monkeypatch):
    hours = np.datetime64("2016-07-01T00", "h") + np.arange(20 * 30 * 24 + 5)
    lines = [f"{str(hour).replace('T', ' ')}:00:00,1,2,3,4,5,6,{n}" for n, hour in enumerate(hours)]
    text = "\n".join(["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", *lines])
    packed(tmp_path, monkeypatch, "etth1", text=text)
    (series,) = load_series("etth1", data_dir=tmp_path).series
    assert series.values.shape == (14_400, 7)
    (alone,) = load_series("etth1", data_dir=tmp_path, columns=SeriesColumns(targets=("OT",))).series
    assert alone.values[:, 0].tolist() == list(range(14_400))


def test_other_files_than_the_published_are_refused(tmp_path):
    (tmp_path / "ETTh1.csv").write_text("date,OT\n")
    with pytest.raises(DataError, match=r"not the published file.*Download it again$"):
        load_series("etth1", data_dir=tmp_path)


def test_other_names():
    with pytest.raises(DataError, match="no set 'sunspot'; did you mean 'sunspots'"):
        load_series("sunspot")
    with pytest.raises(DataError, match="give its path"):
        load_series("own")
    assert all(each.about and each.terms for each in SERIES_SETS.values())
