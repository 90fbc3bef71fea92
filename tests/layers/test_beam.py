"""Beam search over tables of probabilities: greedy, exhaustive, and the same alone and in a batch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from helpers import randn, same
from torch import Tensor

from linnet.layers.beam import EOS, PAD, Hypotheses, beam_search, length_penalty
from linnet.layers.nested import repeat_rows

WORDS = 5


class Table:
    """A decoder whose next word depends on the two words before; its state is the last of them."""

    def __init__(self, batch: int, seed: int = 0):
        self.log_p = (2 * randn(batch, WORDS, WORDS, WORDS, seed=seed)).log_softmax(-1)

    def search(self, limits: list[int], beam: int, alpha: float = 0.6, rows: Any = slice(None)) -> Hypotheses:
        sentences = torch.arange(len(self.log_p))[rows]
        state = (sentences, torch.full_like(sentences, PAD))
        return beam_search(self.step, repeat_rows(state, beam), torch.tensor(limits), beam, alpha)

    def step(self, previous: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        sentence, before = state
        return self.log_p[sentence, before, previous], (sentence, previous)

    def score(self, sentence: int, words: list[int], alpha: float) -> float:
        before, previous, total = PAD, PAD, 0.0
        for number, word in enumerate(words):
            log_p = self.log_p[sentence, before, previous]
            if not number:
                # The end is no first word; the others keep their probability.
                assert word != EOS
            total += float(log_p[word])
            before, previous = previous, word
        return total / length_penalty(len(words), alpha)


def words_of(tokens: Tensor) -> list[int]:
    """Up to the end of the sequence."""
    words = tokens.tolist()
    return words[: words.index(EOS) + 1] if EOS in words else words


def test_a_beam_of_one_is_greedy():
    table = Table(20)
    found = table.search([6] * 20, beam=1)
    for sentence in range(20):
        before, previous, words = PAD, PAD, []
        while len(words) < 6 and EOS not in words:
            log_p = table.log_p[sentence, before, previous].clone()
            if not words:
                log_p[EOS] = -torch.inf
            before, previous = previous, int(log_p.argmax())
            words.append(previous)
        ours = found.tokens[sentence, 0]
        assert words_of(ours)[: len(words)] == words
        same(float(found.scores[sentence, 0]), table.score(sentence, words, 0.6))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_the_best_of_all_sequences(alpha: float):
    table, limit = Table(6), 4
    found = table.search([limit] * 6, beam=4 * WORDS**2, alpha=alpha)
    every = [
        [*words, EOS]
        for length in range(1, limit)
        for words in product([word for word in range(WORDS) if word != EOS], repeat=length)
    ]
    for sentence in range(6):
        best = max(every, key=lambda words: table.score(sentence, words, alpha))
        assert words_of(found.tokens[sentence, 0]) == best
        same(float(found.scores[sentence, 0]), table.score(sentence, best, alpha))


def test_a_longer_sequence_may_still_win_by_its_length():
    """Two sequences have ended, and one that is less likely so far goes on: its penalty will be larger."""
    table = Table(1)
    following = {
        (PAD, PAD): {3: 0.5, 4: 0.5},
        (PAD, 3): {EOS: 0.55, 3: 0.45},
        (PAD, 4): {EOS: 0.6, 1: 0.4},
        (3, 3): {1: 1.0},
        (3, 1): {1: 1.0},
        (1, 1): {EOS: 1.0},
    }
    for (before, previous), chances in following.items():
        row = torch.full((WORDS,), 1e-9).double()
        row[list(chances)] = torch.tensor(list(chances.values())).double()
        table.log_p[0, before, previous] = (row / row.sum()).log()
    found = table.search([6], beam=2, alpha=2.0)
    assert words_of(found.tokens[0, 0]) == [3, 3, 1, 1, EOS]


def test_an_input_is_searched_alike_alone_and_in_a_batch():
    """All hypotheses, not the best alone; and padding after the end of each."""
    table, limits = Table(8), [3, 9, 5, 4, 9, 6, 7, 8]
    together = table.search(limits, beam=3)
    for sentence, limit in enumerate(limits):
        alone = table.search([limit], beam=3, rows=[sentence])
        same(together.scores[sentence], alone.scores[0])
        length = alone.tokens.shape[-1]
        assert torch.equal(together.tokens[sentence, :, :length], alone.tokens[0])
        assert not together.tokens[sentence, :, limit:].any()


def test_scores_fall_from_the_best_to_the_worst():
    found = Table(8).search([9] * 8, beam=4)
    same(found.scores, found.scores.sort(1, descending=True).values)
    missing = found.scores.isinf()
    assert missing.any()
    assert not found.tokens[missing].any()


def test_a_sequence_at_its_limit_is_cut_off_only_if_none_has_ended():
    table = Table(1)
    table.log_p[..., EOS] = -1e4
    table.log_p = table.log_p.log_softmax(-1)
    found = table.search([3], beam=2)
    assert found.tokens.shape == (1, 2, 3)
    assert EOS not in found.tokens
    same(float(found.scores[0, 0]), table.score(0, found.tokens[0, 0].tolist(), 0.6))


def test_a_beam_of_nothing_answers():
    with pytest.raises(ValueError, match="beam must be at least 1; got 0"):
        Table(1).search([3], beam=0)
