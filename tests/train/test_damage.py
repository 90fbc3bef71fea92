"""Damage to the files of a run: it goes on to the same figures, or it stops and names the file."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import toy  # noqa: F401, makes the kind of task known

import linnet
from linnet import cli
from linnet.runs import checkpoints
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, Stopped
from linnet.runs.records import Row, read_result
from linnet.runs.status import STATUS
from linnet.train import loop
from linnet.train.loop import train

SETTINGS = override(
    RunConfig(task="toy"),
    {
        **{"optimiser": "sgd", "clip": 0.0, "epochs": 3, "lr": 0.5, "log_every": 2, "device": "cpu"},
        **{"checkpoint_steps": 5, "checkpoint_seconds": 0.0},
    },
)
STEPS, REACHED, SAVED, SAVED_BEFORE = 36, 33, 29, 24
TIMES = ("seconds", "spent", "tokens_per_second")


class Killed(BaseException):
    """Not an Exception: nobody may catch it, as nobody catches kill -9."""


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    original = loop.Run.update

    def update(run: loop.Run, group: list) -> None:
        if run.context.here.step == step:
            raise Killed
        original(run, group)

    monkeypatch.setattr(loop.Run, "update", update)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(SETTINGS, folder)
    return folder


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed at step 33, with checkpoints of steps 29 and 24."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        killed_at(patch, REACHED)
        train(SETTINGS, folder)
    steps = [
        json.loads((folder / name / "manifest.json").read_text())["step"] for name in ("last", "last.old")
    ]
    assert steps == [SAVED, SAVED_BEFORE]
    return folder


@pytest.fixture
def run(broken_off: Path, tmp_path: Path) -> Path:
    shutil.copytree(broken_off, tmp_path / "run")
    return tmp_path / "run"


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.jsonl").read_bytes() + (folder / "metrics.csv").read_bytes()


def untimed(result: Row | None) -> Row:
    return {name: value for name, value in (result or {}).items() if name not in TIMES}


# ------------------------------------------------------------------------------------ corruptions


def flip(at: float) -> Callable[[Path], None]:
    """One bit, at this share of the file."""

    def harm(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(at * (len(content) - 1))] ^= 4
        path.write_bytes(content)

    return harm


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def neighbour(path: Path) -> Path:
    """The file that comes after it in its folder, or the first."""
    files = sorted(each for each in path.parent.iterdir() if each.is_file() and each.suffix)
    return files[(files.index(path) + 1) % len(files)]


def swap(path: Path) -> None:
    other = neighbour(path)
    content, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(content)


def link_instead(path: Path, victim: Path) -> None:
    """To a precious file somewhere else, with the same content."""
    victim.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(victim)


def pipe_instead(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


HARMS: dict[str, Callable[[Path], None]] = {
    "a bit at the beginning": flip(0.02),
    "a bit near the end": flip(0.9),
    "cut in half": truncate,
    "empty": empty,
    "missing": Path.unlink,
    "swapped": swap,
    "a pipe": pipe_instead,
}
FILES = [
    *("config.json", "environment.json", "metrics.jsonl", "metrics.csv", "speed.jsonl", "status.json"),
    *("best/manifest.json", "best/model.safetensors"),
    *(f"last/{name}" for name in ("manifest.json", "model.safetensors", "state.pt", "rank-0.pt")),
    *(f"last.old/{name}" for name in ("manifest.json", "model.safetensors", "state.pt", "rank-0.pt")),
]


def updates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The step before each update that is made from here on."""
    original, made = loop.Run.update, []

    def update(run: loop.Run, group: list) -> None:
        made.append(run.context.here.step)
        original(run, group)

    monkeypatch.setattr(loop.Run, "update", update)
    return made


def outcome(folder: Path, whole: Path, names: list[str], said: pytest.LogCaptureFixture) -> str:
    """What came of going on: an error that names the file, or the same figures and no silent repetition."""
    said.clear()
    with pytest.MonkeyPatch.context() as patch:
        made = updates(patch)
        try:
            result = train(SETTINGS, folder)
        except (Stopped, ValueError, OSError) as error:
            assert any(name in str(error) for name in names), error  # noqa: PT017
            return "stopped"
    assert untimed(result) == untimed(read_result(whole))
    assert metrics(folder) == metrics(whole)
    if made[0] == SAVED:
        return "went on"
    assert made[0] == SAVED_BEFORE
    assert any(name in said.text for name in names)
    assert f"continues from {folder / 'last.old'}, of step {SAVED_BEFORE}" in said.text
    return "went back"


def test_the_files_that_are_harmed_are_all_there_are(broken_off: Path):
    there = {str(path.relative_to(broken_off)) for path in broken_off.rglob("*") if path.is_file()}
    assert there - {".lock"} == set(FILES)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
