"""The kill test kills, compares everything but times, and reports a difference."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from linnet import cli
from linnet.tasks import TASKS
from tools import kills, small_tasks, soak
from tools.outcomes import Wrong

TASK = "memory.copy"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kills.Command]:
    files = tmp_path_factory.mktemp("files")
    small_tasks.write_files(files)
    return {command.name: command for command in kills.commands(files, random.Random(0))}


@pytest.fixture(scope="module")
def short(commands: dict[str, kills.Command]) -> kills.Command:
    command = commands[TASK]
    return command._replace(words=[*command.words, "--steps", "12"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, short: kills.Command) -> Path:
    """An undisturbed run in this process."""
    folder = tmp_path_factory.mktemp("whole")
    run_here(short.words, folder)
    return folder


def run_here(words: list[str], folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, open(folder / "output", "w") as output:
        patch.chdir(folder)
        with contextlib.redirect_stdout(output):
            assert cli.main(words) == 0
    (folder / "errors").write_text("")


def test_every_task_a_comparison_and_a_search_are_killed(commands: dict[str, kills.Command]):
    # Other tests add tasks of their own.
    tasks = [name for name in TASKS if TASKS[name].__module__.startswith("linnet.")]
    assert [*commands] == [*tasks, "compare", "search"]
    for name, command in commands.items():
        assert command.words[:2] == ["train", name] or command.words[0] == name


def test_a_run_that_was_killed_ends_with_the_same_results(
    tmp_path: Path, whole: Path, short: kills.Command, capsys: pytest.CaptureFixture[str]
):
    made = kills.run_with_kills(short, tmp_path, kills.Pace(8, 0.02), 1, 0, random.Random(0))
    assert made == 1
    assert capsys.readouterr().out.startswith(f"{TASK}: kill 1 after ")
    kills.compare_folders(whole, tmp_path)


# ---------------------------------------------------------------------------- planted differences


def change_row(run: Path) -> None:
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace('"loss": ', '"loss": 1', 1))


def change_result(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    result["test"]["loss"] *= 1.0000001
    (run / "result.json").write_text(json.dumps(result))


def change_weights(run: Path) -> None:
    path = run / "best" / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def change_page(run: Path) -> None:
    text = (run / "report.html").read_text()
    (run / "report.html").write_text(text.replace('"parameters">', '"parameters">1', 1))


def change_words(run: Path) -> None:
    with open(run.parent / "output", "a") as output:
        output.write("the run continues from another checkpoint\n")


def add_file(run: Path) -> None:
    (run / "last.damaged").write_text("")


def remove_file(run: Path) -> None:
    (run / "metrics.csv").unlink()


def warn(run: Path) -> None:
    (run.parent / "errors").write_text("last is missing\n")


CHANGES = {
    "metrics.jsonl": change_row,
    "result.json": change_result,
    "best/model.safetensors": change_weights,
    "report.html": change_page,
    "other output": change_words,
    "last.damaged": add_file,
    "metrics.csv": remove_file,
    "last is missing": warn,
}


@pytest.mark.parametrize(("reason", "change"), CHANGES.items(), ids=CHANGES)
def test_a_difference_is_found(tmp_path: Path, whole: Path, reason: str, change: Callable[[Path], None]):
    killed = copy(whole, tmp_path / "killed")
    kills.compare_folders(whole, killed)
    change(killed / kills.RUN)
    with pytest.raises(Wrong, match=reason):
        kills.compare_folders(whole, killed)


def copy(whole: Path, killed: Path) -> Path:
    return shutil.copytree(whole, killed)


def test_times_may_differ(tmp_path: Path, whole: Path):
    run = copy(whole, tmp_path / "killed") / kills.RUN
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "seconds": 1e9, "seal": "other"}))
    (run / "speed.jsonl").write_text("")
    (run / ".config.json.12.34").write_text("a temporary file of a process that was killed")
    kills.compare_folders(whole, run.parent)


def test_a_run_that_was_killed_before_its_first_checkpoint_says_so(tmp_path: Path, whole: Path):
    killed = copy(whole, tmp_path / "killed")
    notice = "run has no checkpoint yet: it starts from step 0, and its 2 rows of metrics.jsonl with it\n"
    (killed / "errors").write_text(notice)
    kills.compare_folders(whole, killed)
    (killed / "errors").write_text(notice + "run/last is damaged\n")
    with pytest.raises(Wrong, match="run/last is damaged"):
        kills.compare_folders(whole, killed)


def test_a_warning_that_each_process_repeats_counts_once(tmp_path: Path, whole: Path):
    one, two = (copy(whole, tmp_path / name) for name in ("one", "two"))
    (one / "errors").write_text("a warning\n")
    (two / "errors").write_text("a warning\na warning\n")
    kills.compare_folders(one, two)


def test_the_speeds_of_a_table_are_left_out(tmp_path: Path):
    (tmp_path / "output").write_text(
        "lrn: epoch 1  step 5  valid: loss 2.9  94 tokens/s\nmeasuring the speed of each model alone ...\n\n"
        "run  test loss  parameters  tokens/s\nlrn       4.18       1,955    21,131\n"
        "All runs: updates 20.\n\nlrn writes:\n  a 7\n"
    )
    assert kills.conclusion(tmp_path / "output") == (
        "\nrun  test loss  parameters  tokens/s\nlrn       4.18       1,955\nAll runs: updates 20.\n\n"
        "lrn writes:\n  a 7"
    )


def test_the_runs_of_a_search_are_compared_with_the_same_settings_alone(
    tmp_path: Path,
):
    words = kills.words("search", TASK, tmp_path)
    run_here([*words, "--steps", "3", "--runs", str(kills.SEARCHED)], tmp_path)
    kills.compare_searches(tmp_path, tmp_path)
    shutil.rmtree(tmp_path / "alone")
    change_row(tmp_path / kills.RUN / "0001")
    with pytest.raises(Wrong, match=r"metrics\.jsonl in .*0001 differ"):
        kills.compare_searches(tmp_path, tmp_path)
    shutil.rmtree(tmp_path / kills.RUN / "0002")
    with pytest.raises(Wrong, match=f"2 runs instead of {kills.SEARCHED}"):
        kills.compare_searches(tmp_path, tmp_path)


# ----------------------------------------------------------------------------------------- reports


def test_a_difference_ends_with_its_command(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run_undisturbed(command: kills.Command, folder: Path) -> kills.Pace:
        copy(whole, folder)
        return kills.Pace(1, 1.0)

    def run_with_kills(command: kills.Command, folder: Path, *how: object) -> int:
        change_row(copy(whole, folder) / kills.RUN)
        return 1

    monkeypatch.setattr(kills, "run_undisturbed", run_undisturbed)
    monkeypatch.setattr(kills, "run_with_kills", run_with_kills)
    assert kills.main(["--only", TASK, "--seed", "3", "--kills", "1", "--folder", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"wrong: Command(name='{TASK}'" in told
    assert "Wrong: metrics.jsonl in " in told
    assert "0 kills with the same results\n1 wrong\n" in told
    assert told.endswith(f"    python -m tools.kills --kills 1 --seed 3 --only {TASK}\n")


def test_a_command_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: kills.Command):
    monkeypatch.setattr(kills.sys, "executable", "false")
    with pytest.raises(Wrong, match="it ended with 1"):
        kills.check(short, tmp_path, 1, random.Random(0))


@pytest.mark.parametrize(("codes", "expected"), [((0, 0), 0), ((0, 1), 1), ((1, 0), 1)])
def test_the_soak_ends_with_kills(monkeypatch: pytest.MonkeyPatch, codes: tuple[int, int], expected: int):
    asked: list[tuple[int, int]] = []

    def run(number: int, seed: int) -> int:
        asked.append((number, seed))
        return codes[1]

    monkeypatch.setattr(soak, "supervise", lambda minutes, seed: codes[0])
    monkeypatch.setattr(soak.kills, "run", run)
    assert soak.main(["--seed", "4", "--kills", "5"]) == expected
    assert asked == [(5, 4)]
