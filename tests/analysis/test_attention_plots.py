"""Heat maps of attention: the weights are those of the model, for a text or for validation examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet import cli
from linnet.analysis.attention_plots import draw_attention
from linnet.analysis.drawing import NothingToShow
from linnet.analysis.report import write_report
from linnet.analysis.runs import read_run
from linnet.models.encoder import Text
from linnet.runs.config import RunConfig, override
from linnet.tasks.read import MOST_WORDS, window
from linnet.train.loop import train

pytest.importorskip("matplotlib")

SMALL = {"steps": 2, "device": "cpu", "threads": 1, "hidden_size": 4, "embedding_size": 4}
PAIRS = "premise\thypothesis\tlabel\n" + "a bird sings\tit is $loud\tyes\na fish swims\tit sings\tno\n" * 20
ANSWER = {"text": "bird", "answer_start": 2}
QUESTIONS = [{"question": "Who sang?", "id": "1", "answers": [ANSWER]}]
TEXTS = {"data": [{"paragraphs": [{"context": "A bird sang.", "qas": QUESTIONS}] * 20}]}
LINES = {"source": "a bird sings\ntwo birds\n" * 15, "target": "ein Vogel singt\nzwei Vögel\n" * 15}
FORMS = {
    "nli": ("nli", {"unit": "lrn"}),
    "drqa": ("read", {"unit": "sru", "num_layers": 1}),
    "rnet": ("read", {"form": "rnet", "unit": "lrn", "num_layers": 1, "character_hidden": 3}),
    "recurrent": ("translate", {"unit": "sru", "pieces": 260, "tokens": 40}),
    "transformer": ("translate", {"form": "transformer", "inner_size": 8, "pieces": 260, "tokens": 40}),
}
INPUTS = {
    "nli": "a bird ||| it sings loudly",
    "read": "Who? ||| A small bird sang.",
    "translate": "two birds",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attention")
    (folder / "pairs.tsv").write_text(PAIRS)
    (folder / "questions.json").write_text(json.dumps(TEXTS))
    for side, text in LINES.items():
        (folder / side).write_text(text, encoding="utf-8")
    files: dict[str, dict[str, Any]] = {
        "nli": {"path": str(folder / "pairs.tsv")},
        "read": {"path": str(folder / "questions.json")},
        "translate": {side: str(folder / side) for side in LINES},
    }
    for name, (task, form) in FORMS.items():
        sizes = {key: value for key, value in SMALL.items() if task != "translate" or key != "embedding_size"}
        config = override(RunConfig(task=task), {"set": "own", **sizes, **files[task], **form})
        train(config, folder / name)
    return folder


@pytest.mark.parametrize("name", FORMS)
def test_a_map_has_the_words_of_both_texts(folder: Path, name: str):
    run = linnet.load(folder / name)
    raw = INPUTS[FORMS[name][0]]
    (found,) = run.task.attention(run.model, [raw])
    assert found.weights.shape == (len(found.rows), len(found.columns))
    # Each word of one text reads the whole other text; a reader's text is in the columns.
    sums = found.weights.sum(0 if FORMS[name][0] == "read" else 1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert len(run.task.first_inputs("valid", 2)) == 2


def test_the_words_are_in_the_order_of_the_weights(folder: Path):
    run: Any = linnet.load(folder / "nli")
    (found,) = run.task.attention(run.model, ["a bird ||| it sings loudly"])
    assert (found.rows, found.columns) == (["it", "sings", "loudly"], ["a", "bird"])
    ids = [Text(run.task.ids(words)[:, None]) for words in (found.columns, found.rows)]
    weights = run.model.compare(*ids).weights[0].mean(0)
    torch.testing.assert_close(found.weights, weights)
    reader: Any = linnet.load(folder / "drqa")
    (found,) = reader.task.attention(reader.model, ["Who? ||| A small bird sang."])
    assert (found.rows, found.columns) == (["Who", "?"], ["A", "small", "bird", "sang", "."])
    translator: Any = linnet.load(folder / "recurrent")
    (found,) = translator.task.attention(translator.model, ["two birds"])
    assert found.columns[-1] == "(end)"
    assert found.columns[0] == "two"[: len(found.columns[0])]


def test_a_long_text_is_shown_near_the_answer():
    assert window(2, 3, 10) == slice(0, MOST_WORDS)
    assert window(99, 99, 100) == slice(100 - MOST_WORDS, 100)
    near = window(50, 51, 100)
    assert (near.stop - near.start, 51 - near.start, near.stop - 51) == (MOST_WORDS, 15, 15)


def test_plots_of_a_text_and_of_examples(folder: Path, tmp_path: Path, capsys: Any):
    one, other = (str(folder / name) for name in ("nli", "recurrent"))
    assert (
        cli.main(["plot", one, "--what", "attention", "--text", INPUTS["nli"], "--out", str(tmp_path)]) == 0
    )
    assert (tmp_path / "attention.png").exists()
    # Three examples of one run, or one of each of several runs; names with a dollar are no formulas.
    assert len(draw_attention([read_run(folder / "nli")], None).axes) == 3
    both = draw_attention([read_run(folder / name) for name in ("nli", "recurrent")], None)
    assert [axes.get_title().split(":")[0] for axes in both.axes] == ["nli", "recurrent"]
    assert cli.main(["plot", one, other, "--text", "a bird", "--out", str(tmp_path)]) == 1
    assert "give --what attention or --what decay" in capsys.readouterr().err


def test_the_report_shows_attention(folder: Path, tmp_path: Path):
    write_report(tmp_path / "report.html", [read_run(folder / "drqa")], "reader")
    assert "Dark cells show what it relates to what" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_cannot_be_shown(folder: Path):
    run = read_run(folder / "nli")
    with pytest.raises(NothingToShow, match="For a run that has not finished, give --text"):
        draw_attention([run._replace(result=None)], None)
    text = folder / "pairs.tsv"
    hidden = text.rename(folder / "away.tsv")
    try:
        with pytest.raises(NothingToShow, match="the data cannot be read; give --text"):
            draw_attention([run], None)
    finally:
        hidden.rename(text)