@pytest.mark.parametrize("name", FILES)
def test_a_corruption_ends_in_the_same_figures_or_names_the_file(
    broken_off: Path,
    whole: Path,
    tmp_path: Path,
    name: str,
    caplog: pytest.LogCaptureFixture,
):
    """128 corruptions in all: 8 of each of the 16 files of a run that was broken off."""
    victim, ends = tmp_path / "victim", {}
    for harm, do in {**HARMS, "a link": partial(link_instead, victim=victim)}.items():
        folder = tmp_path / harm.replace(" ", "-")
        shutil.copytree(broken_off, folder)
        names = [name, neighbour(folder / name).name] if harm == "swapped" else [name]
        do(folder / name)
        ends[harm] = outcome(folder, whole, names, caplog)
    assert victim.read_bytes() == (broken_off / name).read_bytes()
    if name.startswith("last/"):
        # There is another checkpoint, so nothing is lost by one of them.
        assert set(ends.values()) == {"went back"}, ends
    if name.startswith("metrics"):
        assert ends["missing"] == ends["empty"] == ends["a bit at the beginning"] == "stopped"


FOLDER_HARMS: dict[str, tuple[Callable[[Path], object], set[str], str]] = {
    "last is missing": (lambda run: shutil.rmtree(run / "last"), {"went back"}, "last"),
    "last.old is missing": (lambda run: shutil.rmtree(run / "last.old"), {"went on"}, ""),
    "best is missing": (lambda run: shutil.rmtree(run / "best"), {"stopped"}, "best"),
    "last is a link": (lambda run: linked(run / "last"), {"stopped"}, "last"),
    "best is a link": (lambda run: linked(run / "best"), {"stopped"}, "best"),
    "last.new is a link": (lambda run: (run / "last.new").symlink_to(run.parent), {"stopped"}, "last.new"),
    "last is a file": (lambda run: filed(run / "last"), {"stopped"}, "last"),
    "last and last.old": (lambda run: exchanged(run / "last", run / "last.old"), {"went on"}, ""),
    "last and best": (lambda run: exchanged(run / "last", run / "best"), {"stopped", "went back"}, "last"),
    "a lock that is a link": (lambda run: linked(run / ".lock"), {"stopped"}, ".lock"),
}


def linked(path: Path) -> None:
    away = path.parents[1] / f"away{path.name}"
    path.rename(away)
    path.symlink_to(away)


