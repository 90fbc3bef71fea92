"""The time of the loss of a language model, forward and backward: the largest part of a small model's step.

Ours processes the rows in pieces (linnet.layers.softmax). It is compared with F.linear and F.cross_entropy,
and with a limit: the three matrix products that logits and gradients need.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import contestants
from benchmarks.contestants import Contestant
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape, Words
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.layers.softmax import mixture_nll

WINDOW = (35, 20)  # steps and columns of text: the papers' batch for these corpora
TORCH = "F.cross_entropy"

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def measure(settings: Settings, book: Book) -> list[Row]:
    return [row for words in settings.softmaxes for row in race_of(words).run(settings, book)]


def race_of(words: Words) -> Race:
    unit, rows = str(words), WINDOW[0] * WINDOW[1]
    entrants = {
        unit: Contestant(unit, "in pieces", lambda: call_of(mixture_nll, rows, words)),
        TORCH: Contestant(unit, TORCH, lambda: call_of(all_rows_at_once, rows, words)),
        "limit": Contestant(unit, "limit", lambda: contestants.products(rows, words.d, words.words)),
    }
    comparisons = [Comparison(unit, other, other) for other in (TORCH, "limit")]
    return Race("loss", Shape(*WINDOW, words.d), "training", entrants, comparisons)


def all_rows_at_once(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, weight, bias), targets)


def call_of(loss: Loss, rows: int, words: Words) -> Call:
    """Return a call that computes the loss and its gradients of features, matrix and bias."""
    source = torch.Generator().manual_seed(0)
    shapes = (rows, words.d), (words.words, words.d), (words.words,)
    x, weight, bias = ((0.1 * torch.randn(shape, generator=source)).requires_grad_() for shape in shapes)
    targets = torch.randint(words.words, (rows,), generator=source)

    def call() -> None:
        torch.autograd.grad(loss(x, weight, bias, targets), (x, weight, bias))

    return call
