"""Attention by kernels against its definition in PyTorch: results, every gradient, masks, awkward sizes."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from helpers import liven, randn
from torch import Tensor

import linnet
from linnet.layers.attention import AdditiveAttention, Memory
from linnet.run.attend import Reading

ROUNDING = {torch.float32: 2e-5, torch.float64: 1e-12}


class Sizes(NamedTuple):
    heads: int
    size: int  # of a head
    length: int
    batch: int = 3
    steps: int = 2


# Below a vector, a whole vector, one that overlaps the one before; one step of memory and more than a vector.
SIZES = [
    Sizes(2, 1, 3),
    Sizes(3, 5, 1),
    Sizes(1, 16, 17),
    Sizes(2, 17, 4, 1, 1),
    Sizes(4, 37, 33),
    Sizes(1, 64, 5),
]
sizes = pytest.mark.parametrize("given", SIZES, ids=str)


def mask_for(given: Sizes) -> Tensor:
    lengths = torch.arange(given.batch) * 5 % given.length + 1
    return torch.arange(given.length)[:, None] < lengths


class Layer:
    """Attention of a few queries in a row, and all that has a gradient."""

    def __init__(self, given: Sizes, dtype: torch.dtype = torch.float64):
        size = given.heads * given.size
        self.given, self.attention = given, liven(AdditiveAttention(3, size, given.heads)).to(dtype)
        self.queries = randn(given.steps, given.batch, 3).to(dtype).requires_grad_()
        self.memory = randn(given.length, given.batch, size, seed=1).to(dtype).requires_grad_()
        self.leaves = [self.queries, self.memory, *self.attention.parameters()]

    def run(self, mask: Tensor | None = None) -> list[Tensor]:
        """The contexts and the weights of all steps."""
        memory = self.attention.remember(self.memory, mask)
        memory = self.attention.prepare(memory, self.given.steps)
        steps = [self.attention(query, memory) for query in self.queries]
        return [torch.stack(each) for each in zip(*steps, strict=True)]

    def gradients(self, mask: Tensor | None = None) -> list[Tensor]:
        found = self.run(mask)
        above = [randn(*each.shape, seed=2).to(each.dtype) for each in found]
        return [*found, *torch.autograd.grad(found, self.leaves, above)]


def assert_close(found: list[Tensor], expected: list[Tensor], rounding: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        error = (one.double() - other.double()).abs().max() / (other.abs().max() + 1e-3)
        assert error.item() <= rounding


@sizes
@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_kernels_equal_the_definition(given: Sizes, dtype: torch.dtype, masked: bool):
    mask = mask_for(given) if masked else None
    with linnet.backend("reference"):
        expected = Layer(given).gradients(mask)
    layer = Layer(given, dtype)
    assert isinstance(layer.attention.prepare(layer.attention.remember(layer.memory), 1).reading, Reading)
    *found, bias = layer.gradients(mask)
    assert not bias.any()  # of the scores: it shifts all of them alike
    assert_close(found, expected[:-1], ROUNDING[dtype])
    with torch.no_grad():
        assert_close(layer.run(mask), expected[:2], ROUNDING[dtype])


@pytest.mark.parametrize("rows", [1, 4])
def test_several_rows_share_a_memory(rows: int):
    given = SIZES[4]
    layer = Layer(given)
    memory = layer.attention.remember(layer.memory, mask_for(given))
    query = randn(given.batch * rows, 3, seed=5)
    with torch.no_grad():
        found = layer.attention(query, memory)
        assert_close(list(found), list(layer.attention.read(layer.attention.query(query), memory)), 1e-12)


def test_a_memory_without_real_steps_and_numbers_that_are_none():
    given = Sizes(1, 18, 3)
    layer = Layer(given)
    mask = mask_for(given)
    mask[:, 1] = False
    memory = layer.attention.remember(layer.memory, mask)
    memory.keys.data[2, 0, 0, 17] = float("nan")
    with torch.no_grad():
        for row in (1, 2):
            context, weights = (part[row] for part in layer.attention(layer.queries[0], memory))
            assert context.isnan().all()
            assert weights.isnan().any()
        assert layer.attention(layer.queries[0], memory)[0][0].isfinite().all()


def test_gradients_of_a_part_leave_no_trace_for_the_others():
    layer = Layer(SIZES[2])
    expected = layer.gradients()[2:]
    found = layer.run()
    above = [randn(*each.shape, seed=2) for each in found]
    for numbers in ([0], [1], [3, 2], [0, 1, 2, 3]):
        leaves = [layer.leaves[number] for number in numbers]
        gradients = torch.autograd.grad(found, leaves, above, retain_graph=True)
        assert_close(list(gradients), [expected[number] for number in numbers], 1e-12)


def test_steps_that_nothing_depends_on():
    with linnet.backend("reference"):
        expected = last_step(Layer(SIZES[2]))
    assert_close(last_step(Layer(SIZES[2])), expected, 1e-12)


def last_step(layer: Layer) -> list[Tensor]:
    context, _ = layer.run()
    return list(torch.autograd.grad(context[-1].sum(), layer.leaves[:4]))


def test_second_derivatives_answer():
    layer = Layer(SIZES[0])
    with pytest.raises(
        RuntimeError, match=r"no second derivative; run it within linnet.backend\(\"reference\"\)"
    ):
        torch.autograd.grad(layer.run()[0].sum(), layer.leaves[:1], create_graph=True)


@pytest.mark.parametrize("why", ["reference", "bfloat16", "autocast", "transformed"])
def test_what_is_left_to_torch(why: str):
    layer = Layer(SIZES[2], torch.bfloat16 if why == "bfloat16" else torch.float64)
    memory = layer.attention.remember(layer.memory)
    with linnet.backend("reference" if why == "reference" else None), torch.no_grad():
        if why == "autocast":
            with torch.autocast("cpu"):
                assert layer.attention.prepare(memory, 1).reading is None
        elif why == "transformed":
            assert torch.func.vmap(lambda _: read(layer, memory))(torch.zeros(2)).shape[0] == 2
        else:
            assert layer.attention.prepare(memory, 1).reading is None
            assert read(layer, memory).dtype == memory.keys.dtype


def read(layer: Layer, memory: Memory) -> Tensor:
    return layer.attention(layer.queries[0], memory)[0]


def test_a_batch_of_gradients():
    """As in vectorised Jacobians: kernels run backward once for each sample."""
    layer = Layer(SIZES[2])
    context, _ = layer.run()
    above = randn(2, *context.shape, seed=3)
    found = torch.autograd.grad(context, layer.leaves, above, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(context, layer.leaves, one, retain_graph=True) for one in above]
    expected = [torch.stack(samples) for samples in zip(*each, strict=True)]
    torch.testing.assert_close(list(found), expected, rtol=1e-12, atol=1e-12)
