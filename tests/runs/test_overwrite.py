"""What --overwrite deletes, what it leaves, and where no run begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet import cli
from linnet.runs.checkpoints import publish, stage, write_weights
from linnet.runs.config import RunConfig, override, to_json
from linnet.runs.errors import Damaged
from linnet.runs.overwrite import delete_run, is_run, refuse_occupied
from linnet.runs.records import read_config

CONFIG = RunConfig(task="memory.copy")
TRAIN = [
    *("train", "memory.copy", "--unit", "rnn", "--hidden-size", "4", "--steps", "2", "--span", "5"),
    *("--recalled", "2", "--eval-examples", "4"),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the files of a run."""
    folder = tmp_path / "run"
    for name in ("best", "last"):
        write_weights(stage(folder, name) / "model.safetensors", {})
        publish(folder, name, {"step": 1})
    (folder / "config.json").write_text(to_json(CONFIG))
    for name in ("metrics.jsonl", "result.json", "report.html", "vocabulary.json", ".metrics.csv.12.34"):
        (folder / name).write_text("")
    (folder / "events" / "version_0").mkdir(parents=True)
    (folder / "events" / "version_0" / "metrics.csv").write_text("")
    return folder


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock"}


def test_the_files_of_a_run_are_deleted(run: Path):
    new = override(CONFIG, {"lr": 0.5})
    delete_run(run, new)
    assert contents(run) == {"config.json"}
    assert read_config(run) == new


def test_other_files_are_kept(run: Path):
    own = {"data.txt", "best/notes.txt", "events/mine.csv", "photos", "photos/bird.jpg", "metrics.csv.bak"}
    for name in sorted(own - {"photos"}):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("precious")
    delete_run(run, CONFIG)
    assert contents(run) == own | {"config.json", "best", "events"}
    refuse_occupied(run)


@pytest.mark.parametrize(
    "content", ["{}", '{"task": "lm"}', '{"model_type": "bert"}', "[]", "no JSON", to_json(CONFIG)[:-5]]
)
def test_a_config_of_another_program_is_no_run(tmp_path: Path, content: str):
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "data.txt").write_text("precious")
    with pytest.raises(ValueError, match="is not a run, so it is not overwritten"):
        delete_run(tmp_path, CONFIG)
    with pytest.raises(ValueError, match=r"is not a run and has other files \(config.json, data.txt\)"):
        refuse_occupied(tmp_path)
    with pytest.raises(Damaged, match=r"config\.json"):
        read_config(tmp_path)
    assert contents(tmp_path) == {"config.json", "data.txt"}


def test_a_run_without_settings_is_known_by_its_checkpoints(run: Path):
    (run / "config.json").unlink()
    assert is_run(run)
    manifest = run / "last" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "step": 2}))
    (run / "best" / "manifest.json").unlink()
    assert not is_run(run)


def test_checkpoints_behind_a_link_are_not_those_of_the_folder(run: Path, tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "last").symlink_to(run / "last")
    assert not is_run(tmp_path / "other")


def test_a_folder_that_a_killed_process_made_is_free(tmp_path: Path):
    for name in (".lock", ".config.json.12.34"):
        (tmp_path / name).write_text("")
    refuse_occupied(tmp_path)
    refuse_occupied(tmp_path / "new")


def test_no_run_begins_among_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "bird.jpg").write_text("precious")
    assert cli.main([*TRAIN, "--run-dir", str(tmp_path)]) == 1
    assert "has other files (best); a run needs a folder of its own" in capsys.readouterr().err
    assert contents(tmp_path) == {"best", "best/bird.jpg"}


def test_overwriting_the_current_folder_keeps_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """As with a run that an earlier version made in ".": the data is there, too."""
    monkeypatch.chdir(tmp_path)
    assert cli.main([*TRAIN, "--run-dir", "."]) == 0
    (tmp_path / "data.txt").write_text("precious")
    assert cli.main([*TRAIN, "--run-dir", ".", "--overwrite", "--lr", "0.5"]) == 0
    assert (tmp_path / "data.txt").read_text() == "precious"
    assert read_config(tmp_path).optimiser.lr == 0.5


@pytest.mark.parametrize("command", [["train", "memory.copy"], ["compare", "memory.copy"], ["search", "lm"]])
def test_an_empty_name_is_no_folder(command: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command, "--run-dir", ""])
    assert stopped.value.code == 2
    assert "--run-dir: expected the name of a file or a folder; got an empty text" in capsys.readouterr().err
