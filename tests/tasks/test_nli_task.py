"""Natural language inference, from small files to answers: pairs, batches, figures, inputs, errors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import make_task

import linnet
from linnet import cli
from linnet.analysis.layer_plots import has_one_direction
from linnet.data.errors import DataError, MissingDataError
from linnet.data.labelled import Wanted, load_from
from linnet.data.pairs import PAIR_SETS, snli
from linnet.models.encoder import Text
from linnet.runs.config import RunConfig, override
from linnet.tasks.nli import Nli

# The class depends on both sentences: neither alone decides it.
PAIRS = [
    ("a bird sings", "it sings", "yes"),
    ("a bird sings", "it swims", "no"),
    ("a fish swims", "it sings", "no"),
    ("a fish swims", "it swims", "yes"),
]
HEAD = "premise\thypothesis\tlabel\n"
SMALL = {"unit": "lrn", "hidden_size": 8, "embedding_size": 8, "device": "cpu", "threads": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text(HEAD + "".join("\t".join(pair) + "\n" for pair in PAIRS * 12))
    return path


def task_of(path: Path, **more: Any) -> Nli:
    return make_task(override(RunConfig(task="nli"), {**SMALL, "path": str(path), **more}))


def test_train_eval_and_predict(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "run"
    options = "--unit lrn --hidden-size 16 --embedding-size 16 --batch 8 --lr 0.02 --epochs 25 --device cpu"
    files = ["--path", str(table), "--run-dir", str(run)]
    assert cli.main(["train", "nli", *files, *options.split()]) == 0
    capsys.readouterr()
    assert cli.main(["eval", str(run), "--splits", "test"]) == 0
    printed = capsys.readouterr().out
    assert "accuracy 1" in printed
    assert "Confusion matrix (test)" in printed
    as_json = json.dumps({"premise": "a fish swims", "hypothesis": "it sings"})
    assert cli.main(["predict", str(run), "a fish swims ||| it swims", as_json]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("yes  (yes ")
    assert second.startswith("no  (no ")
    trained = linnet.load(run)
    forms = [as_json, json.loads(as_json), ("a fish swims", "it sings"), "a fish swims|||it sings"]
    answers = trained.predict(forms)
    assert all(answer == answers[0] for answer in answers)
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1, abs=1e-4)


def test_mistakes_show_both_sentences(table: Path):
    task = task_of(table)
    mistakes = task.mistakes("test", [(0.9, 0, 0, 1)])
    assert mistakes.head == ("probability", "answer", "class", "premise", "hypothesis")
    assert mistakes.rows[0] == ("0.900", "yes", "no", *task.texts.test[0].texts)


@torch.no_grad()
def test_the_model_gets_the_premise_first_with_words_and_characters(table: Path):
    task = task_of(table, inputs="both")
    model, batch = task.build().eval(), next(task.batches("test"))
    row = task.texts.test[int(batch.rows[0])]
    words = [text.split() for text in row.texts]
    texts = [
        Text(
            torch.from_numpy(task.vocabulary.encode_words(each))[:, None],
            task.characters.encode(each)[:, None],
        )
        for each in words
    ]
    expected = model(*texts)[0]
    torch.testing.assert_close(task.logits(model, batch)[0], expected)
    assert not torch.allclose(model(*reversed(texts))[0], expected)


def test_words_of_both_sentences_have_vectors_and_long_ones_are_cut(table: Path):
    task = task_of(table, max_length=2)
    assert {"sings", "it"} <= set(task.vocabulary.tokens)
    assert {(len(each.inputs), len(each.second)) for each in task.training_examples} == {(2, 2)}
    assert {len(each.inputs) for each in task.examples("test")} == {3}


def test_published_files_of_snli(tmp_path: Path):
    path = tmp_path / "snli_1.0_dev.jsonl"
    labels = ("neutral", "-", "entailment", "contradiction") * 10
    lines = [{"gold_label": label, "sentence1": "a b", "sentence2": "c", "pairID": 1} for label in labels]
    path.write_text("\n".join(map(json.dumps, lines)))
    task = task_of(path, premise="sentence1", hypothesis="sentence2", label="gold_label")
    assert task.classes == ("contradiction", "entailment", "neutral")
    assert sum(map(len, task.texts)) == 30


def test_pairs_in_both_training_files_are_read_once(monkeypatch: pytest.MonkeyPatch):
    source = PAIR_SETS["snli"]
    tables = ("a\tb\t0\na\tc\t1\n", "a\tc\t1\nd\tb\t2\n", "e\tf\t0\n", "g\th\t1\n")
    monkeypatch.setattr(type(source), "text", lambda self, number, wanted: HEAD + tables[number])
    splits = snli(source, Wanted())
    assert [(*row.texts, row.label) for row in splits.train] == [
        ("a", "b", "entailment"),
        ("a", "c", "neutral"),
        ("d", "b", "contradiction"),
    ]
    assert [row.texts for row in (*splits.valid, *splits.test)] == [("e", "f"), ("g", "h")]


def test_plots_of_one_direction_leave_out_models_of_two_texts():
    for task, settings, one in (
        ("classify", {"bidirectional": False}, True),
        ("classify", {}, False),
        ("nli", {}, False),
        ("read", {}, False),
    ):
        run = SimpleNamespace(config=override(RunConfig(task=task), settings))
        assert has_one_direction(run) == one  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "a\t \tx\n", r"line 2 has an empty 'hypothesis'; expected a sentence"),
        (HEAD + "\tb\tx\n", r"line 2 has an empty 'premise'; expected a sentence"),
        (HEAD + "a\tb\n", r"line 2 has 2 columns; expected 3"),
        ("premise\tclaim\tlabel\na\tb\tx\n", r"no column 'hypothesis'.*with --hypothesis"),
        (HEAD, r"has no rows; expected a premise, a hypothesis and a label"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, text: str, message: str):
    path = tmp_path / "a.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        task_of(path)
    assert str(path) in str(error.value)


def test_what_is_missing(tmp_path: Path):
    with pytest.raises(DataError, match=r"expected a table \(.csv, .tsv, .jsonl, each also as .gz or .xz\)$"):
        task_of(tmp_path)
    with pytest.raises(DataError, match=r"give a file of yours \(--path FILE\), or --set snli"):
        make_task(override(RunConfig(task="nli"), SMALL))
    with pytest.raises(MissingDataError, match=r"train_first100k\.tsv (.|\n)*--path snli_1\.0_train\.jsonl"):
        load_from(PAIR_SETS, "snli", Wanted(data_dir=str(tmp_path)))
    with pytest.raises(ValueError, match="the set snli has 1 folds"):
        Nli.fold_settings(override(RunConfig(task="nli"), {"set": "snli"}).data, 3)


@pytest.mark.parametrize(
    "raw",
    [
        "one sentence",
        "a ||| b ||| c",
        "a ||| ",
        '{"premise": "a"}',
        '{"premise": ',
        {"premise": 1},
        3,
        ("a",),
    ],
)
def test_an_input_that_is_no_pair(table: Path, raw: Any):
    with pytest.raises(ValueError, match=r"expected 'the premise \|\|\| the hypothesis' or"):
        task_of(table).typed_texts(raw)


def test_a_size_that_the_heads_cannot_share_becomes_the_next_one():
    model = override(RunConfig(task="nli"), {"heads": 4}).model
    assert [Nli.resized(model, size).hidden_size for size in (1, 2, 7)] == [2, 2, 8]
