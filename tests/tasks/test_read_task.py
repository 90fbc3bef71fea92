"""Reading, from small files to answers: files, places of answers, features, the official score, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import tables
from helpers import make_task

import linnet
from linnet import cli
from linnet.data.errors import DataError, MissingDataError
from linnet.data.sets import WantedFiles
from linnet.data.squad import (
    QUESTIONS,
    Answer,
    Question,
    best_f1,
    exact_match,
    load_questions,
    normalised,
    read_squad,
    word_span,
    words_of,
)
from linnet.models.reader import DocumentReader, ReaderConfig
from linnet.runs.config import RunConfig, override
from linnet.tasks.read import Read, most_frequent, word_tags
from linnet.train.recipes import RECIPES

SMALL = {"unit": "lrn", "num_layers": 1, "hidden_size": 8, "embedding_size": 8, "device": "cpu", "threads": 1}
TEXT = "Anna sang in Rome, and Ben slept in Paris."
ASKED = (("Who sang?", "Anna"), ("Who slept?", "Ben"), ("Where did Anna sing?", "Rome"))


def asked(question: str, *answers: str, text: str = TEXT, **more: Any) -> dict[str, Any]:
    found = [{"text": answer, "answer_start": text.index(answer)} for answer in answers]
    return {"question": question, "id": "q7", "answers": found, **more}


def written(folder: Path, *questions: dict[str, Any], texts: int = 1, text: str = TEXT) -> Path:
    path = folder / "questions.json"
    paragraphs = [{"context": text, "qas": list(questions)}] * texts
    path.write_text(json.dumps({"data": [{"title": "one", "paragraphs": paragraphs}]}))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path, *(asked(*each) for each in ASKED), texts=20)


def task_of(path: Path, **more: Any) -> Read:
    return make_task(override(RunConfig(task="read"), {**SMALL, "path": str(path), **more}))


@pytest.mark.parametrize("form", ["drqa", "rnet"])
def test_train_eval_and_predict(form: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "run"
    model = f"--form {form} --unit lrn --num-layers 1 --hidden-size 16 --embedding-size 16 --tuned all"
    options = f"{model} --batch 8 --lr 0.02 --optimiser adam --epochs 15 --input-dropout 0 --device cpu"
    files = ["--path", str(table), "--run-dir", str(run)]
    assert cli.main(["train", "read", *files, *options.split()]) == 0
    capsys.readouterr()
    assert cli.main(["eval", str(run), "--splits", "test"]) == 0
    printed = capsys.readouterr().out
    assert "em 1" in printed
    assert "Most confident mistakes (test)" in printed
    assert cli.main(["predict", str(run), f"Who slept? ||| {TEXT}"]) == 0
    assert capsys.readouterr().out.startswith("Ben  (characters 23 to 26, probability 0.")
    answer = linnet.load(run).predict([{"question": "Who slept?", "text": TEXT}])[0]
    assert TEXT[answer["start"] : answer["end"]] == answer["answer"] == "Ben"


def test_the_options_of_the_question_reach_the_reader(table: Path):
    reader = task_of(table, num_layers=1, question_layers=2, question_merge="avg").build()
    assert [len(each.stack) for each in (reader.passage_encoder, reader.question_encoder)] == [1, 2]
    assert not any(name.startswith("merge") for name, _ in reader.named_parameters())


# --------------------------------------------------------------------------------------------- score


def test_the_score_is_the_official_one():
    sru = [table["items"] for table in tables("squad_metric*")]
    lrn = [table["squad"]["items"] for table in tables("metrics*")]
    assert len(sru) >= 1 <= len(lrn)
    for known in (item for items in (*sru, *lrn) for item in items):
        answer = known.get("pred", known.get("prediction"))
        assert exact_match(answer, known["answers"]) == known["em"]
        assert best_f1(answer, known["answers"]) == pytest.approx(known["f1"], rel=1e-12)
        assert normalised(answer) == known.get("norm", normalised(answer))


def test_an_evaluation_has_the_mean_over_all_questions(table: Path):
    task = task_of(table)
    rows, metrics = task.questions.test, task.metrics()
    metrics.found += [task.judged(len(task.every_question) - len(rows) + n, 0, 0, 0.5) for n in range(3)]
    assert metrics.compute()["em"] == pytest.approx(1 / 3)
    [mistakes] = task.details("test", metrics)
    assert mistakes.rows[0] == ("0.500", "Anna", "Ben", "Who slept?")
    assert "of 2 wrong" in mistakes.about


def test_answers_are_compared_with_those_of_their_own_split(table: Path, tmp_path: Path):
    folder = tmp_path / "other"
    folder.mkdir()
    other = written(folder, asked("Where did Ben sleep?", "Paris"))
    task = task_of(table, test_path=str(other))
    for split in ("valid", "test"):
        numbers = [example.label[2] for example in task.examples(split)]
        assert [task.every_question[number] for number in numbers] == getattr(task.questions, split)


# ------------------------------------------------------------------------------- words and features


def test_places_of_answers():
    words = words_of(TEXT)
    assert [TEXT[word.first : word.end] for word in words] == [word.text for word in words]
    assert word_span(words, Answer("Rome, and Ben", 13)) == (3, 6, True)
    assert word_span(words, Answer("Rome", 13)) == (3, 3, True)
    assert word_span(words, Answer("om", 14)) == (3, 3, False)


def test_answers_within_words_and_long_texts_are_left_out_of_training(tmp_path: Path):
    path = written(tmp_path, asked("Who?", "Ann"), asked("Where?", "Rome", "Paris"), texts=10)
    task = task_of(path)
    assert len(task.training_examples) == 8
    assert len(task.examples("test")) == 2
    assert task.training_examples[0].label == [3, 3, 1]
    assert task_of(path, target="last").training_examples[0].label == [9, 9, 1]
    with pytest.raises(DataError, match="no training question is left"):
        task_of(path, max_length=10).training_examples  # noqa: B018


def test_features_of_a_word(table: Path):
    task = task_of(table)
    task.tags = {"pos": {"Anna": "NNP", "sang": "VBD"}}
    found = task.described(["Anna", "sang", "anna", "."], ["anna", "?"])
    assert found["numbers"].tolist() == [[0, 1, 1, 0.5], [0, 0, 0, 0.25], [1, 1, 1, 0.5], [0, 0, 0, 0.25]]
    assert found["pos"].tolist() == [1, 2, 0, 0]


def test_the_most_frequent_tag_of_a_word():
    pairs = (("the", "DT"), ("run", "NN"), ("run", "VB"), ("run", "VB"))
    sentence = linnet.data.conll.Sentence(*map(tuple, zip(*pairs, strict=True)))
    assert most_frequent([sentence]) == {"the": "DT", "run": "VB"}
    for wrong in (b"[]", b'{"pos": 1}', b'{"pos": {"a": 1}}', b'{"other": {}}', b"{"):
        with pytest.raises(DataError, match=r"tags\.json"):
            word_tags(wrong)


def test_words_of_questions_come_first(table: Path, tmp_path: Path):
    assert task_of(table).vocabulary.tokens[:4] == ("<pad>", "<unk>", "?", "who")
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("rome 3 4\nunheard 1 1\nwho 0 2\n")
    task = task_of(table, vectors=str(vectors), embedding_size=2, form="rnet", tuned="none")
    assert task.vocabulary.tokens[2:] == ("who", "rome")
    assert task.build().embedding.rows().tolist() == [[0, 0], [0, 0], [0, 2], [3, 4]]


@pytest.mark.parametrize("layers", [3, 4, 6])
def test_the_recipes_have_the_sizes_of_the_paper(layers: int):
    recipe = override(RunConfig(task="read"), RECIPES[f"sru-squad-sru{layers}"].settings).model
    assert isinstance(recipe, ReaderConfig)
    model = DocumentReader(5000, recipe, features=4, tags=(56, 19), device="meta")
    known = {3: 1_164_960, 4: 1_560_224, 6: 2_350_752}[layers]
    assert sum(weight.numel() for weight in model.parameters()) - 1002 * 50 == known


# -------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            {"question": "Who?", "answers": [{"text": "Ann", "answer_start": 1}]},
            "'Ann' is not at character 1",
        ),
        ({"question": "Who?", "answers": [{"text": "", "answer_start": 1}]}, "'' is not at character 1"),
        ({"question": "Who?", "answers": [{"text": "Anna"}]}, "expected 'answer_start', a int"),
        ({"question": "Who?", "answers": []}, "has no answers; expected at least one"),
        ({"question": " ", "answers": []}, "is empty; expected a question"),
        ({"answers": []}, "expected 'question', a str"),
        (7, "expected 'question', a str"),
    ],
)
def test_a_question_that_cannot_be_used(tmp_path: Path, question: Any, message: str):
    path = written(tmp_path, question)
    with pytest.raises(DataError, match=message) as error:
        read_squad(path)
    assert f"{path}, question 1" in str(error.value)


def test_what_is_missing(tmp_path: Path, table: Path):
    with pytest.raises(DataError, match=r"give a file of yours in the format of SQuAD \(--path FILE\)"):
        load_questions("own", WantedFiles())
    with pytest.raises(MissingDataError, match="there is no file"):
        read_squad(tmp_path / "none.json")
    with pytest.raises(DataError, match="the train set has no questions"):
        load_questions("own", WantedFiles(path=str(written(tmp_path, asked("Who?", "Anna")))))
    table.write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        read_squad(table)
    table.write_text('{"data": 1}')
    with pytest.raises(DataError, match=r"expected 'data', a list, as in SQuAD 1\.1; got 1"):
        read_squad(table)
    assert set(QUESTIONS) == {"own", "squad"}


def test_questions_without_an_answer_are_left_out(tmp_path: Path):
    path = written(
        tmp_path, {"question": "Why?", "answers": [], "is_impossible": True}, asked("Who?", "Anna")
    )
    expected = Question(TEXT, "Who?", (Answer("Anna", 0),), f"{path}, question q7")
    assert read_squad(path) == [[expected]]


def test_splits_with_files_of_their_own(tmp_path: Path, table: Path):
    other = tmp_path / "other.json"
    other.write_text(written(tmp_path / ".", asked("Who?", "Anna")).read_text())
    table = written(tmp_path, *(asked(*each) for each in ASKED), texts=20)
    sizes = [
        [len(part) for part in load_questions("own", WantedFiles(None, str(table), *paths))]
        for paths in ((None, None), (str(other), None), (None, str(other)), (str(other), str(other)))
    ]
    assert sizes == [[48, 6, 6], [54, 1, 6], [54, 6, 1], [60, 1, 1]]


@pytest.mark.parametrize("raw", ["Who sang?", " ||| a text", '{"question": "Who?"}', {"text": "a"}])
def test_an_input_that_is_no_question(table: Path, raw: Any):
    task = task_of(table)
    with pytest.raises(ValueError, match=r"expected 'the question \|\|\| the text' or"):
        task.predict(torch.nn.Identity(), [raw])