def filed(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("no folder")


def exchanged(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


@pytest.mark.parametrize("harm", FOLDER_HARMS)
def test_the_same_for_whole_folders(run: Path, whole: Path, harm: str, caplog: pytest.LogCaptureFixture):
    do, expected, name = FOLDER_HARMS[harm]
    do(run)
    assert outcome(run, whole, [name], caplog) in expected


def test_one_bit_of_a_manifest_is_never_another_position(run: Path):
    """Every bit of every 11th byte: it is the same manifest, or none."""
    place = run / "last" / "manifest.json"
    content, known = place.read_bytes(), checkpoints.read(run / "last", "last").manifest
    for at in range(0, len(content), 11):
        for bit in range(8):
            place.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            try:
                assert checkpoints.read(run / "last", "last").manifest == known
            except Stopped as error:
                assert "last" in str(error)  # noqa: PT017


# -------------------------------------------------------------------------------------- what is said


def test_it_goes_on_from_the_older_checkpoint_and_says_so(
    run: Path, whole: Path, caplog: pytest.LogCaptureFixture
):
    truncate(run / "last" / "state.pt")
    train(SETTINGS, run)
    assert f"{run / 'last' / 'state.pt'} is damaged: its digest is not that of manifest.json" in caplog.text
    assert f"{run / 'last'} is kept as {run / 'last.damaged'}" in caplog.text
    assert (
        "of step 24; the 4 rows of metrics.jsonl that were written after it are computed again" in caplog.text
    )
    assert metrics(run) == metrics(whole)
    assert {path.name for path in run.glob("last*")} == {"last", "last.old", "last.damaged"}
    assert len(checkpoints.survey(run, "last").whole) == 2


def contents(run: Path) -> dict[Path, bytes]:
    """The files of a run, but for the one that says why it does not go on."""
    files = (path for path in run.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name != STATUS}


def test_without_a_whole_checkpoint_it_stops_and_touches_nothing(run: Path):
    for name in ("last", "last.old"):
        flip(0.5)(run / name / "model.safetensors")
    before = contents(run)
    with pytest.raises(
        Stopped, match=r"no checkpoint to continue from: .*last/model.safetensors is damaged"
    ) as it:
        train(SETTINGS, run)
    assert str(run / "last.old" / "model.safetensors") in str(it.value)
    assert "--overwrite to delete the run and start over" in str(it.value)
    assert contents(run) == before


def test_checkpoints_that_were_removed_are_missed(run: Path, whole: Path, tmp_path: Path):
    shutil.rmtree(run / "last")
    shutil.rmtree(run / "last.old")
    with pytest.raises(Stopped, match=r"last is missing, and speed.jsonl says that it was written"):
        train(SETTINGS, run)
    shutil.copytree(whole, tmp_path / "finished")
    for name in ("last", "last.old"):
        shutil.rmtree(tmp_path / "finished" / name)
    (tmp_path / "finished" / "speed.jsonl").unlink()
    with pytest.raises(Stopped, match=r"last is missing, and result.json says that the run is finished"):
        train(SETTINGS, tmp_path / "finished")


def test_rows_before_the_first_checkpoint_are_not_cut_in_silence(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        killed_at(patch, 4)
        train(SETTINGS, tmp_path / "run")
    train(SETTINGS, tmp_path / "run")
    assert (
        "has no checkpoint yet: it starts from step 0, and its 2 rows of metrics.jsonl with it" in caplog.text
    )
    assert metrics(tmp_path / "run") == metrics(whole)


def test_a_run_that_was_only_killed_says_nothing(run: Path, whole: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    train(SETTINGS, run)
    assert caplog.text == ""
    assert metrics(run) == metrics(whole)


def test_settings_are_sealed_even_without_their_file(run: Path):
    (run / "config.json").unlink()
    with pytest.raises(Stopped, match=r"last/manifest.json was written with other settings .* lr was 0.5"):
        train(override(SETTINGS, {"lr": 0.25}), run)
    assert not (run / "config.json").exists()
    empty(run / "last" / "state.pt")
    with pytest.raises(Stopped, match=r"last.old/manifest.json was written with other settings"):
        train(override(SETTINGS, {"lr": 0.25}), run)
    assert not (run / "last.damaged").exists()


@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "metrics.csv", "best/model.safetensors"])
@pytest.mark.parametrize("at", [0.2, 0.97])
def test_the_figures_of_a_finished_run_are_sealed(
    whole: Path, tmp_path: Path, name: str, at: float, caplog: pytest.LogCaptureFixture
):
    shutil.copytree(whole, tmp_path / "run")
    flip(at)(tmp_path / "run" / name)
    try:
        result = train(SETTINGS, tmp_path / "run")
    except Stopped as error:
        assert name in str(error)  # noqa: PT017, it may also go on
        return
    assert name in caplog.text
    assert untimed(result) == untimed(read_result(whole))
    assert metrics(tmp_path / "run") == metrics(whole)


def test_a_manifest_without_a_seal_is_damaged(run: Path):
    """Whoever can remove the seal could change the rest as well."""
    for path in run.glob("last*/manifest.json"):
        manifest = json.loads(path.read_text())
        names = ("step", "position", "rows", "world", "guard", "files")
        path.write_text(json.dumps({name: manifest[name] for name in names}))
    with pytest.raises(Damaged, match=r"last/manifest\.json is damaged: it has no seal"):
        train(SETTINGS, run)


def test_a_result_without_a_seal_is_damaged(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run")
    result = read_result(whole)
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    with pytest.raises(Damaged, match=r"result\.json is damaged: it has no seal"):
        read_result(tmp_path / "run")


# --------------------------------------------------------------------------- on the real command line

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(linnet.__file__).parents[1])}
COMMAND = [
    *("train", "memory.copy", "--unit", "rnn", "--span", "5"),
    *("--hidden-size", "4", "--eval-examples", "10", "--evaluate-every", "4", "--log-every", "2"),
    *("--device", "cpu", "--threads", "1"),
]


def command(folder: Path, steps: int) -> subprocess.CompletedProcess[str]:
    """A process of its own: how warnings are printed is part of what is tested."""
    words = [sys.executable, "-m", "linnet", *COMMAND, "--steps", str(steps), "--run-dir", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, env=ENVIRONMENT, check=False)


def test_the_command_says_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    older, none = tmp_path / "older", tmp_path / "none"
    assert cli.main([*COMMAND, "--steps", "8", "--run-dir", str(older)]) == 0
    shutil.copytree(older, none)
    flip(0.5)(older / "last" / "model.safetensors")
    done = command(older, 12)
    assert done.returncode == 0, done.stderr
    assert "last/model.safetensors is damaged" in done.stderr
    assert "continues from" in done.stderr
    for name in ("last", "last.old"):
        empty(none / name / "manifest.json")
    capsys.readouterr()
    assert cli.main([*COMMAND, "--steps", "12", "--run-dir", str(none)]) == 6
    done = capsys.readouterr()
    assert done.err.count("manifest.json is damaged") == 2
    assert "Traceback" not in done.err
