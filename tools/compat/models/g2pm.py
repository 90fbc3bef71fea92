"""g2pM: the reading of Chinese characters, a bidirectional LSTM that the package computes in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from g2pM import G2pM
from torch import Tensor, nn

from tools.compat.models.shared import Convert

LENGTH = 40
TARGETS = [3, 9, 17, 26, 33]  # the characters whose reading is asked for


class WithLogits(G2pM):
    """Keeps the logits, of which the package returns the largest."""

    def fc_layer(self, inputs: Any) -> Any:
        self.logits = super().fc_layer(inputs)
        return self.logits


class Reader(nn.Module):
    """The same network in torch, with its weights."""

    def __init__(self, weights: dict[str, Any]):
        super().__init__()
        vocabulary, size = weights["embedding.weight"].shape
        hidden = weights["lstm.weight_hh_l0"].shape[1]
        classes, wide = weights["logit_layer.2.weight"].shape
        self.embedding = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, hidden, batch_first=True, bidirectional=True)
        self.logit_layer = nn.Sequential(nn.Linear(2 * hidden, wide), nn.ReLU(), nn.Linear(wide, classes))
        self.load_state_dict({name: torch.as_tensor(weight) for name, weight in weights.items()})

    def forward(self, characters: Tensor) -> Tensor:
        output, _ = self.lstm(self.embedding(characters))
        return self.logit_layer(output[0, TARGETS])


def sentence(vocabulary: int) -> Any:
    return np.random.default_rng(0).integers(1, vocabulary, (1, LENGTH))


def own() -> Callable[[], Any]:
    package = WithLogits()
    characters = sentence(len(package.embeddings))

    def call() -> Any:
        package.predict(characters, TARGETS)
        return package.logits

    return call


def work(convert: Convert) -> Callable[[], Tensor]:
    model = Reader(weights_of_package()).eval()
    convert(model)
    characters = torch.as_tensor(sentence(model.embedding.num_embeddings))
    return lambda: model(characters)


def weights_of_package() -> dict[str, Any]:
    """What the package loads."""
    found: list[dict[str, Any]] = []

    class Loaded(G2pM):
        def load_variable(self, state_dict: dict[str, Any]) -> None:
            found.append(state_dict)

    Loaded()
    return found[0]
