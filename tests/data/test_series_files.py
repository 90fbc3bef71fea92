"""Series from files: layouts, grids, missing values, covariates, and the message of every bad input."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from helpers import data_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data.columnar import delimited
from linnet.data.errors import DataError, MissingDataError
from linnet.data.files import File, find
from linnet.data.frequency import Frequency
from linnet.data.series import SeriesColumns, SeriesTable, read_series, series_of_table

LONG = SeriesColumns(time="date", targets=("sales",), group=("shop",))

GIVEN = "layout long: --target is given"


def read(folder: Path, text: str, columns: SeriesColumns = LONG, name: str = "sales.csv") -> SeriesTable:
    path = folder / name
    path.write_bytes(text.encode())
    return read_series(path, columns)


def error(folder: Path, text: str, columns: SeriesColumns = LONG, name: str = "sales.csv") -> str:
    with pytest.raises(DataError) as caught:
        read(folder, text, columns, name)
    return str(caught.value).replace(f"{folder}/", "")


def lists(table: SeriesTable) -> dict[str, list[float]]:
    return {series.name: series.values[:, 0].tolist() for series in table.series}


def plain(**options: object) -> SeriesColumns:
    return SeriesColumns(**{"time": "date", "targets": ("sales",), **options})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- layouts


def test_long_with_groups_in_the_order_of_their_first_rows(tmp_path: Path):
    text = "date,shop,sales\n2024-01-02,b,1\n2024-01-01,a,2\n2024-01-03,b,3\n2024-01-02,a,4\n"
    table = read(tmp_path, text)
    assert lists(table) == {"b": [1, 3], "a": [2, 4]}
    assert table.frequency == Frequency(1, "D")
    assert [str(series.start) for series in table.series] == ["2024-01-02T00:00:00", "2024-01-01T00:00:00"]
    assert [series.where for series in table.series] == [f"{tmp_path}/sales.csv, line {n}" for n in (2, 3)]
    assert (table.targets, table.known, table.observed, table.notes) == (("sales",), (), (), (GIVEN,))


def test_several_columns_name_a_series(tmp_path: Path):
    text = "date,shop,item,sales\n" + "".join(f"2024-01-0{d},a,{i},{d + i}\n" for i in (1, 2) for d in (1, 2))
    assert lists(read(tmp_path, text, LONG._replace(group=("shop", "item")))) == {
        "a/1": [2, 3],
        "a/2": [3, 4],
    }


def test_several_targets_are_channels_of_one_series(tmp_path: Path):
    table = read(tmp_path, "date,a,b\n2024-01-01,1,2\n2024-01-02,3,\n", plain(targets=("b", "a")))
    np.testing.assert_array_equal(table.series[0].values, [[2, 1], [np.nan, 3]])
    assert (table.targets, table.series[0].name) == (("b", "a"), "")


def test_columns_are_series_with_their_own_starts_and_ends(tmp_path: Path):
    text = "date,a,b\n2024-01-01,1,\n2024-01-02,2,5\n2024-01-03,,6\n"
    table = read(tmp_path, text, SeriesColumns())
    assert lists(table) == {"a": [1, 2], "b": [5, 6]}
    assert [str(series.start)[:10] for series in table.series] == ["2024-01-01", "2024-01-02"]
    assert table.series[1].where.endswith("line 3")
    assert table.columns.layout == "columns"
    assert table.columns.time == "date"


def test_rows_are_series_that_end_in_empty_fields(tmp_path: Path):
    table = read(tmp_path, '"V1","V2","V3","V4"\n"H1","1","2","3"\n"H2","4","5",""\n', SeriesColumns())
    assert lists(table) == {"H1": [1, 2, 3], "H2": [4, 5]}
    assert table.frequency == Frequency(1, "step")
    assert [series.start for series in table.series] == [0, 0]
    assert table.series[1].where.endswith("line 3")


def test_the_columns_that_are_found_stay_with_the_table(tmp_path: Path):
    found = read(tmp_path, "shop,2024-01,2024-02\na,1,2\nb,3,4\n", SeriesColumns())
    assert found.columns.group == ("shop",)
    assert read(tmp_path, ",2024-01,2024-02\na,1,2\nb,3,4\n", SeriesColumns()).columns.group == ()
    found = read(
        tmp_path, "date,shop,sales\n2024-01-01,a,1\n2024-01-02,a,2\n", SeriesColumns(group=("shop",))
    )
    assert found.columns.targets == ("sales",)


def test_rows_may_have_their_times_in_the_header(tmp_path: Path):
    table = read(tmp_path, "shop,2024-01,2024-02,2024-03\na,1,2,3\nb,,5,6\n", SeriesColumns())
    assert lists(table) == {"a": [1, 2, 3], "b": [5, 6]}
    assert table.frequency == Frequency(1, "M")
    assert str(table.series[1].start) == "2024-02-01T00:00:00"


@pytest.mark.parametrize(
    ("text", "columns", "layout", "time"),
    [
        ("date,sales\n2024-01-01,1\n2024-01-02,2\n", SeriesColumns(targets=("sales",)), "long", "date"),
        ("shop,date,sales\na,2024-01-01,1\na,2024-01-02,2\n", SeriesColumns(group=("shop",)), "long", "date"),
        ("date,sales\n2024-01-01,1\n2024-01-02,2\n", SeriesColumns(), "columns", "date"),
        ("year,sales\n1990,1\n1991,2\n", SeriesColumns(), "columns", "year"),
        ("sales\n1\n2\n", SeriesColumns(), "columns", ""),
        ("a,b\n1,7\n2,8\n", SeriesColumns(), "columns", ""),
        ("a,b\n2000,7\n1990,8\n", SeriesColumns(), "columns", ""),
        (",b\n0,7\n1,8\n", SeriesColumns(), "columns", "index"),
        ("name,1,2\na,7,8\nb,8,9\n", SeriesColumns(), "rows", ""),
        ("t,a\n5,7\n6,8\n", SeriesColumns(time="t"), "columns", "t"),
    ],
)
def test_the_layout_is_found(text: str, columns: SeriesColumns, layout: str, time: str, tmp_path: Path):
    table = read(tmp_path, text, columns)
    assert (table.columns.layout, table.columns.time) == (layout, time)
    assert table.notes[0].startswith(f"layout {layout}: ")


def test_a_first_column_of_rising_integers_without_a_name_has_the_times(tmp_path: Path):
    """pandas writes its index like this."""
    table = read(tmp_path, ",b\n3,7\n4,8\n", SeriesColumns())
    assert (lists(table), table.series[0].start) == ({"b": [7, 8]}, 3)


def test_the_only_column_of_numbers_is_the_target(tmp_path: Path):
    text = "shop,day,count,why\na,2024-01-01,1,x\na,2024-01-02,2,y\n"
    table = read(tmp_path, text, SeriesColumns(group=("shop",)))
    assert (table.targets, table.columns.time) == (("count",), "day")


def test_the_names_of_pandas_and_a_column_of_steps(tmp_path: Path):
    found = read(tmp_path, ",0,1\n0,5,7\n1,6,8\n", SeriesColumns())
    assert lists(found) == {"0": [5, 6], "1": [7, 8]}
    found = read(tmp_path, "time,sales\n10,5\n12,6\n14,7\n", SeriesColumns())
    assert lists(found) == {"sales": [5, 6, 7]}
    assert (str(found.frequency), found.series[0].start) == ("2step", 10)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.xz", ".tsv", ".tsv.xz"])
def test_formats(ending: str, tmp_path: Path):
    text = "date,sales\n2024-01-01,1.5\n2024-01-02,2\n".replace(
        ",", "\t" if "tsv" in ending else ","
    ).encode()
    packed = {"gz": gzip.compress, "xz": lzma.compress}.get(ending.rpartition(".")[2], bytes)(text)
    path = tmp_path / f"sales{ending}"
    path.write_bytes(packed)
    assert lists(read_series(path, plain())) == {"": [1.5, 2]}


def test_semicolons_windows_line_ends_quotes_and_empty_lines(tmp_path: Path):
    table = read(tmp_path, '"date";"sales"\r\n2024-01-01;"1"\r\n\r\n2024-01-02;2\r\n', plain())
    assert lists(table) == {"": [1, 2]}


# --------------------------------------------------------------------------------------- round trips

FREQUENCIES = [
    Frequency(1, "h"),
    Frequency(15, "min"),
    Frequency(1, "D"),
    Frequency(1, "W"),
    Frequency(1, "M"),
    Frequency(1, "M", ends=True),
    Frequency(1, "Q", ends=True),
    Frequency(2, "Y"),
    Frequency(3, "step"),
]
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def panels(draw: st.DrawFn) -> tuple[Frequency, list[np.ndarray], list[int]]:
    """A frequency, the values of some series, and the step at which each starts."""
    frequency = draw(st.sampled_from(FREQUENCIES))
    inner = st.lists(st.one_of(numbers, st.just(np.nan)), min_size=0, max_size=6)
    values = [np.array([draw(numbers), *draw(inner), draw(numbers)]) for _ in range(draw(st.integers(1, 4)))]
    return frequency, values, [draw(st.integers(0, 3)) for _ in values]


def first_time(frequency: Frequency) -> object:
    return 7 if frequency.unit == "step" else np.datetime64("2023-01-31" if frequency.ends else "2023-01-02")


def table_text(header: list[str], rows: list[list[object]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue()


def field(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))


def check_panel(table: SeriesTable, frequency: Frequency, values: list[np.ndarray], starts: list[int]):
    assert table.frequency == frequency
    times = frequency.times(first_time(frequency), 20)
    for series, expected, start in zip(table.series, values, starts, strict=True):
        np.testing.assert_array_equal(series.values[:, 0], expected)
        assert series.start == times[start]


@settings(deadline=None, max_examples=60)
@given(panels(), st.randoms(use_true_random=False))
def test_long_round_trip(panel: tuple[Frequency, list[np.ndarray], list[int]], draw: object):
    """Rows may be in any order, and rows without a value may be left out."""
    frequency, values, starts = panel
    times = frequency.times(first_time(frequency), 20)
    rows = [
        [times[start + step], name, field(value)]
        for name, (series, start) in enumerate(zip(values, starts, strict=True))
        for step, value in enumerate(series)
        if not np.isnan(value) or draw.random() < 0.5  # type: ignore[attr-defined]
    ]
    draw.shuffle(rows)  # type: ignore[attr-defined]
    order = list(dict.fromkeys(row[1] for row in rows))
    columns = LONG._replace(frequency=str(frequency))
    table = series_of_table(delimited("x", table_text(["date", "shop", "sales"], rows), ","), columns)
    assert [series.name for series in table.series] == [str(name) for name in order]
    check_panel(table, frequency, [values[name] for name in order], [starts[name] for name in order])


@settings(deadline=None, max_examples=60)
@given(panels())
def test_columns_and_rows_round_trip(panel: tuple[Frequency, list[np.ndarray], list[int]]):
    frequency, values, starts = panel
    full = np.full((len(values), 12), np.nan)
    for row, series, start in zip(full, values, starts, strict=True):
        row[start : start + len(series)] = series
    times = [str(time) for time in frequency.times(first_time(frequency), 12)]
    names = [f"s{number}" for number in range(len(values))]
    down = [[time, *map(field, column)] for time, column in zip(times, full.T, strict=True)]
    across = [[name, *map(field, row)] for name, row in zip(names, full, strict=True)]
    by_column = series_of_table(
        delimited("x", table_text(["date", *names], down), ","), SeriesColumns(time="date")
    )
    check_panel(by_column, frequency, values, starts)
    if frequency.unit != "step":
        by_row = series_of_table(delimited("x", table_text(["name", *times], across), ","), SeriesColumns())
        check_panel(by_row, frequency, values, starts)


# ---------------------------------------------------------------------------- gaps, order, covariates


def test_gaps_and_missing_values_are_nan_and_counted(tmp_path: Path):
    text = "date,sales\n2024-01-01,1\n2024-01-02,NA\n2024-01-03,nan\n2024-01-04,\n2024-01-06,2\n"
    table = read(tmp_path, text, plain())
    np.testing.assert_array_equal(table.series[0].values[:, 0], [1, np.nan, np.nan, np.nan, np.nan, 2])
    assert "4 of 6 times have no value, in 1 of 1 series" in table.notes


def test_unsorted_rows_are_sorted_and_counted(tmp_path: Path):
    table = read(tmp_path, "date,sales\n2024-01-03,3\n2024-01-02,2\n2024-01-04,4\n", plain())
    assert lists(table) == {"": [2, 3, 4]}
    assert table.notes[-1] == "2 rows were not in the order of their times and were sorted"


def test_mixed_groups_are_not_unsorted(tmp_path: Path):
    text = "date,shop,sales\n2024-01-02,a,1\n2024-01-01,b,2\n2024-01-03,a,3\n2024-01-02,b,4\n"
    assert read(tmp_path, text).notes == (GIVEN,)


def test_known_covariates_go_on_and_observed_ones_end_with_the_values(tmp_path: Path):
    rows = ["2023-12-31,,,1", "2024-01-01,1,5,", "2024-01-02,2,6,8", "2024-01-03,,7,9", "2024-01-04,,True,"]
    text = "\n".join(["date,sales,price,rain", *rows])
    series = read(tmp_path, text, plain(known=("price",), observed=("rain",))).series[0]
    assert series.values.tolist() == [[1], [2]]
    assert series.known.tolist() == [[5], [6], [7], [1]]
    np.testing.assert_array_equal(series.observed, [[np.nan], [8]])
    assert series.future == 2


def test_rows_without_values_at_both_ends_are_left_out(tmp_path: Path):
    text = "date,sales\n2024-01-01,\n2024-01-02,2\n2024-01-03,3\n2024-01-04,\n"
    series = read(tmp_path, text, plain()).series[0]
    assert (series.values.tolist(), str(series.start)[:10]) == ([[2], [3]], "2024-01-02")
    assert (len(series.known), series.where[-6:]) == (2, "line 3")


def test_a_constant_series_is_noted(tmp_path: Path):
    table = read(tmp_path, "date,a,b\n2024-01-01,1,5\n2024-01-02,1,6\n", SeriesColumns())
    assert table.notes[-1] == "1 of 2 series always have the same value: 'a'"


def test_without_times_rows_are_steps_of_their_series(tmp_path: Path):
    table = read(tmp_path, "shop,sales\nb,1\na,2\nb,3\na,4\nb,5\n", SeriesColumns(group=("shop",)))
    assert lists(table) == {"b": [1, 3, 5], "a": [2, 4]}
    assert "no column has times; rows are one step apart" in table.notes


def test_without_times_one_value_is_enough(tmp_path: Path):
    for text in ("sales\n5\n", "id,V2\na,5\n"):
        table = read(tmp_path, text, SeriesColumns())
        assert (table.series[0].values.tolist(), table.frequency) == ([[5]], Frequency(1, "step"))


def test_a_given_frequency_wins(tmp_path: Path):
    text = "date,sales\n2024-01-01,1\n2024-01-03,2\n2024-01-05,3\n"
    assert len(read(tmp_path, text, plain()).series[0]) == 3
    table = read(tmp_path, text, plain(frequency="D"))
    assert (len(table.series[0]), table.frequency) == (5, Frequency(1, "D"))


# ---------------------------------------------------------------------------------------- bad input

BAD = [
    # times
    (
        "date,sales\n2024-01-01,1\nsoon,2\n",
        plain(),
        "sales.csv, line 3: the time is 'soon'; expected a time like",
    ),
    ("date,sales\nsoon,2\n", plain(), "line 2: the time is 'soon'; expected one of 2024-01-31"),
    ("date,sales\n2024-02-30,2\n", plain(), "line 2: the time is '2024-02-30'; there is no such day or hour"),
    ("date,sales\n,2\n", plain(), "line 2: the time is ''; expected a time in each row"),
    ("date,sales\nnow,2\n", plain(), "line 2: the time is 'now'"),
    ("date,sales\n2024-01-01T00:00:00.5,2\n", plain(), "a second is the smallest unit"),
    (
        "date,sales\n03/04/2024,1\n04/04/2024,2\n",
        plain(),
        "line 2: the time is '03/04/2024', and the order of",
    ),
    ("date,sales\n13/04/2024,1\n04/14/2024,2\n", plain(), "some have the day first, others the month"),
    (
        "date,sales\n1 Jan,1\n",
        plain(time_format="%d.%m.%Y"),
        "line 2: the time is '1 Jan'; expected the form '%d.%m",
    ),
    (
        "date,shop,sales\n2024-01-01,a,1\n2024-01-02,a,1\n\n2024-01-01,a,2\n",
        LONG,
        "sales.csv, line 5, series 'a': the time 2024-01-01 was already at sales.csv, line 2, series 'a'",
    ),
    (
        "date,sales\n2024-01-01,1\n2024-01-02,1\n2024-01-03,1\n2024-01-03T12:00,1\n",
        plain(),
        "line 5: the time 2024-01-03T12:00:00 is not on the grid: the distance of the times is D, and",
    ),
    ("date,sales\n2024-01-01,1\n", plain(), "no series has two times"),
    ("month,sales\nJan 2024,1\nFeb 2024,2\n", SeriesColumns(), "line 2: the time is 'Jan 2024'; expected"),
    ("s,Date,x\na,31/1/24,1\na,1/2/24,2\n", SeriesColumns(group=("s",)), "line 2: the time is '31/1/24'"),
    (
        "date,sales\n2024-10-27 01:00,1\n2024-10-27 02:00,1\n2024-10-27 02:00,1\n",
        plain(),
        "name them with --group. If a clock was set back, give the times in UTC or with their offset",
    ),
    (
        "date,sales\n2024-01-31,1\n2024-02-29,2\n2024-03-29,3\n2024-04-30,3\n",
        plain(),
        "give another distance with --frequency. If each time is a month, write it as 2024-04",
    ),
    (
        "date,sales\n2024-01-01,1\n2024-01-02,1\n",
        plain(frequency="fortnight"),
        "the frequency is 'fortnight'",
    ),
    ("date,sales\n2024-01-01,1\n2024-01-02,1\n", plain(frequency="step"), "but the times are dates"),
    ("date,sales\n5,1\n6,1\n", plain(frequency="D"), "but the times are integers"),
    (
        "date,sales\n1970-01-01T00:00:00,1\n1970-01-01T00:00:01,1\n2024-01-01T00:00:00,1\n",
        plain(),
        "line 4: there are 1,704,067,198 times without a row before this one, at a distance of s",
    ),
    # numbers
    (
        "date,sales\n2024-01-01,1\n2024-01-02,many\n",
        plain(),
        "line 3: the column 'sales' is 'many'; expected a num",
    ),
    ("date,sales\n2024-01-01,1\n2024-01-02,inf\n", plain(), "line 3: the column 'sales' is infinite"),
    ("date;sales\n2024-01-01;1,5\n2024-01-02;2\n", plain(), "'1,5'; expected a number with a decimal point"),
    ("date,sales\n2024-01-01,1_000\n2024-01-02,1\n", plain(), "the column 'sales' is '1_000'"),
    (
        "date,sales,sky\n2024-01-01,1,dry\n2024-01-02,2,wet\n",
        plain(known=("sky",)),
        "line 2: the column 'sky' is 'dry'; expected a number, or an empty field for a missing value",
    ),
    (
        "date,shop,sales\n2024-01-01,a,1\n2024-01-02,a,1\n2024-01-01,b,\n2024-01-02,b,\n",
        LONG,
        "sales.csv, line 4, series 'b' has no value",
    ),
    (
        "date,shop,sales\n2024-01-01,a,1\n2024-01-02,,1\n",
        LONG,
        "line 3: the group 'shop' is ''; expected a name",
    ),
    (
        "date,a,b,sales\n2024-01-01,x/y,z,1\n2024-01-02,x,y/z,1\n",
        LONG._replace(group=("a", "b")),
        "several series are named 'x/y/z', as the groups 'a', 'b' contain '/'; replace it",
    ),
    # covariates
    (
        "date,sales,price\n2024-01-01,1,5\n2024-01-02,2,\n",
        plain(known=("price",)),
        "line 3, the known covariate 'price' is missing at 2024-01-02, among its values",
    ),
    (
        "date,shop,sales,price\n2024-01-01,a,1,5\n2024-01-02,a,2,5\n2024-01-03,a,,\n",
        LONG._replace(known=("price",)),
        "line 4, series 'a': the known covariate 'price' is missing at 2024-01-03, after its last value",
    ),
    (
        "date,sales,price\n2024-01-01,1,5\n2024-01-02,2,5\n2024-01-04,2,5\n",
        plain(known=("price",)),
        "line 2, the time 2024-01-03, among its values, has no row. Add a row with 'price'",
    ),
    # columns
    ("date,sales\n2024-01-01,1\n", plain(targets=("sale",)), "has no column 'sale'; did you mean 'sales'?"),
    ("date,sales\n2024-01-01,1\n", plain(time="day"), "has no column 'day'"),
    (
        "date,sales,sales\n2024-01-01,1,2\n2024-01-02,1,2\n",
        plain(),
        "has the column 'sales' 2 times (columns 2, 3)",
    ),
    ("date,sales\n2024-01-01,1\n", plain(known=("sales",)), "'sales' is given to --target and to --known"),
    (
        "date,a,b\n2024-01-01,1,2\n",
        SeriesColumns(time="date", known=("a",), observed=("b",)),
        "--target; no column has numbers",
    ),
    ("date,s,a,b\n2024-01-01,x,1,2\n", SeriesColumns(group=("s",)), "with --target; possible are 'a', 'b'"),
    ("date,sales\n2024-01-01,1\n", plain(layout="wide"), "the layout is 'wide'; expected one of auto, long"),
    ("date,sales\n2024-01-01,1\n", LONG._replace(layout="columns"), "--group needs the layout long"),
    ("date,sales\n2024-01-01,1\n", SeriesColumns(time_format="%Y"), "name the column of times with --time"),
    ("date\n2024-01-01\n2024-01-02\n", SeriesColumns(), "has no column besides the times"),
    ("date,a,\n2024-01-01,1,2\n2024-01-02,1,2\n", SeriesColumns(), "column 3 has no name"),
    ("date,why\n2024-01-01,x\n2024-01-02,y\n", SeriesColumns(), "the column 'why' is 'x'; expected a number"),
    # the form of the table
    ("date,sales\n2024-01-01,1\n\n2024-01-02,1,5\n", plain(), "sales.csv, line 4 has 3 columns; expected 2"),
    ('date,sales\n2024-01-01,"1\n', plain(), "is not a row of a table"),
    ("", plain(), "sales.csv has no rows"),
    ("date,sales\n", plain(), "sales.csv has no rows"),
    ("1,2\n3,4\n", SeriesColumns(), "line 1 has values ('1', '2'); expected the names"),
    ("2024-01-01,1\n2024-01-02,2\n", SeriesColumns(), "line 1 has values ('2024-01-01', '1'); expected"),
    ("H1,605,586\nH2,4,5\n", SeriesColumns(), "line 1 has numbers ('605', '586'); expected a header"),
    ("id,x,y\na,1,2\na,3,4\n", SeriesColumns(), "line 3: the series 'a' was already at sales.csv, line 2"),
    (
        "id,2020-05,2020-06\na,1,2\n",
        SeriesColumns(frequency="s"),
        "sales.csv, column '2020-06': there are 2,678,399 times without a row",
    ),
    (
        "id,2020-05,2020-05\na,1,2\n",
        SeriesColumns(),
        "sales.csv, column '2020-05': the time 2020-05-01 was already",
    ),
    ("id\na\nb\n", SeriesColumns(layout="rows"), "has one column; in the layout rows, a row has a name"),
]


@pytest.mark.parametrize(("text", "columns", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_is_named(text: str, columns: SeriesColumns, message: str, tmp_path: Path):
    assert message in error(tmp_path, text, columns)


def test_lines_after_fields_with_line_breaks(tmp_path: Path):
    text = 'date,note,sales\n2024-01-01,"two\nlines",1\n2024-01-02,x,many\n'
    assert "sales.csv, line 4: the column 'sales' is 'many'" in error(tmp_path, text, plain())


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path):
    with pytest.raises(MissingDataError, match="there is no file"):
        read_series(tmp_path / "none.csv", LONG)
    assert "expected a table: .csv or .tsv" in error(tmp_path, "x", LONG, "sales.xlsx")


# ----------------------------------------------------------------------------------------- real data


@pytest.mark.parametrize(
    ("name", "count", "length", "first"), [("Hourly", 414, 700, 605), ("Weekly", 359, 2179, 1089.2)]
)
def test_m4(name: str, count: int, length: int, first: float):
    file = File(f"{name}-train.csv")
    found = find([file], ["m4"], [data_folder("M4 competition", [[file]], ["m4"])])
    assert found is not None
    table = read_series(found[1])
    assert (len(table.series), table.columns.layout) == (count, "rows")
    assert (len(table.series[0]), table.series[0].values[0, 0]) == (length, first)
    assert not any(np.isnan(series.values).any() for series in table.series)
