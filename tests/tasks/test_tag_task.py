"""Tagging beyond the contract: vectors, entities, predictions, bad input, the LRN authors' protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_task

import linnet
from linnet.cli import main
from linnet.data.errors import DataError
from linnet.runs.config import RunConfig, override
from linnet.tasks.tag import Tag, TagMetrics, entities, spelling_of
from linnet.train.loop import train
from linnet.train.recipes import RECIPES

SENTENCES = "Anna B-PER\nsang O\nin O\nNew B-LOC\nYork I-LOC\n\nBen B-PER\nlistened O\n\n"
SMALL: dict[str, Any] = {
    **{"unit": "lrn", "hidden_size": 8, "embedding_size": 4, "character_hidden": 3, "dense_size": 0},
    **{"device": "cpu", "threads": 1, "lr": 0.03, "input_dropout": 0.0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagged")
    (folder / "train.txt").write_text(SENTENCES * 20, encoding="utf-8")
    (folder / "vectors.txt").write_text("anna 1 2 3 4\nsang 5 6 7 8\nrome 9 10 11 12\n", encoding="utf-8")
    return folder


def config(folder: Path, **more: Any) -> RunConfig:
    return override(RunConfig(task="tag"), {**SMALL, "set": "own", "path": str(folder / "train.txt"), **more})


def task(folder: Path, **more: Any) -> Tag:
    return make_task(config(folder, **more))


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("run") / "run"
    train(config(folder, epochs=8), into)
    return into


# ------------------------------------------------------------------------------------ a trained run


def test_a_trained_tagger_finds_the_entities(run: Path):
    found = linnet.load(run)
    (answer,) = found.predict("Anna sang in New York")
    assert answer["words"] == ["Anna", "sang", "in", "New", "York"]
    assert answer["tags"] == ["B-PER", "O", "O", "B-LOC", "I-LOC"]
    assert answer["entities"][1] == {"type": "LOC", "text": "New York", "first": 3, "last": 4}
    assert found.evaluate("test")["f1"] == 1


def test_sentences_are_strings_or_lists_of_words_and_may_be_empty(run: Path):
    found = linnet.load(run)
    answers = found.predict(["Anna sang.", ["Anna", "sang."], "", []])
    assert [answer["words"] for answer in answers] == [["Anna", "sang", "."], ["Anna", "sang."], [], []]
    assert all(len(answer["tags"]) == len(answer["words"]) for answer in answers)
    assert found.predict("Anna\n sang")[0]["words"] == ["Anna", "sang"]
    assert answers[2] == {"words": [], "tags": [], "entities": []}
    assert answers == [found.predict([each])[0] for each in ("Anna sang.", ["Anna", "sang."], "", [])]


def test_eval_shows_the_types_of_entities(run: Path, capsys: pytest.CaptureFixture[str]):
    main(["eval", str(run), "--splits", "test"])
    shown = capsys.readouterr().out
    assert "f1 1" in shown
    assert "Entities by type" in shown
    assert any(line.split()[:4] == ["LOC", "1.0000", "1.0000", "1.0000"] for line in shown.splitlines())


def test_predict_reads_a_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "input.txt").write_text("Ben listened\n\nAnna\n", encoding="utf-8")
    main(["predict", str(run), "--file", str(tmp_path / "input.txt"), "--json"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert '"tags": ["B-PER", "O"]' in lines[0]


def test_predict_prints_words_with_their_tags(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", str(run), "Anna sang in New York", ""]) == 0
    assert capsys.readouterr().out == "Anna/B-PER sang in New/B-LOC York/I-LOC\n\n"


def test_generate_and_dynamic_evaluation_are_for_language_models(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["generate", str(run)]) == 1
    assert "is a run of 'tag' and no language model; see linnet predict" in capsys.readouterr().err
    assert main(["eval", str(run), "--dynamic"]) == 1
    assert "is a run of 'tag', and --dynamic is for language models" in capsys.readouterr().err


def test_capitals_and_punctuation_are_restored():
    task = make_task(override(RunConfig(task="tag"), SMALL))
    (answer,) = task.predict(task.build().eval(), ["Where is God's house?"])
    assert answer["words"] == ["where", "is", "god's", "house"]
    assert answer["text"].lower().startswith("where")
    assert task.show(answer) == answer["text"]


# ------------------------------------------------------------------------------------------ vectors


def test_words_start_from_their_vectors_and_others_from_zero(folder: Path):
    made = task(folder, vectors=str(folder / "vectors.txt"))
    embedding, known = made.build().embedding, made.vocabulary
    assert known.fixed == ("rome",)
    rows = embedding(torch.tensor([known.encode(["Anna", "Rome", "Ben", "unheard"])]))[0]
    assert rows.tolist() == [[1, 2, 3, 4], [9, 10, 11, 12], [0] * 4, [0] * 4]
    assert len(embedding.trained) == known.rows == 8


def test_vectors_of_another_width_are_an_error(folder: Path):
    with pytest.raises(ValueError, match=r"vectors must be \[9, 5\], a row for each word; got \[9, 4\]"):
        task(folder, vectors=str(folder / "vectors.txt"), embedding_size=5).build()
    assert Tag.implied({"vectors": str(folder / "vectors.txt")})["embedding_size"] == 4


def test_rows_that_do_not_occur_stay_where_they_are_under_adam():
    """Why only the vectors of training words are parameters: the others would never move."""
    table = torch.nn.Embedding(4, 2)
    optimiser, before = torch.optim.Adam(table.parameters(), lr=0.1), table.weight.detach().clone()
    for _ in range(5):
        optimiser.zero_grad()
        table(torch.tensor([0, 2])).square().sum().backward()
        optimiser.step()
    assert torch.equal(table.weight[[1, 3]], before[[1, 3]])
    assert not torch.equal(table.weight[[0, 2]], before[[0, 2]])


# ---------------------------------------------------------------------------------------- bad input


def test_a_tag_that_only_validation_has_is_named(folder: Path, tmp_path: Path):
    (tmp_path / "valid.txt").write_text("Anna B-PER\n\nMay B-DATE\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"valid.txt, line 3 has the tag 'B-DATE'.*expected one of O, B-LOC"):
        task(folder, valid_path=str(tmp_path / "valid.txt"))


def test_one_tag_only_is_an_error(tmp_path: Path):
    (tmp_path / "train.txt").write_text("a O\nb O\n\n" * 9, encoding="utf-8")
    with pytest.raises(DataError, match="have the tag 'O'; expected at least two tags"):
        task(tmp_path)


# ----------------------------------------------------------------------------------------- entities


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["I-PER", "I-PER", "B-PER"], [("PER", 0, 1), ("PER", 2, 2)]),  # IOB1
        (["B-PER", "I-PER", "O", "I-LOC"], [("PER", 0, 1), ("LOC", 3, 3)]),  # a stray I- opens an entity
        (["B-PER", "I-LOC"], [("PER", 0, 0), ("LOC", 1, 1)]),
        (["S-PER", "B-LOC", "E-LOC"], [("PER", 0, 0), ("LOC", 1, 2)]),  # IOBES
        (["NN", "NN", "O", "VB"], [("NN", 0, 0), ("NN", 1, 1), ("VB", 3, 3)]),  # no prefixes
        ([], []),
    ],
)
def test_entities_of_any_scheme(tags: list[str], expected: list[tuple[str, int, int]]):
    assert entities(tags) == expected


def test_figures_without_any_entity_are_zero():
    figures = TagMetrics(["O"]).compute()
    assert figures == {"loss": 0, "f1": 0, "precision": 0, "recall": 0, "accuracy": 0}


# ------------------------------------------------------------------------------------ unknown words


def test_rare_words_are_read_as_unknown_in_training_only(folder: Path):
    made = task(folder, rare_dropout=1e9)
    batch = next(iter(made.batches("valid")))
    read: list[torch.Tensor] = []
    model = made.build()
    model.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    made.step(model.train(), batch, None)
    made.step(model.eval(), batch, None)
    assert not read[0].any()
    assert torch.equal(read[1], batch.inputs.steps)


def test_a_word_is_dropped_the_less_the_more_often_it_occurs(tmp_path: Path):
    often = "Anna B-PER\nsang O\n\n" * 29 + "Ben B-PER\nsang O\n\nAnna B-PER\nslept O\n\n"
    (tmp_path / "train.txt").write_text(often, encoding="utf-8")
    path = str(tmp_path / "train.txt")
    made = task(tmp_path, rare_dropout=1.0, valid_path=path, test_path=path)
    words = torch.tensor(made.vocabulary.encode(["sang", "Ben"])).repeat(4000, 1)
    torch.manual_seed(1)
    shares = (made.drop_rare(words) == 0).float().mean(0)
    torch.testing.assert_close(shares, torch.tensor([1 / 31, 1 / 2]), rtol=0, atol=0.03)


def test_the_vector_of_unknown_words_is_learned_by_default(folder: Path):
    assert RunConfig(task="tag").data.rare_dropout > 0
    made = task(folder)
    model = made.build().train()
    made.step(model, next(iter(made.batches("train", 1))), None).objective.backward()
    assert model.embedding.trained.grad[0].any()


# ---------------------------------------------------------------------------------------- protocol


def test_the_recipes_are_the_authors_protocol():
    for unit in ("lstm", "gru", "atr", "sru", "lrn"):
        made = override(RunConfig(task="tag"), RECIPES[f"lrn-ner-{unit}"].settings)
        assert (made.model.unit, made.model.hidden_size, made.model.input_dropout) == (unit, 100, 0.5)
        assert (made.data.set, made.data.batch, made.data.order) == ("conll2003", 32, "chunks")
        assert (made.optimiser.lr, made.optimiser.epsilon, made.optimiser.clip) == (1e-3, 1e-7, 0)
        assert (made.loop.epochs, made.loop.select, made.model.released_crf) == (30, "last", True)


def test_the_further_tag_of_the_released_crf_is_no_entity(folder: Path):
    made = task(folder, released_crf=True)
    model = made.build()
    assert model.output.out_features == len(made.vocabulary.tags) + 1
    with torch.no_grad():
        model.output.bias[-1] = 1e4
    (answer,) = made.predict(model.eval(), ["Anna sang"])
    assert answer["tags"] == ["O", "O"]


def test_the_loss_of_a_sentence_is_divided_by_its_words(folder: Path):
    made = task(folder)
    model = made.build().double().eval()
    batch = next(iter(made.batches("valid")))
    lengths = batch.inputs.lengths
    scores = model(
        batch.inputs.steps, lengths, spelling_of(made.spellings, batch.inputs.features["spelling"])
    )
    assert batch.labels is not None
    mean = model.decoder(scores, batch.labels, lengths=lengths, reduction="sequence_token_mean")
    assert set(lengths.tolist()) == {2, 5}
    torch.testing.assert_close(made.step(model, batch, None).objective, -mean, rtol=1e-12, atol=0)
