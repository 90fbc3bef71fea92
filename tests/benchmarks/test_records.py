"""Recorded files: every line of every csv in benchmarks/ and experiments/ is as a program writes it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks import defaults, race, rows
from benchmarks.records import INTEGER, NUMBER, TEXT, RecordFile, maybe
from experiments import layer_times, results, small_models, times, whole_numbers
from experiments.curves import curve_file
from tools import ahead, follow, microcontroller, targets
from tools.compat import record
from tools.compat.forecasts import measure

ROOT = Path(__file__).parents[2]
FORMS = {
    "benchmarks/compat.csv": record.RECORD,
    "benchmarks/defaults.csv": defaults.RECORD,
    "benchmarks/follow.csv": follow.RECORD,
    "benchmarks/gpu_kernels.csv": ahead.RECORD,
    "benchmarks/microcontroller.csv": microcontroller.RECORD,
    "benchmarks/race.csv": race.RECORD,
    "benchmarks/results.csv": rows.RECORD,
    "benchmarks/targets.csv": targets.RECORD,
    "experiments/forecast_rivals.csv": measure.RECORD,
    "experiments/layer_times.csv": layer_times.RECORD,
    "experiments/results.csv": results.RECORD,
    "experiments/small_models.csv": small_models.RECORD,
    "experiments/times.csv": times.RECORD,
    "experiments/whole_numbers.csv": whole_numbers.RECORD,
}
FILES = sorted(path for folder in ("benchmarks", "experiments") for path in (ROOT / folder).rglob("*.csv"))


def form_of(path: Path) -> RecordFile:
    if path.parent.name == "curves":
        with path.open(encoding="utf-8", newline="") as file:
            return curve_file(next(csv.reader(file)))
    return FORMS[path.relative_to(ROOT).as_posix()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recorded_files_are_as_programs_write_them(path: Path):
    form = form_of(path)
    found = form.read(path)
    assert found
    assert form.content(found) == path.read_bytes()


FORM = RecordFile({"name": TEXT, "count": INTEGER, "value": maybe(NUMBER)}, key=("name",))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", "has other columns than name, count, value"),
        ("name,size\n", "has other columns than name, count, value"),
        ("name,count,name\n", "has other columns than name, count, value"),
        ("name,count,value\na,1,2\nb, c,1,2\n", "line 3 has 4 fields; expected 3"),
        ("name,count,value\na,1\n", "line 2 has 2 fields; expected 3"),
        ("name,count,value\na,one,2\n", "line 2: count is 'one'; expected "),
        ("name,count,value\na,1,nan\n", "line 2: value is 'nan'; expected "),
        ("name,count,value\na,,1\n", "line 2: count is ''; expected "),
        ('name,count,value\n"a"b,1,2\n', "line 2 is not a line of csv"),
        ("name,count,value\na,1,2\na,3,4\n", "has two lines of a; expected one"),
    ],
)
def test_a_file_that_was_edited_is_refused(text: str, answer: str, tmp_path: Path):
    path = tmp_path / "record.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=answer):
        FORM.read(path)


def test_what_is_written_is_read(tmp_path: Path):
    path, lines = tmp_path / "record.csv", [{"name": 'a, "b"\nc', "count": "1", "value": "-1.5e-05"}]
    path.write_bytes(FORM.content(lines))
    assert FORM.read(path) == lines
    with pytest.raises(ValueError, match="a new line: count is 'nan'; expected "):
        FORM.content([{"name": "a", "count": "nan", "value": ""}])
    path.write_text("name,count\na,1\n")
    assert FORM.read(path) == [{"name": "a", "count": "1", "value": ""}]


def test_rows_are_checked_before_anything_is_measured(tmp_path: Path):
    path = tmp_path / "results.csv"
    path.write_text(rows.header() + "one, two\n")
    with pytest.raises(ValueError, match="line 2 has 2 fields"):
        rows.Book(path, 1, print)
