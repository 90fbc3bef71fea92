"""Series from frames of pandas and polars, from arrays and parquet files, and forecasts back to frames."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linnet.data import columnar
from linnet.data.errors import DataError
from linnet.data.frames import ForecastRows, forecast_frame
from linnet.data.frequency import Frequency
from linnet.data.series import SeriesColumns, SeriesTable, read_series, series_of_frame

COLUMNS = SeriesColumns("date", ("sales",), ("shop",), ("price",))
DAYS = [date(2024, 1, 1) + timedelta(days=day) for day in (0, 1, 2, 4)]
DATA: dict[str, list[Any]] = {
    "date": DAYS * 2,
    "shop": ["b"] * 4 + ["a"] * 4,
    "sales": [1, 2, None, 4, 5.5, 6, 7, 8],
    "price": [3, 3, 4, 4] * 2,
}
OBSERVED = COLUMNS._replace(known=(), observed=("price",))


def package(name: str) -> Any:
    return pytest.importorskip(name, reason="needs the extra series")


def as_dict() -> Any:
    values = [np.nan if value is None else value for value in DATA["sales"]]
    return {**DATA, "date": np.array(DATA["date"], "datetime64[D]"), "sales": np.array(values)}


def as_pandas() -> Any:
    pandas = package("pandas")
    return pandas.DataFrame({**DATA, "date": pandas.to_datetime(DATA["date"])})


def as_polars() -> Any:
    return package("polars").DataFrame(DATA, strict=False)


KINDS = {"dict": as_dict, "pandas": as_pandas, "polars": as_polars}


def check(table: SeriesTable) -> None:
    assert [series.name for series in table.series] == ["b", "a"]
    np.testing.assert_array_equal(table.series[0].values[:, 0], [1, 2, np.nan, np.nan, 4])
    np.testing.assert_array_equal(table.series[1].values[:, 0], [5.5, 6, 7, np.nan, 8])
    np.testing.assert_array_equal(table.series[0].observed[:, 0], [3, 3, 4, np.nan, 4])
    assert str(table.series[0].start) == "2024-01-01T00:00:00"
    assert table.frequency == Frequency(1, "D")


@pytest.mark.parametrize("kind", KINDS)
def test_frames(kind: str):
    table = series_of_frame(KINDS[kind](), OBSERVED)
    check(table)
    assert table.series[1].where == "the frame, row 4"


@pytest.mark.parametrize("kind", KINDS)
def test_errors_name_the_row(kind: str):
    with pytest.raises(
        DataError, match="the frame, row 0, series 'b': the time 2024-01-04, among its values, has"
    ):
        series_of_frame(KINDS[kind](), COLUMNS)
    with pytest.raises(DataError, match="the frame has no column 'sale'; did you mean 'sales'"):
        series_of_frame(KINDS[kind](), COLUMNS._replace(targets=("sale",)))


@pytest.mark.parametrize("write", ["pandas", "polars"])
def test_parquet(write: str, tmp_path: Path):
    package("pyarrow")
    path, frame = tmp_path / "sales.parquet", KINDS[write]()
    frame.to_parquet(path) if write == "pandas" else frame.write_parquet(path)
    check(read_series(path, OBSERVED))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        raise ImportError(name)

    (tmp_path / "sales.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(columnar.importlib, "import_module", missing)
    with pytest.raises(DataError, match=r"install pyarrow: pip install '.*\[series\]'"):
        read_series(tmp_path / "sales.parquet", OBSERVED)


def test_a_parquet_file_that_is_none(tmp_path: Path):
    package("pyarrow")
    (tmp_path / "sales.parquet").write_bytes(b"date,sales\n")
    with pytest.raises(DataError, match="is not a parquet file that can be read"):
        read_series(tmp_path / "sales.parquet", OBSERVED)


# ----------------------------------------------------------------------------------- types of columns


def test_pandas_types():
    pandas = package("pandas")
    times = pandas.date_range("2024-01-01", periods=3, freq="D", tz="Europe/Berlin")
    frame = pandas.DataFrame(
        {
            "date": times,
            "shop": pandas.Categorical(["a", "a", "a"]),
            "sales": pandas.array([1, None, 3], dtype="Int64"),
            "price": [True, False, True],
        }
    )
    table = series_of_frame(frame, OBSERVED)
    np.testing.assert_array_equal(table.series[0].values[:, 0], [1, np.nan, 3])
    assert table.series[0].observed[:, 0].tolist() == [1, 0, 1]
    assert str(table.series[0].start) == "2024-01-01T00:00:00"
    assert "times ('date'): local times without their zone" in table.notes


def test_an_index_of_times_of_pandas():
    pandas = package("pandas")
    months = pandas.period_range("2024-01", periods=3, freq="M")
    for frame in (
        pandas.DataFrame({"a": [1, 2, 3]}, index=months),
        pandas.Series([1, 2, 3], months, name="a"),
    ):
        table = series_of_frame(frame)
        assert [series.name for series in table.series] == ["a"]
        assert (table.frequency, table.columns.time) == (Frequency(1, "M"), "time")


def test_polars_types():
    polars = package("polars")
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    times = [start + timedelta(hours=hour) for hour in range(3)]
    frame = polars.DataFrame(
        {"date": times, "shop": ["a"] * 3, "sales": ["1", None, "3"], "price": [1, 2, 3]}
    )
    frame = frame.with_columns(polars.col("shop").cast(polars.Categorical))
    for each in (frame, frame.lazy()):
        table = series_of_frame(each, OBSERVED)
        np.testing.assert_array_equal(table.series[0].values[:, 0], [1, np.nan, 3])
        assert table.frequency == Frequency(1, "h")


# ------------------------------------------------------------------------------------------- arrays


def test_arrays():
    table = series_of_frame(np.arange(6.0))
    assert (table.series[0].values.shape, table.series[0].name, table.targets) == ((6, 1), "", ("target 0",))
    table = series_of_frame(np.arange(6).reshape(3, 2), SeriesColumns(targets=("x", "y")))
    assert (table.series[0].values.tolist(), table.targets) == ([[0, 1], [2, 3], [4, 5]], ("x", "y"))
    table = series_of_frame([np.arange(3), [np.nan, 5.0, np.nan, 7.0]])
    assert [series.name for series in table.series] == ["0", "1"]
    assert (len(table.series[1]), table.series[1].start, table.frequency) == (3, 1, Frequency())
    assert table.notes == ("1 of 6 times have no value, in 1 of 2 series",)
    assert series_of_frame([1.0, 2.0, 3.0]).series[0].values[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (np.zeros((2, 2, 2)), r"got the shape \(2, 2, 2\)"),
        (np.zeros(0), "got the shape"),
        ([], "got the shape"),
        (5, "got the shape"),
        ("sales.csv", "expected a frame, or arrays of numbers"),
        ([[1.0], ["x"]], "expected a frame, or arrays of numbers"),
        ([1.0, np.inf], "a value is infinite"),
        ([[np.nan, np.nan]], "array 0, row 0, series '0' has no value"),
        ([np.zeros(3), np.zeros((3, 2))], "different numbers of targets: 1, 2"),
        ({"a": [1, 2], "b": [1]}, "the column 'b' of the frame has 1 values; expected 2 as the column 'a'"),
        ({"a": [[1, 2]]}, "the column 'a' of the frame has 2 dimensions"),
        ({}, "the frame has no rows"),
    ],
)
def test_bad_arrays(arrays: Any, message: str):
    with pytest.raises(DataError, match=message):
        series_of_frame(arrays)


# ---------------------------------------------------------------------------------------- forecasts

ROWS = ForecastRows(
    ["a", "a", "b"],
    np.array(["2024-02-01", "2024-02-02", "2024-02-01"], "datetime64[s]"),
    {"mean": np.array([1.0, 2.0, 3.0]), "q90": np.array([2.0, 3.0, 4.0])},
)


@pytest.mark.parametrize("kind", KINDS)
def test_forecasts_are_given_back_as_the_kind_of_frame_that_was_given(kind: str):
    like = KINDS[kind]()
    frame = forecast_frame(ROWS, like, COLUMNS)
    assert type(frame) is type(like)
    assert list(frame if kind == "dict" else frame.columns) == ["shop", "date", "mean", "q90"]
    assert list(frame["shop"]) == ["a", "a", "b"]
    assert list(frame["q90"]) == [2, 3, 4]
    assert [str(time)[:10] for time in frame["date"]] == ["2024-02-01", "2024-02-02", "2024-02-01"]
    read = series_of_frame(frame, SeriesColumns(group=("shop",), targets=("mean",)))
    assert [(series.name, series.values[:, 0].tolist()) for series in read.series] == [
        ("a", [1, 2]),
        ("b", [3]),
    ]


def test_a_polars_frame_of_dates_gets_dates_back():
    assert forecast_frame(ROWS, as_polars(), COLUMNS)["date"].dtype == package("polars").Date


def test_forecasts_of_arrays_are_arrays():
    rows = ForecastRows(["", ""], np.array([5, 6]), {"mean": np.array([1.0, 2.0])})
    frame = forecast_frame(rows, np.zeros(5))
    assert {name: each.tolist() for name, each in frame.items()} == {"time": [5, 6], "mean": [1, 2]}
