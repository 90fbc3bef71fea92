"""linnet predict for whole files: the order of the answers, errors with their lines, and a real kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from linnet.cli import main
from linnet.cli.predict import BLOCK
from linnet.runs.answers import AnswerFile
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Mismatch
from linnet.train.loop import train

SMALL = {"steps": 2, "device": "cpu", "threads": 1, "hidden_size": 4}
INPUTS = [f"{'bird ' * (number % 7 + 1)}{number}" for number in range(2 * BLOCK + 5)]
PAIRS = "premise\thypothesis\tlabel\n" + "a bird sings\tit is loud\tyes\na fish swims\tit sings\tno\n" * 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator and a classifier of pairs, hardly trained."""
    folder = tmp_path_factory.mktemp("predict")
    for side in ("source", "target"):
        (folder / side).write_text("a bird sings\ntwo birds\n" * 15, encoding="utf-8")
    (folder / "pairs.tsv").write_text(PAIRS)
    (folder / "in.txt").write_text("\n".join(INPUTS), encoding="utf-8")
    lines = {side: str(folder / side) for side in ("source", "target")}
    sizes = {"pieces": 260, "tokens": 40, "heads": 1}
    train(override(RunConfig(task="translate"), {"set": "own", **SMALL, **lines, **sizes}), folder / "mt")
    pairs = {"set": "own", "path": str(folder / "pairs.tsv"), "embedding_size": 4}
    train(override(RunConfig(task="nli"), {**SMALL, **pairs}), folder / "nli")
    return folder


def command(folder: Path, out: Path, *more: str) -> list[str]:
    options = ["--beam", "1", "--batch", "64", "--json", *more]
    return ["predict", str(folder / "mt"), "--file", str(folder / "in.txt"), "--out", str(out), *options]


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    """What a run that was not stopped writes."""
    assert main(command(folder, folder / "whole.txt")) == 0
    return (folder / "whole.txt").read_bytes()


def test_answers_are_in_the_order_of_the_inputs(whole: bytes):
    assert [json.loads(line)["input"] for line in whole.decode().splitlines()] == INPUTS


def test_a_killed_translation_continues_where_it_was(folder: Path, whole: bytes, tmp_path: Path, capsys: Any):
    out = tmp_path / "out.txt"
    process = subprocess.Popen([sys.executable, "-m", "linnet", *command(folder, out)])
    state = tmp_path / "out.txt.part.json"
    while not state.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not out.exists()
    done = json.loads(state.read_bytes())["done"]
    assert 0 < done < len(INPUTS)
    assert main(command(folder, out)) == 0
    assert f"continuing after {done:,} of {len(INPUTS):,} answers" in capsys.readouterr().out
    assert out.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


def test_a_part_of_other_answers_is_not_continued(folder: Path, tmp_path: Path, capsys: Any):
    out = tmp_path / "out.txt"
    file = AnswerFile(out, "other inputs", 10)
    file.add(["a", "b"])
    assert main(command(folder, out)) == Mismatch.exit_code
    assert "has the answers to other inputs" in capsys.readouterr().err
    # What was written after the last complete part does not count; the same inputs continue.
    with file.part.open("a") as part:
        part.write("half of an ans")
    again = AnswerFile(out, "other inputs", 10)
    assert again.done == 2
    again.add(["c\nc"])
    again.finish()
    assert out.read_text() == "a\nb\nc\nc\n"
    with pytest.raises(FileExistsError, match="give another --out"):
        AnswerFile(out, "other inputs", 10)
    assert main(command(folder, out)) == 1


def test_a_part_that_was_cut_is_not_continued(tmp_path: Path):
    file = AnswerFile(tmp_path / "out.txt", "inputs", 10)
    file.add(["a", "b"])
    file.part.write_text("a\n")
    with pytest.raises(Mismatch, match="delete it and out"):
        AnswerFile(tmp_path / "out.txt", "inputs", 10)


def test_an_input_that_is_no_pair_is_named_by_its_line(folder: Path, tmp_path: Path, capsys: Any):
    path = tmp_path / "pairs.txt"
    path.write_text("a bird ||| it sings\na fish\n")
    assert main(["predict", str(folder / "nli"), "--file", str(path)]) == 1
    failed = capsys.readouterr()
    assert f"{path}, line 2: expected 'the premise ||| the hypothesis'" in failed.err
    assert not failed.out
    # A line separator of Unicode does not end a line.
    path.write_text("a\u2028bird ||| it sings\n", encoding="utf-8")
    assert main(["predict", str(folder / "nli"), "--file", str(path)]) == 0
    assert len(capsys.readouterr().out.strip().split("\n")) == 1
