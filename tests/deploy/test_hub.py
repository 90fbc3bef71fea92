"""linnet export --to hub: a trained run as a folder for the Hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import linnet
from linnet.cli import main
from linnet.data.vocabulary import Vocabulary
from linnet.models.generate import generate_texts
from linnet.models.language import LanguageModel

SETTINGS = "--unit sru --hidden-size 8 --embedding-size 8 --steps 2 --batch 4 --length 8 --threads 1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "text.txt").write_text("the linnet sings and the linnet flies\n" * 200)
    command = f"train lm --corpus text --path {folder / 'text.txt'} --run-dir {folder / 'run'} {SETTINGS}"
    assert main(command.split()) == 0
    return folder / "run"


@pytest.mark.parametrize("int8", [False, True], ids=["float32", "int8"])
def test_a_run_becomes_a_folder_that_can_be_used_without_it(run: Path, int8: bool, tmp_path: Path):
    out = tmp_path / "model"
    assert main(["export", str(run), "--to", "hub", "--out", str(out), *(["--int8"] if int8 else [])]) == 0
    model = LanguageModel.from_pretrained(out)
    expected = linnet.load(run).model
    tokens = torch.zeros(3, 2, dtype=torch.int64)
    with torch.no_grad():
        found, exact = model.log_probs(tokens)[0], expected.log_probs(tokens)[0]
    torch.testing.assert_close(found, exact, rtol=0, atol=0.05 if int8 else 0)
    assert generate_texts(model, Vocabulary.load(out / "vocabulary.json"), ["the"], tokens=3)[0].startswith(
        "the"
    )


def test_the_card_is_written_from_the_record_of_the_run(run: Path, tmp_path: Path):
    main(["export", str(run), "--to", "hub", "--out", str(tmp_path / "model")])
    card = (tmp_path / "model" / "README.md").read_text()
    figure = json.loads((run / "result.json").read_text())["test"]["perplexity"]
    assert "| perplexity | " in card
    assert f"{figure:.5g} |" in card
    assert "| hidden_size | `8` |" in card
    assert "pipeline_tag: text-generation" in card
    assert str(tmp_path.parent) not in card


def test_a_failed_export_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(LanguageModel, "hub_config", lambda self: {}["missing"])
    with pytest.raises(KeyError):
        main(["export", str(run), "--to", "hub", "--out", str(tmp_path / "model")])
    assert list(tmp_path.iterdir()) == []
