"""Files of the UEA archive: what is read, and an error with file and line for each way to be malformed."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from linnet.data.errors import DataError
from linnet.data.ts_file import found_value, read_ts

HEADER = (
    "# made for a test\n@problemName Small\n@timeStamps false\n@univariate false\n@classLabel true up down\n"
)
FILE = HEADER + "@data\n1,2,3:4,5,?:up\n\n% a comment\n7,8:NaN,1:down\n"


def write(folder: Path, text: str, name: str = "small.ts") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_series_of_different_lengths_with_missing_values(tmp_path: Path):
    rows = read_ts(write(tmp_path, FILE))
    one, other = rows.series
    assert np.array_equal(one.values, [[1, 4], [2, 5], [3, np.nan]], equal_nan=True)
    assert np.array_equal(other.values, [[7, np.nan], [8, 1]], equal_nan=True)
    assert (one.label, other.label) == ("up", "down")
    assert rows.channels == ("channel 1", "channel 2")
    assert rows.value is False
    assert other.where.endswith("small.ts, line 10, series '2'")


def test_numbers_and_files_without_answers(tmp_path: Path):
    path = write(tmp_path, "@univariate true\n@targetLabel true\n@data\n1,2:0.5\n3:-4e2\n")
    rows = read_ts(path)
    assert rows.value is True
    assert found_value(path)
    assert [each.label for each in rows.series] == ["0.5", "-4e2"]
    assert rows.channels == ("value",)
    rows = read_ts(write(tmp_path, "@classLabel false\n@data\n1,2:3,4\n"))
    assert rows.series[0].values.tolist() == [[1, 3], [2, 4]]
    assert rows.series[0].label == ""
    assert not found_value(tmp_path / "no.ts")


def test_compressed_files(tmp_path: Path):
    path = tmp_path / "small.ts.gz"
    path.write_bytes(gzip.compress(FILE.encode()))
    assert len(read_ts(path).series) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@classLabel true a b\n1,2:a\n", r"line 2 has values before the line @data"),
        ("@classLabel true a b\n", r"has no line @data"),
        (HEADER + "@data\n", r"has no series after @data"),
        ("@clasLabel true a b\n@data\n", r"line 1 has the tag @clasLabel; did you mean"),
        ("@classLabel yes a b\n@data\n", r"line 1: @classLabel is 'yes'; expected true or false"),
        ("@classLabel true\n@data\n", r"line 1: @classLabel true has no classes"),
        ("@timeStamps true\n@data\n", r"line 1: series with a time for each value .* --time"),
        ("@dimensions two\n@data\n", r"line 1: @dimensions is 'two'; expected a positive integer"),
        (FILE + "1,2:3,4\n", r"line 11 ends with a list of numbers after the last colon; expected the class"),
        (FILE + "1,2:3,4:\n", r"line 11 ends with nothing after the last colon"),
        (FILE + "1,2:3,4:left\n", r"line 11 has the class 'left'; @classLabel has 'up', 'down'"),
        (FILE + "1,2:up\n", r"line 11 has 1 channels.*expected 2"),
        (FILE + "1,2:3,4,5:up\n", r"line 11: channel 2 has 3 values and channel 1 has 2"),
        (FILE + "1,2::up\n", r"line 11: channel 2 is empty"),
        (FILE + "1,two:3,4:up\n", r"line 11: value 2 of channel 1 is 'two'; expected a number"),
        (FILE + "1,2:3,inf:up\n", r"line 11: value 2 of channel 2 is infinite"),
        (FILE + "?,?:?,?:up\n", r"line 11, series '3' has no value"),
        (FILE + "@data\n", r"line 11 has the tag @data after @data"),
        (
            "@univariate true\n@equalLength true\n@seriesLength 3\n@data\n1,2,3\n4,5\n",
            r"line 6 has 2 steps, and with @equalLength true each series has 3",
        ),
        ("@univariate true\n@classLabel true a\n@data\n1,2:3,4:a\n", r"line 4 has 2 channels.*expected 1"),
    ],
)
def test_malformed_files_are_refused_with_file_and_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(
        DataError, match=rf"small\.ts,? .*{message}" if "line" not in message[:4] else message
    ):
        read_ts(write(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(DataError, match="there is no file"):
        read_ts(tmp_path / "no.ts")
