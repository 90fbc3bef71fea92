"""g2p-en: the pronunciation of English words, a GRU that reads and a GRU cell that writes.

The package computes both in NumPy, one word after the other; the module takes all words of a text at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tools.compat.models.shared import Convert

# They split a text into words, and look up those that are known.
FOR_TEXTS = ("nltk", "nltk.corpus", "nltk.tokenize", "inflect")
with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in FOR_TEXTS}):
    from g2p_en.g2p import G2p

WORDS = (
    *("linnet", "redpoll", "twite", "whinchat", "fieldfare", "firecrest", "blackcap", "chiffchaff"),
    *("yellowhammer", "brambling", "siskin", "serin", "hawfinch", "ringouzel", "wheatear", "dunnock"),
)
MOST, START, END = 20, 2, 3  # phonemes of a word, and the marks around them


class Speller(nn.Module):
    """The same network in torch, with its weights, for a batch of words."""

    def __init__(self, package: Any):
        super().__init__()
        weights = {name: torch.as_tensor(package.variables[name]) for name in package.variables.files}
        self.graphemes = nn.Embedding.from_pretrained(weights["enc_emb"])
        self.phonemes = nn.Embedding.from_pretrained(weights["dec_emb"])
        size, hidden = self.graphemes.embedding_dim, weights["enc_w_hh"].shape[1]
        self.encoder = nn.GRU(size, hidden, batch_first=True)
        self.decoder = nn.GRUCell(size, hidden)
        self.out = nn.Linear(hidden, len(weights["fc_w"]))
        self.load_state_dict(
            {
                **{f"encoder.{kind}_{of}_l0": weights[f"enc_{kind[0]}_{of}"] for kind, of in MATRICES},
                **{f"decoder.{kind}_{of}": weights[f"dec_{kind[0]}_{of}"] for kind, of in MATRICES},
                **{"out.weight": weights["fc_w"], "out.bias": weights["fc_b"]},
                **{"graphemes.weight": weights["enc_emb"], "phonemes.weight": weights["dec_emb"]},
            }
        )

    def forward(self, letters: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """letters [words, letters] -> the states after each word, and its phonemes with END after them."""
        packed = pack_padded_sequence(
            self.graphemes(letters), lengths, batch_first=True, enforce_sorted=False
        )
        h = read = self.encoder(packed)[1][0]
        last, written = torch.full((len(letters),), START), []
        is_over = torch.zeros(len(letters), dtype=torch.bool)
        for _ in range(MOST):
            h = self.decoder(self.phonemes(last), h)
            last = self.out(h).argmax(1)
            is_over |= last == END
            written.append(last.masked_fill(is_over, END))
            if is_over.all():
                break
        return read, torch.stack(written, 1)


MATRICES = tuple((kind, of) for kind in ("weight", "bias") for of in ("ih", "hh"))


class WithStates(G2p):
    """Keeps the state after each word that was read."""

    def gru(self, *arguments: Any, **named: Any) -> Any:
        states = super().gru(*arguments, **named)
        self.read.append(states[0, -1])
        return states


def own() -> Callable[[], Any]:
    package: Any = WithStates()

    def call() -> tuple[Tensor, Tensor]:
        package.read = []
        words = [[package.p2idx[phoneme] for phoneme in package.predict(word)] for word in WORDS]
        return torch.tensor(np.stack(package.read)), padded(words)

    return call


def work(convert: Convert) -> Callable[[], Any]:
    package = G2p()
    model = Speller(package).eval()
    convert(model)
    letters = [[package.g2idx[letter] for letter in word] + [package.g2idx["</s>"]] for word in WORDS]
    lengths = torch.tensor([len(word) for word in letters])
    batch = nn.utils.rnn.pad_sequence([torch.tensor(word) for word in letters], batch_first=True)

    def call() -> tuple[Tensor, Tensor]:
        states, written = model(batch, lengths)
        return states, padded([[p for p in word if p != END] for word in written.tolist()])

    return call


def padded(words: list[list[int]]) -> Tensor:
    """The phonemes of all words, as numbers that can be compared."""
    return torch.tensor([word + [END] * (MOST - len(word)) for word in words])
