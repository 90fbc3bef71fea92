"""flair: a tagger with character features and a CRF, small and with random weights, over 32 sentences."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import CharacterEmbeddings, OneHotEmbeddings, StackedEmbeddings
from flair.models import SequenceTagger
from torch import Tensor

from tools.compat.models.shared import Convert

TAGS = ("O", "S-PER", "S-LOC", "B-ORG", "E-ORG")


def sentences() -> list[Sentence]:
    random = Random(0)
    words = ["".join(random.choices("abcdefgh", k=random.randint(2, 9))) for _ in range(200)]
    # As flair's `predict` sorts them.
    lengths = sorted((random.randint(5, 30) for _ in range(32)), reverse=True)
    return [Sentence(random.choices(words, k=length)) for length in lengths]


def work(convert: Convert) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    texts = sentences()
    letters, words, tags = Dictionary(), Dictionary(), Dictionary(add_unk=False)
    for letter in "abcdefgh":
        letters.add_item(letter)
    for word in sorted({token.text for text in texts for token in text}):
        words.add_item(word)
    for tag in TAGS:
        tags.add_item(tag)
    embeddings = StackedEmbeddings(
        [OneHotEmbeddings(words, embedding_length=100), CharacterEmbeddings(letters)]
    )
    model = SequenceTagger(embeddings, tags, "ner", hidden_size=256).eval()
    convert(model)

    def call() -> Tensor:
        for text in texts:
            text.clear_embeddings()
        return model.forward(*model._prepare_tensors(texts))[0]

    return call
