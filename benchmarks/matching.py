"""Word-by-word attention, relative to its matrix products.

The sizes are those of the LRN paper's model for natural language inference (Table 1): a hypothesis of L words
is read with attention in four heads to a premise of 16 words, each the two directions of a layer of size d.
The limit is the products that the layer needs, by torch and without allocations: those of single steps that
depend on the state, and those that can be made for all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, products
from benchmarks.rows import Book, Row
from benchmarks.settings import Settings, Shape
from benchmarks.speed import Comparison, Race
from linnet.bench.timing import Call
from linnet.layers.attention import AdditiveAttention
from linnet.layers.matching import MatchingRecurrence
from linnet.units import UNITS

PREMISE, HEADS = 16, 4
RACING = ("lrn", "sru", "atr", "gru", "lstm")
MODES = ("inference", "training")
LIMIT = "its products"


def measure(settings: Settings, book: Book) -> list[Row]:
    units = [unit for unit in RACING if unit in settings.units]
    races = [race_of(unit, settings.matched, mode) for unit in units for mode in MODES]
    return [row for race in races for row in race.run(settings, book)]


def race_of(unit: str, shape: Shape, mode: str) -> Race:
    entrants = {
        unit: Contestant(unit, "cpu", lambda: call_of(Matching(unit, shape.d), shape, mode)),
        LIMIT: Contestant(unit, "torch", lambda: limit(Matching(unit, shape.d), shape, mode)),
    }
    return Race("matching", shape, mode, entrants, [Comparison(unit, LIMIT, LIMIT)])


class Matching(nn.Module):
    """x [T, B, d] with attention to a memory [PREMISE, B, 2 d] -> [T, B, d]."""

    def __init__(self, unit: str, size: int):
        super().__init__()
        lower, higher = (UNITS[unit](inputs, size).first_cell for inputs in (size, 2 * size))
        attention = AdditiveAttention(lower.output_size, 2 * size, HEADS)
        self.matching = MatchingRecurrence(lower, higher, attention)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.matching(x, self.matching.attention.remember(memory)).output


def call_of(layer: Matching, shape: Shape, mode: str) -> Call:
    x, memory = torch.randn(shape), torch.randn(PREMISE, shape.B, 2 * shape.d)
    if mode == "inference":
        return torch.no_grad()(lambda: layer.eval()(x, memory))
    leaves = [x.requires_grad_(), memory.requires_grad_(), *layer.parameters()]
    above = torch.ones(shape)
    return lambda: torch.autograd.grad(layer(x, memory), leaves, above)


# ------------------------------------------------------------------------------------------- limit


def limit(layer: Matching, shape: Shape, mode: str) -> Call:
    calls = [*at_once(layer, shape, mode == "training"), *(shape.L * steps(layer, shape, mode == "training"))]
    return lambda: [call() for call in calls]


def at_once(layer: Matching, shape: Shape, training: bool) -> list[Call]:
    """Products of all steps: input of the lower cell, keys; in training the gradients of all matrices."""
    recurrence, rows = layer.matching, shape.L * shape.B
    count, size = recurrence.lower.input.weight.shape
    calls = [
        products(rows, size, count, training),
        products(PREMISE * shape.B, 2 * shape.d, 2 * shape.d, training),
    ]
    if training:
        matrices = step_matrices(recurrence)
        calls += [product(len(m), rows, m.shape[1]) for m in matrices]
        # The gradients of the values.
        calls.append(product(PREMISE, shape.L, 2 * shape.d // HEADS, many=shape.B * HEADS))
    return calls


def steps(layer: Matching, shape: Shape, training: bool) -> list[Call]:
    """Products of one step: the matrices that read the state or the context, scores, contexts."""
    matrices = step_matrices(layer.matching)
    calls = [product(shape.B, m.shape[1], len(m)) for m in matrices]
    groups, size = shape.B * HEADS, 2 * shape.d // HEADS
    calls += [product(groups * PREMISE, size, 1), product(1, PREMISE, size, many=groups)]
    if training:
        calls += [product(shape.B, len(m), m.shape[1]) for m in matrices]
        # The gradients of the weights of the attention, and of the vector of the scores.
        calls += [product(1, size, PREMISE, many=groups), product(1, groups * PREMISE, size)]
    return calls


def step_matrices(recurrence: MatchingRecurrence) -> list[Tensor]:
    """The matrices whose products are made step by step."""
    cells = (recurrence.lower, recurrence.higher)
    recurrent = [getattr(cell, name).weight for cell in cells for name in cell.recurrence]
    return [recurrence.attention.query.weight, recurrence.higher.input.weight, *recurrent]


def product(rows: int, depth: int, columns: int, many: int = 0) -> Call:
    """[rows, depth] times [depth, columns]; `many` of them, if this is not 0."""
    first = (many,) if many else ()
    a, b = torch.randn(*first, rows, depth), torch.randn(*first, depth, columns)
    multiply: Callable[..., Tensor] = torch.bmm if many else torch.mm
    return partial(multiply, a, b, out=torch.empty(*first, rows, columns))
