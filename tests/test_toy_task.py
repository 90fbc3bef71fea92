"""A task is one file: toy_task.py alone gets every command, exact resume after kill -9, and two processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import toy_task

import linnet
from linnet import cli
from linnet.runs import checkpoints
from linnet.runs.records import Row, read_metrics, read_result

ROOT = Path(linnet.__file__).parents[1]
TASK_FILE = Path(toy_task.__file__)
TRAIN = ["train", "largest", "--lr", "0.03", "--epochs", "4", "--device", "cpu", "--threads", "1"]
# A run that is prolonged equals a longer one if its rate does not depend on its length.
TRAIN += ["--schedule", "constant"]


def run_linnet(*words: object) -> None:
    assert cli.main([str(word) for word in words]) == 0


def result_of(folder: Path) -> Row:
    found = read_result(folder)
    assert found is not None
    return found


def process(*words: object, processes: int = 1) -> subprocess.Popen[str]:
    """The real command line, with the toy task given by LINNET_TASKS."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else ()), "-m", "linnet", *map(str, words)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LINNET_TASKS": str(TASK_FILE),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / "run"
    run_linnet(*TRAIN, "--run-dir", folder)
    return folder


def test_the_task_is_shorter_than_sixty_lines():
    assert len(TASK_FILE.read_text(encoding="utf-8").splitlines()) < 60


def test_train_selects_by_accuracy_and_writes_a_report(run: Path):
    rows = read_metrics(run, "valid")
    best = max(rows, key=lambda row: row["accuracy"])
    result = result_of(run)
    assert (result["best_step"], result["valid"]["accuracy"]) == (best["step"], best["accuracy"])
    assert "accuracy" in (run / "report.html").read_text(encoding="utf-8")


def test_eval_and_predict_use_the_trained_run(run: Path, capsys: pytest.CaptureFixture[str]):
    run_linnet("eval", run, "--splits", "test")
    result = result_of(run)
    assert f"accuracy {result['test']['accuracy']:.5g}" in capsys.readouterr().out
    run_linnet("predict", run, "0 0 1", "4", "--json")
    answers = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    assert answers == linnet.load(run).predict(["0 0 1", "4"])
    assert cli.main(["predict", str(run)]) == 1
    assert "there is nothing to predict" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["predict", str(run), "1", "--tokens", "3"])
    assert "unrecognized arguments: --tokens" in capsys.readouterr().err


def test_units_are_compared_at_one_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_linnet("compare", "largest", "--run-dir", tmp_path, "--epochs", "1", "--threads", "1")
    printed = capsys.readouterr().out
    assert "2 units on largest, 600 parameters each" in printed
    sizes = [result_of(tmp_path / unit)["parameters"] for unit in ("lrn", "gru")]
    assert all(500 < size < 700 for size in sizes)
    assert "lens.html" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "There is no lens of the best model: the lens shows models that read a typed text" in printed


def test_a_search_finds_the_best_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ranges = ["--ranges", "lr=0.0001:0.1", "--runs", "2"]
    run_linnet("search", "largest", "--run-dir", tmp_path, *ranges, "--epochs", "1", "--threads", "1")
    found = [result_of(tmp_path / f"{number:04}")["valid"]["accuracy"] for number in range(2)]
    assert f"valid accuracy {max(found):.5g}" in capsys.readouterr().out


def test_a_killed_run_continues_exactly(tmp_path: Path, run: Path):
    """kill -9 in the middle of an epoch; the same command then ends with the numbers of `run`."""
    words = [*TRAIN, "--run-dir", tmp_path / "cut", "--checkpoint-steps", "3", "--epochs"]
    with process(*words, "4000") as killed:
        while not (tmp_path / "cut" / "last").exists():
            assert killed.poll() is None, killed.communicate()[1]
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
    step = checkpoints.must_find(tmp_path / "cut", "last").manifest["step"]
    longer = -(-step // 8) + 1
    run_linnet(*words, longer)
    run_linnet(*TRAIN, "--run-dir", tmp_path / "whole", "--epochs", longer)
    assert read_metrics(tmp_path / "cut", "valid") == read_metrics(tmp_path / "whole", "valid")
    same_weights(tmp_path / "cut", tmp_path / "whole", 0.0)


def test_two_processes_learn_what_one_learns(tmp_path: Path, run: Path):
    """The last batch of an epoch has 4 sequences, so each process reads 2 of them."""
    with process(*TRAIN, "--run-dir", tmp_path, processes=2) as both:
        _, errors = both.communicate(timeout=120)
    assert both.returncode == 0, errors
    same_weights(tmp_path, run, 1e-5)
    assert result_of(tmp_path)["test"] == pytest.approx(result_of(run)["test"], rel=1e-4)


def same_weights(folder: Path, other: Path, tolerance: float) -> None:
    here, there = (checkpoints.read_weights(each / "last") for each in (folder, other))
    for name, weight in here.items():
        torch.testing.assert_close(weight, there[name], rtol=tolerance, atol=tolerance)
