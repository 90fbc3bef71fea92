"""Classification, from small files to answers: vocabulary, vectors, batches, figures, folds, errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_task
from torch.nn import functional as F

import linnet
from linnet import cli
from linnet.analysis.report import page
from linnet.analysis.runs import read_run
from linnet.analysis.table import best_run
from linnet.data.errors import DataError
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Damaged, NotFinite
from linnet.runs.records import read_details, write_details, write_json
from linnet.runs.untrusted import sealed
from linnet.tasks.classify import Classify
from linnet.tasks.mistakes import confusion
from linnet.tasks.results import Section, StepResult
from linnet.tasks.targets import ClassMetrics, OneClass, macro_f1
from linnet.train.loop import Run, train

GOOD = ("a fine bird", "what a voice", "fine song", "a song of joy")
BAD = ("a dull noise", "what a pity", "dull and grey", "noise of rain")
ROWS = [
    f"{text},{label}" for label, texts in (("good", GOOD), ("bad", BAD)) for text in texts for _ in range(6)
]
SMALL = {"unit": "sru", "num_layers": 1, "hidden_size": 8, "embedding_size": 8, "device": "cpu", "threads": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(["text,label", *ROWS]) + "\n")
    return path


def settings(table: Path, **more: Any) -> RunConfig:
    return override(RunConfig(task="classify"), {**SMALL, "set": "own", "path": str(table), **more})


def task_of(table: Path, **more: Any) -> Classify:
    return make_task(settings(table, **more))


# -------------------------------------------------------------------------------------- the whole way


def test_train_eval_and_predict(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = tmp_path / "run"
    model = "--unit sru --num-layers 1 --hidden-size 8".split()  # noqa: SIM905
    training = "--lr 0.03 --epochs 15 --batch 8 --device cpu".split()  # noqa: SIM905
    files = ["--path", str(table), "--run-dir", str(run)]
    assert cli.main(["train", "classify", *files, *model, *training]) == 0
    capsys.readouterr()
    assert cli.main(["eval", str(run), "--splits", "test"]) == 0
    printed = capsys.readouterr().out
    assert "accuracy 1" in printed
    assert "Confusion matrix (test)" in printed
    assert [line.split() for line in printed.splitlines() if line.startswith(("bad", "good"))] == [
        ["bad", "3", "0", "3"],
        ["good", "0", "2", "2"],
    ]
    assert cli.main(["predict", str(run), "a fine song", ""]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("good  (good ")
    assert second.split()[0] in ("good", "bad")
    assert cli.main(["predict", str(run), "--json", "a dull pity"]) == 0
    answer = json.loads(capsys.readouterr().out)["answer"]
    assert answer == linnet.load(run).predict(["a dull pity"])[0]
    assert answer["label"] == "bad"
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-4)


def test_eval_reads_other_texts(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run, other = tmp_path / "run", tmp_path / "other.csv"
    train(settings(table, steps=2), run)
    other.write_text("review,stars\n" + "fine,good\ndull,bad\n" * 10)
    columns = ["--text", "review", "--label", "stars"]
    assert cli.main(["eval", str(run), "--path", str(other), *columns, "--splits", "train"]) == 0
    assert "all\nbad" in capsys.readouterr().out
    other.write_text("review,stars\n" + "fine,good\ndull,awful\n" * 10)
    assert cli.main(["eval", str(run), "--path", str(other), *columns]) == 1
    assert "has the class 'awful', which no training text has" in capsys.readouterr().err


def test_a_run_keeps_the_details_of_its_test(table: Path, tmp_path: Path):
    train(settings(table, steps=1), tmp_path / "run")
    confusion, mistakes = read_details(tmp_path / "run")
    assert confusion.head == ("class", "bad", "good", "all")
    assert sum(int(row[-1]) for row in confusion.rows) == 5
    wrong = sum(int(confusion.rows[row][column]) for row, column in ((0, 2), (1, 1)))
    assert len(mistakes.rows) == wrong
    assert read_run(tmp_path / "run").details == [confusion, mistakes]


def test_a_loss_that_is_not_finite_after_the_last_update_ends_the_run(table: Path, tmp_path: Path):
    """The accuracy, by which the best weights are selected, is finite with any weights."""
    config = settings(table, steps=1, lr=1e38, optimiser="sgd", clip=0.0, fused=False)
    for _ in range(2):
        with pytest.raises(NotFinite, match="the validation loss is nan after step 1"):
            train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    assert not (tmp_path / "run" / "best").exists()


def test_a_test_whose_loss_is_not_finite_ends_the_run(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known = Run.measure

    def measure(run: Run, split: str) -> Any:
        metrics = known(run, split)
        metrics.total += math.inf if split == "test" else 0.0
        return metrics

    monkeypatch.setattr(Run, "measure", measure)
    with pytest.raises(NotFinite, match="the test loss is inf after step 1"):
        train(settings(table, steps=1), tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_run_with_many_classes_finishes_and_is_read_again(tmp_path: Path):
    """Their confusion matrix would have 21 MB, more than Linnet reads of a file of figures."""
    table = tmp_path / "many.csv"
    rows = [f"word{number % 7} bird,class{number % 1200}" for number in range(1300)]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    files = {"valid_path": str(table), "test_path": str(table)}
    config = settings(table, steps=1, eval_batch=1300, **files)
    result = train(config, tmp_path / "run")
    confusions, _ = read_run(tmp_path / "run").details
    assert train(config, tmp_path / "run") == result
    assert (confusions.title, confusions.head) == ("Largest confusions", ("class", "answer", "texts", "all"))
    assert 0 < len(confusions.rows) <= 100
    assert (tmp_path / "run" / "details.json").stat().st_size < 100_000


def test_the_largest_confusions_of_many_classes(table: Path):
    task = task_of(table)
    task.target = OneClass([f"class{number}" for number in range(101)])
    counts = 9 * torch.eye(101, dtype=torch.int64)
    counts[3, 5], counts[5, 3], counts[100, 0], counts[7, 7] = 4, 2, 4, 0
    section = confusion(task.classes, counts)
    assert section.rows == (
        ("class3", "class5", "4", "13"),
        ("class100", "class0", "4", "13"),
        ("class5", "class3", "2", "11"),
    )
    assert section.about.endswith(
        "The 3 most frequent confusions of 101 classes, and all texts of the class. "
        "1 of them have no text in this split."
    )


def test_details_that_are_too_large_lose_their_last_rows(tmp_path: Path):
    rows = tuple((str(number), "x" * 2000) for number in range(20_000))
    write_details(tmp_path, [Section("Rows", "All of them.", ("number", "text"), rows)])
    (section,) = read_details(tmp_path)
    assert section.rows == rows[:5000]
    assert section.about == "All of them. Only the first 5,000 rows are stored."
    write_details(tmp_path, [Section("Row", "One.", ("text",), (("x" * 2**25,),))])
    assert read_details(tmp_path) == [Section("Row", "One. Only the first 0 rows are stored.", ("text",), ())]
    with pytest.raises(ValueError, match="such a file has at most 16,777,216"):
        write_json(tmp_path / "figures.json", "x" * 2**25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", 1),
        ("head", "class"),
        ("head", ["class", 1]),
        ("rows", None),
        ("rows", [["one"]]),
        ("rows", [["bad", "1", "2", 3]]),
    ],
)
def test_details_that_are_damaged(table: Path, tmp_path: Path, name: str, value: Any):
    section = confusion(task_of(table).classes, torch.eye(2, dtype=torch.int64))
    write_details(tmp_path, [section])
    assert read_details(tmp_path) == [section]
    write_json(tmp_path / "details.json", sealed({"sections": [{**section._asdict(), name: value}]}))
    with pytest.raises(Damaged, match=r"details\.json"):
        read_details(tmp_path)


def test_the_report_shows_details_and_escapes_texts(table: Path, tmp_path: Path):
    section = confusion(task_of(table).classes, torch.eye(2, dtype=torch.int64))._replace(
        title="<b>Confusion"
    )
    train(settings(table, steps=1), tmp_path / "run")
    (tmp_path / "run" / "details.json").unlink()
    write_details(tmp_path / "run", [section])
    made = page([read_run(tmp_path / "run")], "one run")
    assert "&lt;b&gt;Confusion" in made
    assert "<b>" not in made
    assert "<tr><td class=text>bad</td><td>1</td><td>0</td><td>1</td></tr>" in made


# ------------------------------------------------------------------------------------------- figures


def collected(logits: torch.Tensor, labels: torch.Tensor) -> ClassMetrics:
    metrics = ClassMetrics(logits.shape[1])
    for start in range(0, len(labels), 7):
        part = slice(start, start + 7)
        rows = torch.arange(len(labels))[part]
        total = F.cross_entropy(logits[part], labels[part], reduction="sum")
        metrics.update(StepResult(total, total, len(rows), 0, outputs=(logits[part], labels[part], rows)))
    return metrics


def test_figures_are_those_of_scikit_learn():
    scores = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 4, generator=generator)
    logits[:, 3] = -9  # never an answer
    for most in (4, 3):  # class 3 occurs as a label, and not at all
        labels = torch.randint(most, (50,), generator=generator)
        metrics, answers = collected(logits, labels), logits.argmax(-1)
        found = metrics.compute()
        assert found["f1"] == pytest.approx(
            scores.f1_score(labels, answers, average="macro", zero_division=0)
        )
        assert found["accuracy"] == pytest.approx(scores.accuracy_score(labels, answers))
        known = scores.confusion_matrix(labels, answers, labels=range(4))
        assert metrics.confusion.tolist() == known.tolist()


def test_macro_f1_by_hand():
    # precision 2/3 and recall 1; precision 1 and recall 1/2
    assert macro_f1(torch.tensor([[2, 0], [1, 1]])) == pytest.approx((0.8 + 2 / 3) / 2)
    assert macro_f1(torch.zeros(2, 2, dtype=torch.int64)) == 0


def test_the_most_confident_mistakes_come_first(table: Path):
    task = task_of(table)
    logits = torch.tensor([[0.0, 1.0], [0.0, 3.0], [2.0, 0.0], [0.0, 2.0]])
    metrics = collected(logits, torch.tensor([0, 0, 0, 1]))
    confusion, mistakes = task.details("test", metrics)
    assert confusion.rows == (("bad", "1", "2", "3"), ("good", "0", "1", "1"))
    assert [row[0] for row in mistakes.rows] == ["0.953", "0.731"]
    assert mistakes.rows[0][1:3] == ("good", "bad")
    assert mistakes.rows[0][3] == task.texts.test[1].text
    assert "of 2 wrong" in mistakes.about


def test_a_class_that_a_split_does_not_have_is_named(table: Path):
    metrics = collected(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    assert "No text of this split has the class good." in task_of(table).details("test", metrics)[0].about


def test_label_smoothing_is_that_of_lrn(table: Path):
    """.9 on the class and .1 shared by the others, in training only."""
    task = task_of(table, label_smoothing=0.1, input_dropout=0.0, pooled_dropout=0.0)
    model, batch = task.build(), next(task.batches("train", 1))
    logits = task.logits(model, batch).log_softmax(-1).detach()
    target = torch.full_like(logits, 0.1)
    target[torch.arange(len(batch)), batch.labels] = 0.9
    assert float(task.step(model, batch, None).total) == pytest.approx(
        float(-(target * logits).sum()), rel=1e-5
    )
    model.eval()
    plain = F.nll_loss(logits, batch.labels, reduction="sum")
    assert float(task.step(model, batch, None).total) == pytest.approx(float(plain), rel=1e-5)


# ------------------------------------------------------------------------------- words and vectors


def test_vocabularies(table: Path, tmp_path: Path):
    common = task_of(table, least=20).vocabulary.tokens
    assert common[:4] == ("<pad>", "<unk>", "<eos>", "a")
    task = task_of(table, vocabulary="all")
    assert set(" ".join((*GOOD, *BAD)).split()) == set(task.vocabulary.tokens[3:])
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("fine 3 4\nunheard 1 1\nsong 0 2\n")
    kept = task_of(table, vocabulary="vectors", vectors=str(vectors), embedding_size=2)
    assert kept.vocabulary.tokens[3:] == ("fine", "song")
    with pytest.raises(DataError, match="needs pretrained vectors; give --vectors"):
        task_of(table, vocabulary="vectors")


def test_words_keep_or_lose_their_case(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "A Bird,x\na bird,y\n" * 20)
    assert task_of(path, lowercase=False).vocabulary.tokens[3:] == ("A", "Bird", "a", "bird")
    task = task_of(path, inputs="both")
    assert task.vocabulary.tokens[3:] == ("a", "bird")
    upper, lower = (task.example([["Bird"]]), task.example([["bird"]]))
    assert torch.equal(upper.inputs, lower.inputs)
    assert not torch.equal(upper.features["spelling"], lower.features["spelling"])
    characters = task.spellings.look_up(torch.cat([upper.features["spelling"], lower.features["spelling"]]))
    assert torch.equal(characters, task.characters.encode(["Bird", "bird"])[:, :4])


def test_pretrained_vectors_are_placed_scaled_and_frozen(table: Path, tmp_path: Path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("fine 3 4\nsong 0 2\n")
    how = {"vectors": str(vectors), "embedding_size": 2, "vocabulary": "all"}
    task = task_of(table, **how)
    torch.manual_seed(1)
    rows = task.build().embedding.rows()  # type: ignore[union-attr]
    index = task.vocabulary.index
    assert rows[index["fine"]].tolist() == [3, 4]
    others = torch.cat([rows[: index["fine"]], rows[index["fine"] + 1 :]])
    assert (others.abs() > 0.25).sum() == 1  # that of "song"
    frozen = task_of(table, **how, unit_norm=True, tuned="none").build()
    rows = frozen.embedding.rows()  # type: ignore[union-attr]
    torch.testing.assert_close(rows[index["fine"]], torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))
    assert not any("embedding" in name for name, _ in frozen.named_parameters())


def test_the_size_of_vectors_follows_from_the_file(table: Path, tmp_path: Path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("2 3\nfine 3 4 5\nsong 0 2 1\n")
    assert Classify.implied({"vectors": str(vectors)})["embedding_size"] == 3
    assert Classify.implied({"vectors": str(vectors), "embedding_size": 2})["embedding_size"] == 2
    with pytest.raises(ValueError, match="set embedding_size=3"):
        task_of(table, vectors=str(vectors), embedding_size=2).build()


def test_settings_that_follow_from_others():
    no_more = {"valid_path": None, "test_path": None}
    assert Classify.implied({"path": "a.csv"}) == {"set": "own", "path": "a.csv", **no_more}
    assert Classify.implied({"set": "mr"}) == {"set": "mr", "path": None, **no_more}


# ------------------------------------------------------------------------------------------- batches


def test_batches_in_file_order_are_made_once(table: Path):
    task = task_of(table, order="file", batch=8)
    first, second = list(task.batches("train", 1)), list(task.batches("train", 2))
    assert [batch.rows.tolist() for batch in first][:2] == [list(range(8)), list(range(8, 16))]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert next(task.batches("train", 3, first=2)) is first[2]
    shuffled = task_of(table, batch=8)
    orders = [[batch.rows.tolist() for batch in shuffled.batches("train", epoch)] for epoch in (1, 2)]
    assert orders[0] != orders[1]


def test_a_model_that_reads_characters_has_other_batches(table: Path):
    words, both = task_of(table), settings(table, inputs="both").model
    assert not next(words.batches("valid")).inputs.features
    assert "spelling" in next(words.with_model(both).batches("valid")).inputs.features


def test_long_texts_are_cut_in_training_only(table: Path):
    task = task_of(table, max_length=2)
    assert max(len(batch.inputs.steps) for batch in task.batches("train", 1)) == 2
    assert max(len(batch.inputs.steps) for batch in task.batches("train")) == 4


# --------------------------------------------------------------------------------------- bad input


def test_one_class_only(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x,good\n" * 20)
    with pytest.raises(DataError, match="only 'good'; classification needs at least two classes"):
        task_of(path)


def test_a_label_of_validation_that_training_has_not(table: Path, tmp_path: Path):
    other = tmp_path / "valid.csv"
    other.write_text("text,label\nx,good\ny,fair\n")
    with pytest.raises(
        DataError, match=r"valid\.csv, line 3 has the class 'fair', which no training text has"
    ):
        task_of(table, valid_path=str(other))


def test_too_few_texts_for_three_splits(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nx,good\ny,bad\n")
    with pytest.raises(DataError, match="the valid set has no texts"):
        task_of(path)


def test_a_class_that_a_fold_does_not_have_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "x,good\ny,bad\n" * 20 + "z,odd\n")
    task_of(path)
    assert caplog.messages == [
        "the valid set has no text of the class odd",
        "the test set has no text of the class odd",
    ]


def test_of_equally_good_validations_the_first_is_kept(table: Path, tmp_path: Path):
    result = train(settings(table, lr=0.0, epochs=3, batch=13), tmp_path / "run")
    assert (result["step"], result["best_step"]) == (9, 3)


def test_numbers_are_sorted_by_value(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"x,{label}\n" for label in (10, 9, 1, 2) * 9))
    assert task_of(path).classes == ("1", "2", "9", "10")


@pytest.mark.parametrize("content", [b"{", b"{}", b'["one"]', b"[1, 2]"])
def test_classes_that_are_damaged(table: Path, content: bytes):
    task = task_of(table)
    with pytest.raises(DataError, match=r"classes\.json"):
        Classify(task.data, task.model, 1, {**task.assets(), "classes.json": content})


# ------------------------------------------------------------------------------------------- folds


def test_cross_validation_is_paired_by_fold(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "compare"
    options = ["--path", str(table), "--units", "cnn", "sru", "--folds", "3", "--budget", "1500"]
    small = ["--embedding-size", "4", "--epochs", "2", "--device", "cpu", "--run-dir", str(folder)]
    assert cli.main(["compare", "classify", *options, *small]) == 0
    printed = capsys.readouterr().out
    results = {
        name: [read_run(folder / f"{name}-fold{fold}").result["test"]["accuracy"] for fold in range(3)]
        for name in ("cnn", "sru")
    }
    differences = torch.tensor(results["sru"]) - torch.tensor(results["cnn"])
    error = float(differences.std()) / math.sqrt(3)
    line = next(line for line in printed.splitlines() if line.split()[:2] == ["sru", "3"])
    assert line.split()[2] == f"{sum(results['sru']) / 3:.4f}"
    assert line.split()[4:] == [f"{float(differences.mean()):.4f}", f"{error:.4f}"]
    assert "Repeated runs" in (folder / "report.html").read_text()
    tested = [
        Classify(run.config.data, run.config.model).texts.test for run in map(read_run, folder.glob("sru*"))
    ]
    assert sorted(row.where for part in tested for row in part) == sorted(
        row.where for part in task_of(table).texts for row in part
    )


def test_the_lens_of_a_fold_has_the_words_of_that_fold(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Each fold has a vocabulary of its own."""
    texts = "".join(f"a song of bird{i},bird\na noise of bird{i},crow\n" * (1 + i % 2) for i in range(20))
    (tmp_path / "birds.csv").write_text("text,label\n" + texts)
    folder = tmp_path / "compare"
    options = ["--path", str(tmp_path / "birds.csv"), "--units", "sru", "--folds", "2", "--epochs", "1"]
    small = ["--embedding-size", "4", "--budget", "1500", "--device", "cpu", "--run-dir", str(folder)]
    assert cli.main(["compare", "classify", *options, *small]) == 0
    runs = [read_run(folder / f"sru-fold{fold}") for fold in range(2)]
    words = [json.loads((run.folder / "vocabulary.json").read_text())["tokens"] for run in runs]
    page = (folder / "lens.html").read_text()
    shown = json.loads(page.partition('"tokens": ')[2].partition("]")[0] + "]")
    assert words[0] != words[1]
    assert shown == words[runs.index(best_run(runs))]


def test_folds_of_sets(capsys: pytest.CaptureFixture[str]):
    data = override(RunConfig(task="classify"), {"set": "mr"}).data
    assert Classify.fold_settings(data, 3) == [{"fold": 0}, {"fold": 1}, {"fold": 2}]
    with pytest.raises(ValueError, match="the set mr has 10 folds; got --folds 11"):
        Classify.fold_settings(data, 11)
    with pytest.raises(ValueError, match="the set kjv has no folds"):
        Classify.fold_settings(override(RunConfig(task="classify"), {}).data, 2)
    assert cli.main(["compare", "memory.copy", "--folds", "2"]) == 1
    assert "memory.copy has no folds" in capsys.readouterr().err
