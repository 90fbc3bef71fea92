"""Translation beyond the contract: what is learned, searched, scored and shown; the papers' recipes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from golden_cases import tables
from helpers import make_task

import linnet
from linnet.cli import main
from linnet.data.errors import DataError
from linnet.models.translator import make_translator
from linnet.runs.config import RunConfig, override
from linnet.tasks.results import Metric
from linnet.tasks.translate import Translate, TranslationMetrics
from linnet.train.context import planned_epochs
from linnet.train.loop import train
from linnet.train.recipes import RECIPES

ENGLISH = ["A man rides a horse.", "Two dogs play.", "A woman reads a book.", "Two women ride."]
GERMAN = [
    "Ein Mann reitet ein Pferd.",
    "Zwei Hunde spielen.",
    "Eine Frau liest ein Buch.",
    "Zwei Frauen reiten.",
]
SMALL: dict[str, Any] = {
    **{"set": "own", "pieces": 300, "hidden_size": 32, "heads": 2, "inner_size": 32, "num_layers": 1},
    **{"dropout": 0.0, "label_smoothing": 0.0, "lr": 0.01, "schedule": "constant"},
    **{"device": "cpu", "threads": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parallel")
    for name, lines in (("a.en", ENGLISH), ("a.de", GERMAN)):
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return folder


def config(folder: Path, **more: Any) -> RunConfig:
    splits = {
        f"{split}{side}": str(folder / f"a.{language}")
        for split in ("", "valid_", "test_")
        for side, language in (("source", "en"), ("target", "de"))
    }
    return override(RunConfig(task="translate"), {**SMALL, **splits, **more})


def task(folder: Path, **more: Any) -> Translate:
    return make_task(config(folder, **more))


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("run") / "run"
    train(config(folder, steps=60, epochs=60, evaluate_every=60), into)
    return into


# --------------------------------------------------------------------------------- what is learned


def test_pairs_are_learned_by_heart(run: Path):
    found = linnet.load(run)
    assert [answer["translation"] for answer in found.predict(ENGLISH)] == GERMAN
    figures = found.evaluate("test")
    assert (figures["bleu"], figures["chrf"], figures["accuracy"]) == pytest.approx((100, 100, 1))
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))


def test_a_transformer_learns_too(folder: Path, tmp_path: Path):
    settings = {"form": "transformer", "feed_forward": "unit", "unit": "sru", "steps": 60, "epochs": 60}
    train(config(folder, **settings, evaluate_every=60), tmp_path / "run")
    found = linnet.load(tmp_path / "run")
    assert [answer["translation"] for answer in found.predict(ENGLISH, beam=1)] == GERMAN


def test_text_survives_the_pieces(folder: Path):
    made = task(folder)
    for text in ("A man rides.", "Vögel — 鳥 🐦", "  two   spaces ", ""):
        tokens = made.encode(text)
        assert int(tokens[-1]) == 2
        assert (tokens[:-1] >= 3).all()
        assert made.decode(tokens) == " ".join(text.split())
    # The first word of a sentence has the same pieces as inside a sentence.
    assert made.encode("man")[:-1].tolist() == made.encode("A man")[-len(made.encode("man")) : -1].tolist()


def test_tokens_after_the_end_and_special_tokens_are_no_text(folder: Path):
    made = task(folder)
    tokens = made.encode("A man")
    assert made.decode(torch.cat([torch.tensor([0, 1]), tokens, tokens])) == "A man"


def test_smoothing_is_for_training_only(folder: Path):
    smooth, plain = task(folder, label_smoothing=0.2), task(folder)
    model = smooth.build()
    batch = next(iter(smooth.batches("valid")))
    with torch.no_grad():
        assert smooth.step(model.train(), batch, None).total != plain.step(model, batch, None).total
        assert smooth.step(model.eval(), batch, None).total == plain.step(model, batch, None).total


def test_long_pairs_are_left_out_of_training_only(folder: Path, caplog: pytest.LogCaptureFixture):
    lengths = sorted(example.length - 1 for example in task(folder).examples("train"))
    made = task(folder, max_length=lengths[1])
    with caplog.at_level("INFO", "linnet"):
        assert len(made.training_examples) == 2
    assert f"2 training pairs have a side of more than {lengths[1]} pieces" in caplog.text
    assert sum(len(batch) for batch in made.batches("valid")) == 4
    with pytest.raises(DataError, match="all 4 training pairs have a side of more than max_length=1 pieces"):
        task(folder, max_length=1).batches_per_epoch(1)


def test_a_batch_has_at_most_so_many_tokens(folder: Path):
    made = task(folder, tokens=30)
    for batch in made.batches("train", 1):
        longest = max(len(batch.inputs.steps), len(batch.second.steps))
        assert len(batch) == 1 or len(batch) * longest <= 30


# ------------------------------------------------------------------------------------------ search


def test_hypotheses_have_falling_scores(run: Path):
    found = linnet.load(run)
    (answer,) = found.predict("Two dogs ride.", beam=5, hypotheses=3)
    scores = [each["score"] for each in answer["hypotheses"]]
    assert scores == sorted(scores, reverse=True)
    assert len({each["text"] for each in answer["hypotheses"]}) == 3
    assert answer["translation"] == answer["hypotheses"][0]["text"]
    (unpenalised,) = found.predict("Two dogs ride.", beam=5, length_penalty=0.0)
    assert unpenalised["hypotheses"][0]["score"] < scores[0]


def test_sentences_are_answered_in_their_order_in_batches_of_any_size(run: Path):
    found, raw = linnet.load(run), [*ENGLISH, "", "A man rides a horse and two dogs play."]
    one, together = (found.predict(raw, batch=batch) for batch in (1, 3))
    texts = [[answer["translation"] for answer in answers] for answers in (one, together)]
    assert texts[0] == texts[1]
    assert one[4] == {"translation": "", "hypotheses": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam must be at least 1; got 0"),
        ({"hypotheses": 0}, "hypotheses must be at least 1"),
        ({"beam": 2, "hypotheses": 3}, "hypotheses=3 needs a beam of at least 3; got beam=2"),
        ({"length_penalty": -1.0}, "at least 0"),
    ],
)
def test_impossible_searches_are_refused(run: Path, options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        linnet.load(run).predict("A man", **options)


def test_bleu_of_tokens_is_that_of_multi_bleu():
    for known in tables("metrics*"):
        case = known["bleu"]
        metrics, other = TranslationMetrics("none"), TranslationMetrics("none")
        rows = [*zip(range(len(case["hyp"])), case["hyp"], case["ref"], strict=True)]
        metrics.translated, other.translated = rows[:2], rows[2:]
        metrics.merge(other)
        found = metrics.compute()
        assert found["bleu"] == pytest.approx(case["cased"], rel=1e-12)
        assert found["bleu_uncased"] == pytest.approx(case["lower"], rel=1e-12)


# ---------------------------------------------------------------------------------------- commands


def test_predict_has_the_options_of_the_search(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", str(run), ENGLISH[0], "--beam", "3", "--hypotheses", "2"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith(f"  {GERMAN[0]}")
    assert float(first.split()[0]) > float(second.split()[0])
    (tmp_path / "in.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    assert (
        main(["predict", "--length-penalty", "0", str(run), "--file", str(tmp_path / "in.txt"), "--json"])
        == 0
    )
    answers = [json.loads(line)["answer"]["translation"] for line in capsys.readouterr().out.splitlines()]
    assert answers == GERMAN
    assert main(["predict", str(run), "A man", "--beam", "0"]) == 1
    assert "beam must be at least 1; got 0" in capsys.readouterr().err


def test_eval_prints_scores_with_their_signatures(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["eval", str(run), "--splits", "test", "--beam", "2"]) == 0
    printed = capsys.readouterr().out
    assert "bleu 100" in printed
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in printed
    assert "case:lc" in printed
    assert GERMAN[0] in printed
    other = ["--source", str(folder / "a.de"), "--target", str(folder / "a.en")]
    assert main(["eval", str(run), *other]) == 0
    assert "all: loss" in capsys.readouterr().out


def test_runs_are_named_after_their_data_and_model(folder: Path):
    made = config(folder)
    assert Translate.data_name(made.data) == "a"
    sets = override(RunConfig(task="translate"), {"set": "multi30k", "direction": "de-en"})
    assert Translate.data_name(sets.data) == "multi30k-de-en"
    names = [
        Translate.unit_name(override(made, {"unit": "sru", **form}).model)
        for form in ({}, {"form": "transformer"}, {"form": "transformer", "feed_forward": "unit"})
    ]
    assert names == ["sru", "transformer", "transformer-sru"]


def test_files_imply_the_set():
    assert Translate.implied({"source": "a.en"}) == {"set": "own", "direction": None, "source": "a.en"}
    assert Translate.implied({"set": "bible"})["source"] is None
    assert Translate.implied({"lr": 0.1}) == {"lr": 0.1}


# ----------------------------------------------------------------------------------------- figures


def test_case_counts_in_bleu_but_not_in_uncased_bleu():
    metrics = TranslationMetrics()
    metrics.translated = [(0, "ein mann reitet ein pferd", "Ein Mann reitet ein Pferd")]
    found = metrics.compute()
    assert found["bleu_uncased"] == pytest.approx(100)
    assert found["bleu"] < 50


def test_without_bleu_there_is_only_the_loss(folder: Path):
    made = task(folder, bleu=False)
    metrics = made.metrics()
    with torch.no_grad():
        for batch in made.batches("valid"):
            metrics.update(made.step(made.build().eval(), batch, None))
    assert set(metrics.compute()) == {"loss", "perplexity", "accuracy"}
    assert {figure.name for figure in made.figures(made.data)} == set(metrics.compute())
    assert made.details("valid", metrics) == []


def test_evaluation_searches_as_asked(folder: Path, monkeypatch: pytest.MonkeyPatch):
    made = task(folder, beam=3, length_penalty=0.2)
    model, asked = made.build().eval(), []
    search = model.translate
    monkeypatch.setattr(model, "translate", lambda *text, **how: asked.append(how) or search(*text, **how))
    made.step(model, next(iter(made.batches("valid"))), None)
    assert asked == [{"beam": 3, "alpha": 0.2, "context": None}]


def test_bleu_selects_if_asked(folder: Path, tmp_path: Path):
    made = config(folder, best_by="bleu", steps=2, evaluate_every=1)
    assert Translate.selected_by(made.data) == Metric("bleu", higher=True)
    result = train(made, tmp_path / "run")
    assert result["best_step"] == 1  # both have a BLEU of 0: the first is the best
    with pytest.raises(ValueError, match="leave out --no-bleu"):
        config(folder, best_by="bleu", bleu=False)


def test_the_length_of_a_run_follows_the_data_by_default():
    made = RunConfig(task="translate")
    assert (made.loop.epochs, made.loop.steps, made.schedule.schedule) == (0, 0, "linear")
    # 3,000 short lines are about 100 batches.
    assert planned_epochs(made.loop.updates, 100) == 30


# ----------------------------------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sru-translate-base", 3.45e6),
        ("sru-translate-sru", 3.51e6),
        ("lrn-translate-gru", 7.93e6),
        ("lrn-translate-atr", 5.82e6),
        ("lrn-translate-sru", 7.01e6),
        ("lrn-translate-lrn", 6.34e6),
        ("lrn-translate-olrn", 6.87e6),
    ],
)
def test_recipes_have_the_sizes_of_the_guide(name: str, parameters: float):
    model = override(RunConfig(task="translate"), RECIPES[name].settings).model
    assert make_translator(8003, 8003, model, device="meta").count() == pytest.approx(parameters, abs=0.005e6)


def test_sizes_for_a_budget_are_multiples_of_the_heads(folder: Path):
    fitted = task(folder, heads=4).fitted(60_000)
    assert fitted.hidden_size % 4 == 0
