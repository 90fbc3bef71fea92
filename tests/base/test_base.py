"""The shared room: suggestions, atomic files, the cache folder, tables, checks of options."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from linnet.base.files import cache_folder, write_atomically
from linnet.base.options import check_number, check_rate, check_share, check_size, choose
from linnet.base.suggest import did_you_mean, no_such
from linnet.base.tables import markdown, text_table

# -------------------------------------------------------------------------------------- suggestions


def test_the_closest_name_is_suggested():
    assert did_you_mean("sur", ["lrn", "sru"]) == "; did you mean 'sru'?"
    assert did_you_mean("LSTM", ["lstm"]) == "; did you mean 'lstm'?"
    assert did_you_mean("xyz", ["sru"]) == ""


def test_an_unknown_name_is_answered_with_all_known_names():
    assert no_such("unit", "sur", ["sru", "lrn"]) == "no unit 'sur'; did you mean 'sru'? choose from sru, lrn"
    assert no_such("unit", 3, ["sru"]) == "no unit 3; choose from sru"


# -------------------------------------------------------------------------------------------- files


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_not_written_through_a_link(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / f".a.txt.{os.getpid()}.{threading.get_ident()}").symlink_to(victim)
    write_atomically(tmp_path / "a.txt", b"new")
    assert (victim.read_bytes(), (tmp_path / "a.txt").read_bytes()) == (b"precious", b"new")


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
@pytest.mark.parametrize(("asked", "made"), [(0o666, 0o664), (0o600, 0o600)])
def test_a_file_has_the_mode_that_is_asked_for(tmp_path: Path, asked: int, made: int):
    old = os.umask(0o002)
    try:
        write_atomically(tmp_path / "folder" / "file", b"", asked)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "folder" / "file").stat().st_mode) == made


def test_the_cache_is_where_the_environment_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LINNET_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("LINNET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "linnet"


# ------------------------------------------------------------------------------------------- tables


def test_columns_are_aligned():
    assert text_table([["unit", "n"], ["a", "100"]]) == "unit    n\n   a  100"
    assert text_table([["unit", "n"], ["a", "100"]], left=[0]) == "unit    n\na     100"
    assert text_table([["a", ""], ["b", "long"]], left=range(2)) == "a\nb  long"
    assert markdown(["unit", "n"], [["a", "1"]]) == "| unit | n |\n| --- | --- |\n| a | 1 |"


# ------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: choose("norm", "rsm", ["rms", None]), "norm must be one of 'rms', None; got 'rsm'"),
        (lambda: check_size("size", True), "size must be an int; got True"),
        (lambda: check_size("size", 0), "size must be at least 1; got 0"),
        (lambda: check_size("size", 9, most=8), "size must be at most 8; got 9"),
        (lambda: check_number("scale", float("nan"), 0), "scale must be finite and at least 0; got nan"),
        (lambda: check_share("alpha", 1.5), r"alpha must be in \[0, 1\]; got 1.5"),
        (lambda: check_rate("dropout", 1), r"dropout must be in \[0, 1\); got 1"),
    ],
)
def test_a_check_says_what_was_expected_and_what_came(check, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        check()
