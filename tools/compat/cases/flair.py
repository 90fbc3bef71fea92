"""flair: SequenceTagger with a CRF; the tag of a word is the word before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from flair.data import Corpus, Sentence
from flair.embeddings import OneHotEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

from tools.compat.contestants import RNN, as_lstm_of_torch

SIZES = {"train": 200, "dev": 20, "test": 20}


def corpus() -> Corpus:
    random = Random(0)
    parts = {name: [sentence(random) for _ in range(count)] for name, count in SIZES.items()}
    return Corpus(**parts, sample_missing_splits=False)


def sentence(random: Random) -> Sentence:
    words = random.choices("abcd", k=random.randint(3, 20))
    made = Sentence(words)
    for token, before in zip(made, ["none", *words], strict=False):
        token.add_label("before", before)
    return made


def tagger(rnn: RNN, data: Corpus) -> SequenceTagger:
    tags = data.make_label_dictionary("before", add_unk=False)
    embeddings = OneHotEmbeddings.from_corpus(data, embedding_length=50, min_freq=1)
    with as_lstm_of_torch(rnn):
        return SequenceTagger(embeddings, tags, "before", hidden_size=128, word_dropout=0, locked_dropout=0)


def train(model: SequenceTagger, data: Corpus, folder: Path, epochs: int) -> Any:
    options = {"optimizer": torch.optim.Adam, "learning_rate": 0.005, "mini_batch_size": 20}
    return ModelTrainer(model, data).train(folder, max_epochs=epochs, **options)


def check(rnn: RNN, folder: Path) -> None:
    data = corpus()
    model = tagger(rnn, data)
    with as_lstm_of_torch(rnn):
        # At the end, flair loads the model of the best epoch.
        assert train(model, data, folder, epochs=4)["test_score"] > 0.9
        loaded = SequenceTagger.load(folder / "final-model.pt")
    assert type(loaded.rnn) is rnn
    model.predict(list(data.test), label_name="trained")
    loaded.predict(list(data.test), label_name="loaded")
    for token in (token for sentence in data.test for token in sentence):
        assert token.get_label("trained").value == token.get_label("loaded").value


def work(rnn: RNN) -> Callable[[], object]:
    data = corpus()
    model = tagger(rnn, data)
    return partial(epoch, model, torch.optim.Adam(model.parameters()), list(data.train))


def epoch(model: SequenceTagger, optimiser: torch.optim.Optimizer, sentences: list[Sentence]) -> None:
    for start in range(0, len(sentences), 20):
        loss, _ = model.forward_loss(sentences[start : start + 20])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        for sentence in sentences:
            sentence.clear_embeddings()
