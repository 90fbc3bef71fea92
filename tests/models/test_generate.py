"""Generation: one prompt as a stream, many prompts at once, warm-up text, windows, and sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven

import linnet
from linnet.data.vocabulary import Vocabulary, byte_vocabulary, char_vocabulary
from linnet.models.generate import Reader, Sampling, TextStream, generate, generate_texts
from linnet.models.language import LanguageModel, LanguageModelConfig

PROMPTS = ["the ", "a", "", "they said the"]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return char_vocabulary(["abcdefghijklmnopqrstuvwxyz \n"])


def model_of(vocabulary: Vocabulary, unit: str = "ran", **given: Any) -> LanguageModel:
    torch.manual_seed(1)
    config = LanguageModelConfig(unit=unit, embedding_size=5, hidden_size=6, **given)
    return liven(LanguageModel(len(vocabulary), config)).eval()


def one_by_one(model: LanguageModel, vocabulary: Vocabulary, seed: int, **how: Any) -> list[str]:
    return [
        "".join(generate(model, vocabulary, prompt, seed=seed + number, **how))
        for number, prompt in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize("unit", linnet.UNITS)
def test_a_batch_gives_the_texts_of_its_prompts_alone(vocabulary: Vocabulary, unit: str):
    model = model_of(vocabulary, unit)
    how: dict[str, Any] = {"tokens": 9, "temperature": 0.9, "top_p": 0.95}
    texts = generate_texts(model, vocabulary, PROMPTS, seed=5, **how)
    assert texts == one_by_one(model, vocabulary, 5, **how)
    assert all(text.startswith(prompt) for text, prompt in zip(texts, PROMPTS, strict=True))


@pytest.mark.parametrize(
    "how",
    [
        {"window": 4},
        {"warmup": "in the beginning"},
        {"warmup": "in the beginning", "window": 5, "top_k": 3},
        {"temperature": 0.0},
    ],
    ids=str,
)
def test_windows_and_warmup_are_the_same_in_a_batch(vocabulary: Vocabulary, how: dict[str, Any]):
    model = model_of(vocabulary, initial_state=0.1)
    texts = generate_texts(model, vocabulary, PROMPTS, tokens=12, batch=3, **how)
    assert texts == one_by_one(model, vocabulary, 1, tokens=12, **how)


def test_warmup_is_read_and_not_written(vocabulary: Vocabulary):
    model = model_of(vocabulary)
    warm = "".join(generate(model, vocabulary, "b", tokens=8, warmup="in the begin"))
    whole = "".join(generate(model, vocabulary, "in the beginb", tokens=8))
    assert warm == whole.removeprefix("in the begin")
    assert warm != "".join(generate(model, vocabulary, "b", tokens=8))


def test_carrying_the_state_equals_reading_all_again(vocabulary: Vocabulary):
    """At temperature 0 the next token is the most likely one after the whole text so far."""
    model, ids = model_of(vocabulary), vocabulary.encode("the ")
    with torch.no_grad():
        for _ in range(6):
            chances, _ = model.log_probs(ids[:, None])
            ids = torch.cat([ids, chances[-1, 0].argmax()[None]])
    assert "".join(generate(model, vocabulary, "the ", tokens=6, temperature=0.0)) == vocabulary.decode(ids)


def test_a_state_with_a_window_holds_no_more_than_that(vocabulary: Vocabulary):
    model, ids = model_of(vocabulary), vocabulary.encode("the the th").tolist()
    reader = Reader(model, window=4)
    # Full after four tokens: it restarts from the newer two, and again after every third.
    reads = [ids[:1], ids[:2], ids[:3], ids[:4], ids[3:5], ids[3:6], ids[3:7], ids[6:8], ids[6:9]]
    with torch.no_grad():
        for token, read in zip(ids, reads, strict=False):
            chances, _ = model.log_probs(torch.tensor(read)[:, None])
            torch.testing.assert_close(reader.next([[token]])[0].log_softmax(0), chances[-1, 0])


def test_top_p_and_top_k_leave_the_unlikely_out():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(300, 4)
    draws = [torch.Generator().manual_seed(seed) for seed in range(300)]
    assert set(Sampling(1.0, 0, 0.6).draw(logits, draws)) == {0, 1}
    assert set(Sampling(1.0, 0, 0.5).draw(logits, draws)) == {0}
    assert set(Sampling(1.0, 3, 1.0).draw(logits, draws)) == {0, 1, 2}
    assert set(Sampling(1.0, 0, 1.0).draw(logits, draws)) == {0, 1, 2, 3}
    assert set(Sampling(0.0).draw(logits, draws)) == {0}


def test_bytes_become_text_when_a_character_is_complete():
    vocabulary = byte_vocabulary()
    stream, ids = TextStream(vocabulary), vocabulary.encode("aé€b".encode()).tolist()
    assert [stream.text([token]) for token in ids] == ["a", "", "é", "", "", "€", "b"]


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"top_p": 0.0}, "top_p is above 0"),
        ({"temperature": -1.0}, "temperature is at least 0"),
        ({"temperature": float("nan")}, "got temperature=nan"),
        ({"top_k": -1}, "top_k must be at least 0; got -1"),
        ({"tokens": -1}, "tokens must be at least 0; got -1"),
        ({"window": 0}, "window must be at least 1; got 0"),
    ],
)
def test_wrong_settings_are_answered(vocabulary: Vocabulary, wrong: dict[str, Any], answer: str):
    with pytest.raises(ValueError, match=answer):
        list(generate(model_of(vocabulary), vocabulary, **wrong))
