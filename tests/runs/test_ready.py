"""The trained models of the package: what they answer, their cards, and that nothing writes to them."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet import cli
from linnet.runs import checkpoints
from linnet.runs.errors import Damaged
from linnet.runs.load import TrainedRun
from linnet.runs.ready import FOLDER, NAMES
from linnet.runs.records import read_config, read_result
from tools import ready
from tools.pages import READY

MEGABYTES, MEGABYTES_OF_A_FILE = 6.0, 2.5


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> None:
        raise AssertionError("a model of the package needs no network")

    monkeypatch.setattr(socket, "socket", refuse)


@cache
def model(name: str) -> TrainedRun:
    return linnet.load(f"ready:{name}")


def answer(name: str, text: str, **options: Any) -> Any:
    return model(name).predict(text, **options)[0]


def sizes() -> dict[Path, int]:
    return {path: path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------------ answers


def test_capitals_and_punctuation_are_restored():
    found = answer("punctuate", "in the beginning god created the heaven and the earth")
    assert found["text"].startswith("In the beginning God created the heaven")
    assert found["text"].endswith(" and the earth.")


def test_the_bible_becomes_modern_english():
    found = answer("translate", "Thou shalt not covet thy neighbour's house.")["translation"]
    assert found == "You shall not covet your neighbor's house."


def test_characters_are_continued():
    assert answer("kjv", "And it came to pas", tokens=3, temperature=0) == "And it came to pass, "


@pytest.mark.parametrize(("name", "higher"), [("punctuate", True), ("translate", True), ("kjv", False)])
def test_a_model_is_better_than_its_baselines(name: str, higher: bool):
    result, figure = read_result(FOLDER / name) or {}, ready.FIGURES[name]
    known = [each["figures"][figure] for each in result["baselines"] if figure in each["figures"]]
    assert known
    assert all((result["test"][figure] > value) is higher for value in known)


# ------------------------------------------------------------------------------------ what is there


def test_the_models_are_small_and_all_in_the_list(capsys: pytest.CaptureFixture[str]):
    found = sizes()
    assert sum(found.values()) <= MEGABYTES * 1e6
    assert max(found.values()) <= MEGABYTES_OF_A_FILE * 1e6
    assert sorted(NAMES) == sorted(path.name for path in FOLDER.iterdir())
    assert cli.main(["list", "ready"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"ready:{name}" for name in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_a_card_has_the_figures_of_the_result(name: str):
    assert (FOLDER / name / "README.md").read_text(encoding="utf-8") == ready.card(name, model(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_settings_of_its_recipe(name: str):
    assert read_config(FOLDER / name) == ready.settings(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_file_says_where_it_was_made(name: str):
    for path in (FOLDER / name).glob("*.*"):
        assert not {"/home/", "/work/", "/tmp/"} & {*path.read_text(encoding="utf-8").split()}, path


def test_commands_write_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    before = sizes()
    for command in (["lens", "ready:kjv"], ["export", "ready:kjv", "--to", "c"]):
        assert cli.main(command) == 0, capsys.readouterr().err
    assert (tmp_path / "kjv" / "lens.html").is_file()
    assert (tmp_path / "kjv" / "export" / "c" / "model.c").is_file()
    assert sizes() == before


def test_the_page_has_the_figures_of_the_results():
    assert ready.table() in READY.read_text(encoding="utf-8")


def test_an_unknown_model_is_answered(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["predict", "ready:puctuate", "in the beginning"]) == 1
    assert (
        "no model of the package 'ready:puctuate'; did you mean 'ready:punctuate'?" in capsys.readouterr().err
    )


# ------------------------------------------------------------------------------------------ rounding


def test_rounded_weights_are_read_as_what_they_stand_for(tmp_path: Path):
    weights = {"matrix": torch.randn(7, 5), "zeros": torch.zeros(2, 3), "bias": torch.randn(5)}
    weights["counts"] = torch.arange(4)
    stored = checkpoints.rounded(weights)
    assert (stored["matrix"].dtype, stored["matrix.scale"].shape) == (torch.int8, (7,))
    checkpoints.write_weights(tmp_path / checkpoints.WEIGHTS, stored)
    found = checkpoints.read_weights(tmp_path)
    assert set(found) == set(weights)
    assert torch.equal(found["matrix"], stored["matrix"] * stored["matrix.scale"][:, None])
    assert all(torch.equal(found[name], weights[name]) for name in ("zeros", "bias", "counts"))
    errors = (found["matrix"] - weights["matrix"]).abs() / stored["matrix.scale"][:, None]
    assert errors.max() <= 0.5 + 1e-4
    # To round again changes nothing.
    assert torch.equal(checkpoints.rounded(found)["matrix"], stored["matrix"])


def test_scales_of_other_rows_are_refused(tmp_path: Path):
    stored = checkpoints.rounded({"matrix": torch.randn(7, 5)}) | {"matrix.scale": torch.ones(5)}
    checkpoints.write_weights(tmp_path / checkpoints.WEIGHTS, stored)
    with pytest.raises(Damaged, match=r"'matrix\.scale' has no scale for each row of 'matrix'"):
        checkpoints.read_weights(tmp_path)
