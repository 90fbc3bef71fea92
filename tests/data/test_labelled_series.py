"""Labelled series from long tables, frames, arrays and .npz files, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from linnet.data.errors import DataError
from linnet.data.labelled_series import LongColumns, series_of_inputs
from linnet.data.labelled_series_files import read_labelled_series
from linnet.data.labelled_series_sets import (
    LABELLED_SERIES_SETS,
    LoadedSeries,
    WantedSeries,
    load_labelled_series,
)

COLUMNS = LongColumns(group=("id",), answer="kind")
LONG = "id,x,y,kind\na,1,10,up\na,2,20,up\nb,3,,down\nb,4,40,down\nb,5,50,down\n"


def write(folder: Path, text: str, name: str = "long.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_long_table(tmp_path: Path):
    rows = read_labelled_series(write(tmp_path, LONG), COLUMNS)
    one, other = rows.series
    assert (one.name, one.labels) == ("a", ("up", "up"))
    assert np.array_equal(other.values, [[3, np.nan], [4, 40], [5, 50]], equal_nan=True)
    assert rows.channels == ("x", "y")
    assert other.where.endswith("long.csv, line 4, series 'b'")
    assert other.place(2).endswith("line 6")


def test_the_group_and_the_channels_are_found_and_said(tmp_path: Path):
    rows = read_labelled_series(write(tmp_path, LONG), LongColumns(answer="kind"))
    assert rows.columns.group == ("id",)
    assert rows.notes == (
        "the column 'id' tells the series apart (--group)",
        "2 channels: 'x', 'y'",
    )
    text = "bird,x,note,label\nlinnet,1,low,up\nlinnet,2,low,up\n"
    with pytest.raises(DataError, match="name the column that tells the series apart with --group"):
        read_labelled_series(write(tmp_path, text), LongColumns(answer="label"))
    rows = read_labelled_series(write(tmp_path, text), LongColumns(("bird",), answer="label"))
    assert rows.notes == ("1 channel: 'x'; without numbers, and not read: 'note'",)


def test_several_groups_and_rows_of_a_series_that_are_apart(tmp_path: Path):
    text = "who,day,x,kind\na,1,1,up\nb,1,2,up\na,2,3,up\na,1,4,up\n"
    rows = read_labelled_series(write(tmp_path, text), LongColumns(("who", "day"), ("x",), "kind"))
    assert [(each.name, each.values[:, 0].tolist()) for each in rows.series] == [
        ("a/1", [1, 4]),
        ("b/1", [2]),
        ("a/2", [3]),
    ]


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict", "parquet"])
def test_frames_and_parquet(tmp_path: Path, kind: str):
    frame = pandas.DataFrame({"id": ["a", "a", "b"], "x": [1.0, 2.0, np.nan], "y": [1, 2, 3]})
    inputs: Any = {"polars": polars.from_pandas(frame), "dict": frame.to_dict("list")}.get(kind, frame)
    columns = LongColumns(("id",), ("x", "y"))
    if kind == "parquet":
        frame.to_parquet(tmp_path / "x.parquet")
        rows = read_labelled_series(tmp_path / "x.parquet", columns)
    else:
        rows = series_of_inputs(inputs, columns, 2)
    assert np.array_equal(rows.series[1].values, [[np.nan, 3]], equal_nan=True)
    assert [len(each) for each in rows.series] == [2, 1]


def test_a_frame_without_a_group_is_one_series():
    frame = {"x": [1.0, 2.0], "y": [1, 2]}
    (one,) = series_of_inputs(frame, LongColumns(("id",), ("x", "y")), 2).series
    assert (one.name, len(one)) == ("", 2)


def test_times_sort_and_their_distances_are_read(tmp_path: Path):
    text = "id,t,x,kind\na,0.5,1,up\na,0.25,2,up\nb,1,3,up\n"
    rows = read_labelled_series(write(tmp_path, text), LongColumns(("id",), ("x",), "kind", time="t"))
    assert rows.series[0].values[:, 0].tolist() == [2, 1]
    assert rows.series[0].times is not None
    assert rows.series[0].times.tolist() == [0.25, 0.5]
    assert rows.notes[-1] == "the rows of 1 series were not in the order of their times; they are sorted"
    text = "id,t,x,kind\na,2024-01-01 00:00,1,up\na,2024-01-01 00:02,2,up\n"
    rows = read_labelled_series(write(tmp_path, text), LongColumns(("id",), ("x",), "kind", time="t"))
    assert rows.series[0].times is not None
    assert np.diff(rows.series[0].times).tolist() == [120]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (
            "id,x,kind\na,1,up\na,no,up\n",
            COLUMNS._replace(channels=("x",)),
            r"line 3: the column 'x' is 'no'",
        ),
        ("id,x,kind\na,1,up\na,inf,up\n", COLUMNS, r"line 3: the column 'x' is infinite"),
        ("id,x,kind\na,1,up\nb,,up\nb,NA,up\n", COLUMNS, r"line 3, series 'b' has no value"),
        ("id,x,kind\na,1,up\n,1,up\n", COLUMNS, r"line 3: the group 'id' is ''"),
        ("id,x,kind\na,1,up\n", COLUMNS._replace(answer="sort"), r"has no column 'sort'.*--label"),
        ("id,x,kind\na,1,up\n", COLUMNS._replace(channels=("z",)), r"has no column 'z'.*--channels"),
        ("id,kind\na,up\n", COLUMNS, r"has no column of numbers besides 'id', 'kind'"),
        ("id,x,kind\na,1,up\n", COLUMNS._replace(channels=("x", "id")), r"'id' is given to --group and to"),
        ("id,t,x,kind\na,1,1,up\na,1,2,up\n", COLUMNS._replace(time="t"), r"line 3: the time 1 was already"),
        ("id,t,x,kind\na,noon,1,up\n", COLUMNS._replace(time="t"), r"line 2: the time is 'noon'"),
        ("id,x,y,kind\na,1,1,up\na,no,1,up\na,1,1,up\n", COLUMNS, r"line 3: the column 'x' is 'no'"),
        ("id,x,kind\na,1,up\na,-1e31,up\n", COLUMNS, r"line 3, series 'a' has a value of -1e\+31"),
        ("id,t,x,kind\na,0.5,1,u\na,soon,1,u\na,1,1,u\n", COLUMNS._replace(time="t"), r"line 3.*'soon'"),
        ("id,t,x,kind\na,0.5,1,up\na,,1,up\n", COLUMNS._replace(time="t"), r"line 3: the time is missing"),
        ("id,t,x,kind\na,1,1,up\na,,1,up\n", COLUMNS._replace(time="t"), r"line 3: the time is missing"),
        ("1,2,3\n4,5,6\n", COLUMNS, r"line 1 has values"),
    ],
)
def test_bad_tables_are_refused_with_the_line(tmp_path: Path, text: str, columns: LongColumns, message: str):
    with pytest.raises(DataError, match=message):
        read_labelled_series(write(tmp_path, text), columns)


# --------------------------------------------------------------------------------------------- arrays


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


def test_arrays_of_equal_length(tmp_path: Path):
    x = np.arange(12.0).reshape(2, 3, 2)
    x[1, 1:] = np.nan  # padding: the last steps have no value
    rows = read_labelled_series(saved(tmp_path, x=x, y=np.array([1.0, 2.0])), LongColumns(answer="label"))
    assert [each.values.tolist() for each in rows.series] == [[[0, 1], [2, 3], [4, 5]], [[6, 7]]]
    assert [each.label for each in rows.series] == ["1", "2"]
    rows = read_labelled_series(saved(tmp_path, x=x[..., 0], names=["a", "b"], channels=["level"]))
    assert rows.channels == ("level",)
    assert [each.name for each in rows.series] == ["a", "b"]


def test_padded_arrays_with_lengths(tmp_path: Path):
    x = np.arange(6.0).reshape(2, 3)
    rows = read_labelled_series(saved(tmp_path, x=x, lengths=[3, 2], y=[1, 2]), LongColumns(answer="label"))
    assert [each.values.tolist() for each in rows.series] == [[[0], [1], [2]], [[3], [4]]]
    rows = read_labelled_series(saved(tmp_path, x=x, lengths=[1, 1], y=[1, 2]), LongColumns(answer="label"))
    assert [each.values.tolist() for each in rows.series] == [[[0, 1, 2]], [[3, 4, 5]]]


def test_arrays_one_after_another_with_times_and_answers_of_steps(tmp_path: Path):
    path = saved(
        tmp_path,
        x=np.arange(5.0),
        lengths=np.array([2, 3]),
        kind=np.array(["up", "down", "up", "up", "up"]),
        t=np.array([0, 0.5, 0, 1, 3]),
    )
    rows = read_labelled_series(path, LongColumns(answer="kind", time="t"))
    one, other = rows.series
    assert one.labels == ("up", "down")
    assert other.times is not None
    assert other.times.tolist() == [0, 1, 3]
    padded = saved(tmp_path, x=np.ones((2, 4, 1)), lengths=np.array([4, 1]), y=["a", "b"])
    rows = read_labelled_series(padded, LongColumns(answer="label"))
    assert [len(each) for each in rows.series] == [4, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": [1.0]}, r"has no array 'x'; it has 'z'"),
        ({"x": np.ones((2, 3))}, r"has no array 'y'.*--label"),
        ({"x": np.array([["a"]]), "y": [1]}, r"expected numbers"),
        (
            {"x": np.ones(4), "y": [1]},
            r"x has one dimension; expected \[series, steps\], or an array lengths",
        ),
        ({"x": np.ones(4), "y": [1], "lengths": [0, 4]}, r"lengths\[0\] is 0"),
        ({"x": np.ones(4), "y": [1], "lengths": [3]}, r"the sum of lengths is 3 and x has 4 steps"),
        ({"x": np.ones((2, 3, 1)), "y": [1, 2], "lengths": [4, 1]}, r"expected one of at most 3"),
        ({"x": np.ones((2, 3)), "y": [1, 2, 3]}, r"y has the shape \(3,\) for 2 series"),
        ({"x": np.array([[1, np.inf]]), "y": [1]}, r"x\[0, 1\] is infinite"),
        ({"x": np.array([[np.nan]]), "y": [1]}, r"series '0' has no value"),
        ({"x": np.array([None, 1], dtype=object), "y": [1]}, r"one after another"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message):
        read_labelled_series(saved(tmp_path, **arrays), LongColumns(answer="label"))


def test_inputs_of_predict_are_checked():
    columns = LongColumns(channels=("x", "y"))
    assert len(series_of_inputs(np.ones((3, 4, 2)), columns, 2).series) == 3
    assert len(series_of_inputs([np.ones((4, 2)), np.ones((1, 2))], columns, 2).series) == 2
    (one,) = series_of_inputs(np.ones(5), LongColumns(), 1).series
    assert one.values.shape == (5, 1)
    with pytest.raises(DataError, match=r"this model reads \[steps, 2\]"):
        series_of_inputs(np.ones((4, 3)), columns, 2)
    with pytest.raises(DataError, match="array 1, step 2: a value is infinite"):
        series_of_inputs([np.ones((1, 2)), np.array([[1, 1], [1, np.inf]])], columns, 2)
    timed = columns._replace(time="t")
    (one,) = series_of_inputs(np.array([[1, 1, 0.0], [2, 2, 3.0]]), timed, 2).series
    assert one.times is not None
    assert one.times.tolist() == [0, 3]
    with pytest.raises(DataError, match="expected times that rise"):
        series_of_inputs(np.array([[1, 1, 3.0], [2, 2, 3.0]]), timed, 2)


# --------------------------------------------------------------------------------------------- splits


def table(folder: Path, name: str, series: list[tuple[str, str]]) -> Path:
    rows = [f"{number},{number % 7},{a}\n{number},{number % 5},{b}\n" for number, (a, b) in enumerate(series)]
    return write(folder, "id,x,kind\n" + "".join(rows), name)


def loaded(path: Path, **options: Any) -> LoadedSeries:
    return load_labelled_series("own", WantedSeries(path=path, columns=COLUMNS, **options))


def test_the_splits_are_stratified_and_seeded(tmp_path: Path):
    path = table(tmp_path, "a.csv", [("up", "up")] * 30 + [("down", "down")] * 20)
    splits, _, steps = loaded(path)
    assert [len(part) for part in splits] == [40, 5, 5]
    assert [sum(each.label == "up" for each in part) for part in splits] == [24, 3, 3]
    assert not steps
    assert [each.name for each in loaded(path).splits.test] == [each.name for each in splits.test]
    assert [each.name for each in loaded(path, split_seed=2).splits.test] != [s.name for s in splits.test]
    other = loaded(path, test_path=path)
    assert [len(part) for part in other.splits] == [45, 5, 50]


def test_answers_of_steps_are_found(tmp_path: Path):
    path = table(tmp_path, "a.csv", [("up", "up")] * 30 + [("up", "down")] * 20)
    splits, _, steps = loaded(path)
    assert steps
    assert all(each.labels and not each.label for part in splits for each in part)
    with pytest.raises(DataError, match=r"line 63: the label of series '30' changes from 'up' to 'down'"):
        loaded(path, answers="sequence")
    same = table(tmp_path, "b.csv", [("up", "up")] * 30)
    assert loaded(same, answers="steps").steps
    # A step may leave the label out, and so may a series of steps, but not all of it.
    part = table(tmp_path, "c.csv", [("", "up")] * 30)
    assert loaded(part).splits.train[0].label == "up"
    with pytest.raises(DataError, match=r"line 2, series '0' has no label"):
        loaded(table(tmp_path, "d.csv", [("", "")] + [("up", "up")] * 9))


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path):
    one = table(tmp_path, "a.csv", [("up", "up")] * 30)
    plain = LongColumns(answer="label")
    write(tmp_path, "@classLabel true up down\n@data\n1,2:up\n", "a.ts")
    write(tmp_path, "@classLabel true up down\n@data\n1,2:3,4:up\n", "b.ts")
    write(tmp_path, "id,y,kind\na,1,up\n", "b.csv")
    with pytest.raises(DataError, match=r"b\.ts has 2 channels, and the training file has 1"):
        load_labelled_series(
            "own", WantedSeries(path=tmp_path / "a.ts", test_path=tmp_path / "b.ts", columns=plain)
        )
    with pytest.raises(DataError, match=r"b\.csv has no column 'x'"):
        loaded(one, test_path=tmp_path / "b.csv")
    with pytest.raises(DataError, match="leave out --value"):
        load_labelled_series("own", WantedSeries(path=tmp_path / "a.ts", columns=plain, value=True))
    write(tmp_path, "@targetLabel true\n@data\n1,2:1.5\n", "c.ts")
    with pytest.raises(DataError, match="give --value"):
        load_labelled_series("own", WantedSeries(path=tmp_path / "c.ts", columns=plain))
    with pytest.raises(DataError, match=r"a\.ts has no columns: --group is for tables"):
        load_labelled_series("own", WantedSeries(path=tmp_path / "a.ts", columns=LongColumns(("id",))))
    with pytest.raises(DataError, match="fold must be from 0 to 9"):
        loaded(one, fold=10)


@pytest.mark.parametrize("name", [name for name in LABELLED_SERIES_SETS if name != "own"])
def test_the_sets_of_the_package_are_read(name: str):
    pytest.importorskip("sktime")
    splits, rows, steps = load_labelled_series(name, WantedSeries(value=LABELLED_SERIES_SETS[name].value))
    assert not steps
    assert all(splits)
    assert len(rows.channels) == {"japanese_vowels": 12, "basic_motions": 6}.get(name, 1)
    if name == "japanese_vowels":
        assert [len(part) for part in splits] == [243, 27, 370]
        lengths = [len(each) for part in splits for each in part]
        assert (min(lengths), max(lengths)) == (7, 29)
