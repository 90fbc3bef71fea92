"""Generate text with a language model: for one prompt as a stream, or for many prompts at once.

    for piece in generate(model, vocabulary, "In the beginning", tokens=50):
        print(piece, end="")
    texts = generate_texts(model, vocabulary, ["In the", "And God said"], tokens=50, seed=1)

Each sequence has its own state and its own random numbers, so a prompt gives the same text alone and in a
batch. `warmup` is text that the model reads before the prompt and that is not part of the result: a state of
zeros is rare in training, and some units need many tokens to leave it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.base.options import check_size
from linnet.data.padded import pad
from linnet.data.vocabulary import Vocabulary
from linnet.models.language import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    temperature   divides the logits; 0: always the most likely token
    top_k         draw from the most likely top_k tokens only (0: all)
    top_p         draw from the smallest set of most likely tokens with this mass
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        check_size("top_k", self.top_k, least=0)
        if not self.temperature >= 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                "temperature is at least 0 and top_p is above 0 and at most 1; "
                f"got temperature={self.temperature:g}, top_p={self.top_p:g}"
            )

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator]) -> list[int]:
        """Draw a token for each row of logits [B, V], each with its own generator."""
        if not self.temperature:
            return logits.argmax(-1).tolist()
        chances = torch.softmax(logits.double().cpu() / self.temperature, -1)
        ordered, order = chances.sort(-1, descending=True)
        # A token is left out if the tokens before it already have the mass top_p; the first never is.
        ordered[(ordered.cumsum(-1) - ordered) >= self.top_p] = 0
        if self.top_k:
            ordered[:, self.top_k :] = 0
        drawn = (torch.multinomial(row, 1, generator=g) for row, g in zip(ordered, generators, strict=True))
        return [int(row[index]) for row, index in zip(order, drawn, strict=True)]


def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompt: str = "",
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    warmup: str | Sequence[int] = "",
    window: int | None = None,
) -> Iterator[str]:
    """Yield the prompt as the vocabulary reads it, then one piece of text for each new token.

    tokens    the number of tokens to generate
    warmup    text, or token ids, that the model reads before the prompt
    window    the most tokens that a state may have read, for a model that was trained without `carry`
    """
    sampling = Sampling(temperature, top_k, top_p)
    ids, stream = encoded(vocabulary, prompt), TextStream(vocabulary)
    start = encoded(vocabulary, warmup) + ids
    steps = continuations(model, [start or [first_token(vocabulary)]], tokens, sampling, [seed], window)
    yield stream.text(ids)
    for (token,) in steps:
        yield stream.text([token])


def generate_texts(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompts: Sequence[str],
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    warmup: str | Sequence[int] = "",
    window: int | None = None,
    batch: int = 64,
) -> list[str]:
    """Return the prompts with their continuations; the model continues `batch` prompts at once.

    The text of prompt i is that of `generate(..., prompts[i], seed=seed + i)`.
    """
    check_size("batch", batch)
    sampling, read = Sampling(temperature, top_k, top_p), encoded(vocabulary, warmup)
    texts: list[str] = []
    for first in range(0, len(prompts), batch):
        ids = [encoded(vocabulary, prompt) for prompt in prompts[first : first + batch]]
        starts = [(read + each) or [first_token(vocabulary)] for each in ids]
        seeds = range(seed + first, seed + first + len(ids))
        steps = list(continuations(model, starts, tokens, sampling, seeds, window))
        texts += [whole_text(vocabulary, each, [new[i] for new in steps]) for i, each in enumerate(ids)]
    return texts


@torch.no_grad()
def continuations(
    model: LanguageModel,
    starts: Sequence[list[int]],
    tokens: int,
    sampling: Sampling,
    seeds: Sequence[int],
    window: int | None = None,
) -> Iterator[list[int]]:
    """Yield the next token of every sequence, `tokens` times."""
    check_size("tokens", tokens, least=0)
    reader = Reader(model.eval(), window)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    unread = list(starts)
    for _ in range(tokens):
        drawn = sampling.draw(reader.next(unread), generators)
        yield drawn
        unread = [[token] for token in drawn]


class Reader:
    """Reads tokens of several sequences, each into its own state.

    With a window, a state that has read that many tokens starts again from the newer half of them.
    """

    def __init__(self, model: LanguageModel, window: int | None = None):
        if window is not None:
            check_size("window", window)
        self.model, self.window = model, window
        self.read: list[list[int]] | None = None  # with a window: the tokens that each state has read
        self.state: Any = None

    def next(self, tokens: Sequence[list[int]]) -> Tensor:
        """Read these tokens of each sequence, and return the logits of the next token, [B, V]."""
        unread = list(tokens) if self.window is None else self.within_window(tokens, self.window)
        padded = pad(unread)
        equal = len(set(map(len, unread))) == 1
        device = self.model.example.device
        logits, self.state = self.model.last_logits(
            padded.steps.to(device), self.state, None if equal else padded.lengths.to(device)
        )
        return logits

    def within_window(self, tokens: Sequence[list[int]], window: int) -> list[list[int]]:
        """Return the tokens that each state must read; reset the states that have read `window` tokens."""
        read = self.read or [[] for _ in tokens]
        results = [slide(*each, window) for each in zip(read, tokens, strict=True)]
        self.read = [kept for kept, _ in results]
        full = torch.tensor([restarts for _, restarts in results])
        if self.state is not None and full.any():
            self.state = choose_rows(full, self.model.initial_state(len(full)), self.state)
        return [kept if restarts else new for (kept, restarts), new in zip(results, tokens, strict=True)]


def slide(read: list[int], tokens: list[int], window: int) -> tuple[list[int], bool]:
    """Return the tokens that a state has read after `tokens`, and whether it had to be reset."""
    read, restarts = list(read), False
    for token in tokens:
        read.append(token)
        if len(read) > window:
            read, restarts = read[-((window + 1) // 2) :], True
    return read, restarts


def choose_rows(rows: Tensor, yes: Any, no: Any) -> Any:
    """Return states from two batches: `yes` for the sequences in `rows` [B], `no` for the others."""
    if isinstance(yes, Tensor):
        return torch.where(rows.to(yes.device)[:, None], yes, no)
    parts = [choose_rows(rows, *pair) for pair in zip(yes, no, strict=True)]
    return type(yes)(*parts) if hasattr(yes, "_fields") else tuple(parts)


class TextStream:
    """Decodes tokens piece by piece; it keeps the last few, because blanks and bytes depend on them."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.before: list[int] = []
        self.waiting: list[int] = []

    def text(self, tokens: list[int]) -> str:
        """Return the text that these tokens add; "" while bytes of a character are missing."""
        self.waiting += tokens
        if not self.waiting:
            return ""
        old = self.vocabulary.decode(self.before) if self.before else ""
        new = self.vocabulary.decode(self.before + self.waiting)
        if new.endswith("\ufffd") and len(self.waiting) < 4:
            return ""
        self.before, self.waiting = (self.before + self.waiting)[-8:], []
        return new[len(old) :]


def whole_text(vocabulary: Vocabulary, prompt: list[int], tokens: list[int]) -> str:
    """Return all pieces of a stream, joined."""
    stream = TextStream(vocabulary)
    return stream.text(prompt) + "".join(stream.text([token]) for token in tokens)


def encoded(vocabulary: Vocabulary, text: str | Sequence[int]) -> list[int]:
    if not isinstance(text, str):
        return [int(token) for token in text]
    return vocabulary.encode(text).tolist() if text else []


def first_token(vocabulary: Vocabulary) -> int:
    """Return the token before a text: the end of a line, if the vocabulary has one."""
    for mark in ("<eos>", "\n"):
        if mark in vocabulary.index:
            return vocabulary.index[mark]
    return 0
