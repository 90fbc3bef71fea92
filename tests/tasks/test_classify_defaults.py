"""What `linnet train classify` and `nli` do by default: counted words, markup, and what exports say."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_task, same

import linnet
from linnet import cli
from linnet.data.labelled import MARKUP, without_markup
from linnet.runs.config import RunConfig, override
from linnet.runs.errors import Mismatch
from linnet.runs.records import read_result
from linnet.train.loop import train

SMALL = {"hidden_size": 4, "embedding_size": 4, "device": "cpu", "threads": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Texts in which pairs of words, but no single words, tell the classes apart."""
    draw, lines = random.Random(1), ["text,label"]
    for number in range(240):
        pairs = ("not good", "very bad") if number % 2 else ("very good", "not bad")
        noise = " ".join(draw.choices("abcdefghij", k=6))
        lines.append(f"{noise} , {pairs[draw.random() < 0.5]} {noise},{('up', 'down')[number % 2]}")
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(lines).replace(" , ", " ") + "\n")
    return path


def settings(task: str, path: Path, **more: Any) -> RunConfig:
    return override(RunConfig(task=task), {**SMALL, "set": "own", "path": str(path), **more})


def test_a_stranger_beats_tf_idf_by_the_defaults(table: Path, tmp_path: Path):
    """The baseline counts words only, so it cannot learn these classes."""
    assert cli.main(["train", "classify", "--path", str(table), "--run-dir", str(tmp_path / "run")]) == 0
    result = read_result(tmp_path / "run")
    assert result is not None
    linear = next(each for each in result["baselines"] if each["name"].startswith("TF-IDF"))
    assert result["test"]["accuracy"] > 0.9 > linear["figures"]["accuracy"] + 0.1


def test_counts_alone_learn_pairs_of_words(table: Path):
    """Without the network, whose output weights are set to 0."""
    found = {}
    for counts in ("words", "bigrams"):
        task = make_task(settings("classify", table, counts=counts))
        model = task.build()
        optimiser = torch.optim.Adam(model.counts.parameters(), 0.01)
        torch.nn.init.zeros_(model.output.weight)
        for epoch in range(1, 16):
            for batch in task.batches("train", epoch):
                optimiser.zero_grad()
                task.step(model, batch, None).objective.backward()
                optimiser.step()
        metrics = task.metrics()
        with torch.no_grad():
            for batch in task.batches("test"):
                metrics.update(task.step(model.eval(), batch, None))
        found[counts] = metrics.compute()["accuracy"]
    assert found["bigrams"] == 1
    assert found["words"] < 0.8


def test_a_trained_run_counts_as_it_did(table: Path, tmp_path: Path):
    train(settings("classify", table, steps=3), tmp_path / "run")
    run = linnet.load(tmp_path / "run")
    assert run.model.counts is not None
    assert run.task.pairs == len(run.model.counts.pairs) > 10
    assert run.model.counts.idf.count_nonzero() == len(run.model.counts.idf) - 3
    table.unlink()
    again = linnet.load(tmp_path / "run")
    assert again.predict(["a not good b"]) == run.predict(["a not good b"])
    (tmp_path / "run" / "counts.json").write_text('{"pairs": 3}')
    with pytest.raises(Mismatch, match=r"another model or vocabulary: pairs is \d+ there and 3 here"):
        linnet.load(tmp_path / "run")


def test_another_way_to_count_is_another_task(table: Path):
    task = make_task(settings("classify", table))
    other = task.with_model(override(RunConfig(task="classify"), {**SMALL, "counts": "words"}).model)
    assert task.pairs > other.pairs == 0
    assert len(other.build().counts.idf) == len(task.vocabulary)
    assert make_task(settings("classify", table, counts="none")).build().counts is None


def test_the_network_starts_the_same_with_and_without_counts(table: Path):
    weights = []
    for counts in ("none", "bigrams"):
        task = make_task(settings("classify", table, counts=counts))
        torch.manual_seed(1)
        weights.append(task.build().output.weight.detach())
    same(*weights)


# ------------------------------------------------------------------------------------------- pairs


def test_nli_counts_the_words_that_the_premise_does_not_have(tmp_path: Path):
    """A hypothesis is 'same' if all its words are in the premise; the words themselves say nothing."""
    draw, lines = random.Random(2), ["premise\thypothesis\tlabel"]
    for number in range(300):
        words = draw.sample("abcdefghijklmnop", 8)
        hypothesis = words[:3] if number % 2 else [*words[:2], words[7]]
        lines.append(f"{' '.join(words[:5])}\t{' '.join(hypothesis)}\t{('new', 'same')[number % 2]}")
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n")
    result = train(settings("nli", path, epochs=12, heads=1, lr=0.01, patience=0), tmp_path / "run")
    assert result["test"]["accuracy"] > 0.9
    answer = linnet.load(tmp_path / "run").predict(["a b c d e ||| a b c"])[0]
    assert answer["label"] == "same"


# ------------------------------------------------------------------------------------------ markup


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fine.<br /><br />Bad", "fine.  Bad"),
        ('see <A href="x>y" class=b>this</A>', "see  this "),
        ("a &amp;lt; b&nbsp;c &#39;d&quot;", "a &lt; b c 'd\""),
        ("1 <2 and <unk> x<y> < b > 3", "1 <2 and <unk> x<y> < b > 3"),
        ("<b and c>", "<b and c>"),
    ],
)
def test_markup_is_removed_and_nothing_else(text: str, expected: str):
    assert without_markup(text) == expected


def test_markup_is_read_where_the_user_says_so(table: Path):
    table.write_text("text,label\n" + "good<br />song,up\nbad <p>song,down\n" * 20)
    task = make_task(settings("classify", table))
    assert task.split_words("good<br />song") == ["good", "song"]
    typed = task.typed_text()
    assert typed is not None
    assert typed.rewrites == MARKUP
    kept = make_task(settings("classify", table, strip_markup=False))
    assert "br" in kept.split_words("good<br />song")
    assert "br" in kept.vocabulary.tokens
    assert "br" not in task.vocabulary.tokens
    # Sets by name are read as their papers do.
    assert not make_task(override(RunConfig(task="classify"), {**SMALL, "set": "kjv"})).strips_markup


# ----------------------------------------------------------------------------------------- exports


@pytest.mark.parametrize("target", ["c", "js", "onnx"])
def test_exports_refuse_counts_and_say_what_to_set(
    target: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train(settings("classify", table, steps=1, bidirectional=False), tmp_path / "run")
    capsys.readouterr()
    assert cli.main(["export", str(tmp_path / "run"), "--to", target, "--out", str(tmp_path / target)]) == 1
    assert "--counts none" in capsys.readouterr().err


def test_int8_keeps_the_counts(table: Path):
    task = make_task(settings("classify", table))
    model = task.build().eval()
    torch.nn.init.normal_(model.counts.weight)
    tokens = torch.randint(3, len(task.vocabulary), (9, 2))
    with torch.no_grad():
        small = linnet.quantize(model)
        assert (small(tokens) - model(tokens)).abs().max() < 0.05
        assert model.counts(tokens).abs().max() > 0.5


def test_the_lens_names_the_options_that_it_needs(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    train(settings("classify", table, steps=1), tmp_path / "run")
    capsys.readouterr()
    assert cli.main(["lens", str(tmp_path / "run")]) == 1
    assert "--no-bidirectional --pooling last --inputs words --counts none" in capsys.readouterr().err
