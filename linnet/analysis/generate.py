"""Text from a language model, token by token, with one state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from linnet.data.vocabulary import Vocabulary
from linnet.models.language import LanguageModel


def sample(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> Tensor:
    """One token from logits [V]: the likeliest at temperature 0, else of the smallest set with mass top_p."""
    if not temperature:
        return logits.argmax()
    chances = torch.softmax(logits.double() / temperature, 0)
    ordered, order = chances.sort(descending=True)
    # A token is out when those before it have the mass already; the first is always in.
    ordered[(ordered.cumsum(0) - ordered) >= top_p] = 0
    return order[torch.multinomial(ordered, 1, generator=generator)[0]]


@torch.no_grad()
def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompt: str = "",
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 1,
    window: int | None = None,
) -> Iterator[str]:
    """The prompt as the vocabulary reads it, then piece after piece of what follows.

    window    the most tokens that the state may hold, for a model whose windows began from zeros
    """
    check(tokens, temperature, top_p, window)
    generator = torch.Generator().manual_seed(seed)
    ids = vocabulary.encode(prompt).tolist() if prompt else []
    reader, told = Reader(model.eval(), window), Telling(vocabulary)
    for token in ids or [first_token(vocabulary)]:
        logits = reader.next(token)
    yield told.text(ids)
    for _ in range(tokens):
        token = int(sample(logits, temperature, top_p, generator))
        yield told.text([token])
        logits = reader.next(token)


class Reader:
    """Token after token into one state. Where that is full, it starts anew from the newer half of them."""

    def __init__(self, model: LanguageModel, window: int | None):
        self.model, self.window = model, window
        self.held: list[int] = []
        self.state: Any = None

    def next(self, token: int) -> Tensor:
        """The logits of what follows, [V]."""
        unread = [token]
        if self.window and len(self.held) == self.window:
            unread = [*self.held, token][-((self.window + 1) // 2) :]
            self.held, self.state = [], None
        for each in unread:
            logits, self.state = self.model.step_logits(torch.tensor([each]), self.state)
        # What a state without a bound has read need not be kept.
        self.held += unread if self.window else []
        return logits[0]


class Telling:
    """Tokens to text, piece by piece. Blanks and bytes depend on their neighbours, so a few are kept."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.before: list[int] = []
        self.waiting: list[int] = []

    def text(self, tokens: list[int]) -> str:
        """What these add to the text; nothing while a character has only some of its bytes."""
        self.waiting += tokens
        if not self.waiting:
            return ""
        old = self.vocabulary.decode(self.before) if self.before else ""
        new = self.vocabulary.decode(self.before + self.waiting)
        if new.endswith("\ufffd") and len(self.waiting) < 4:
            return ""
        self.before, self.waiting = (self.before + self.waiting)[-8:], []
        return new[len(old) :]


def first_token(vocabulary: Vocabulary) -> int:
    """What stands before a text: the end of a line, where there is one."""
    for mark in ("<eos>", "\n"):
        if mark in vocabulary.tokens:
            return vocabulary.tokens.index(mark)
    return 0


def check(tokens: int, temperature: float, top_p: float, window: int | None) -> None:
    if window is not None and window < 1:
        raise ValueError(f"window is at least 1 token, or None for a state that is carried on; got {window}")
    if tokens < 0 or not temperature >= 0 or not 0 < top_p <= 1:
        raise ValueError(
            "tokens and temperature are at least 0 and top_p is above 0 and at most 1; "
            f"got tokens={tokens}, temperature={temperature:g}, top_p={top_p:g}"
        )
