"""Attention, matching recurrences and spans: padding changes nothing, stepping equals running."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import liven, randn, same
from torch import Tensor

import linnet
from linnet.layers.attention import AdditiveAttention, AlignedAttention, GatedAttention, MultiHeadAttention
from linnet.layers.matching import MatchingRecurrence, PairRecurrence, join_state, split_state, state_size
from linnet.layers.pooling import LinearPooling
from linnet.layers.spans import BilinearSpans, PointerNetwork, SpanLogits, best_spans

LENGTHS = torch.tensor([5, 2, 3])
MASK = torch.arange(5)[:, None] < LENGTHS
NAN = float("nan")


def padded(x: Tensor, mask: Tensor = MASK, value: float = NAN) -> Tensor:
    """x with something at its padded steps that must not reach anything."""
    return x.masked_fill(~mask[..., None], value)


# ---------------------------------------------------------------------------------------- attention


def test_additive_attention_by_hand():
    layer = liven(AdditiveAttention(3, 4, heads=2))
    query, memory = randn(1, 3), randn(2, 1, 4, seed=1)
    context, weights = layer(query, layer.remember(memory))
    for head, part in enumerate((slice(0, 2), slice(2, 4))):
        hidden = torch.tanh(layer.query(query)[:, part] + layer.key(memory)[:, 0, part])
        expected = layer.score(hidden)[:, 0].softmax(0)
        same(weights[0, head], expected)
        same(context[0, part], expected @ memory[:, 0, part])


def test_multi_head_attention_is_that_of_torch():
    ours, theirs = liven(MultiHeadAttention(6, 2)), torch.nn.MultiheadAttention(6, 2).double()
    three = (ours.query, ours.key, ours.value)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([layer.weight for layer in three]),
            "in_proj_bias": torch.cat([layer.bias for layer in three]),
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": ours.output.bias,
        }
    )
    x, memory = randn(4, 3, 6), randn(5, 3, 6, seed=1)
    read = ours.remember(memory, MASK)
    expected, weights = theirs(x, memory, memory, key_padding_mask=~MASK.T, average_attn_weights=False)
    same(ours(x, read), expected)
    same(ours.weights(x, read), weights)


def test_causal_attention_reads_the_past_only():
    layer = liven(MultiHeadAttention(6, 2))
    x = randn(5, 3, 6)
    whole = layer(x, layer.remember(x), causal=True)
    for t in range(5):
        memory = layer.remember(x[: t + 1])
        same(layer(x[t : t + 1], memory, causal=True), whole[t : t + 1])
    assert not layer.weights(x, layer.remember(x), causal=True).triu(1).any()


def read_all(name: str, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    x = randn(4, memory.shape[1], 6, seed=3)
    if name == "additive":
        layer = liven(AdditiveAttention(6, 6, heads=2, norm="rms"))
        return layer(x[0], layer.remember(memory, mask))
    if name == "multi-head":
        layer = liven(MultiHeadAttention(6, 2))
        kept = layer.remember(memory, mask)
        return layer(x, kept), layer.weights(x, kept)
    layer = liven(AlignedAttention(6) if name == "aligned" else GatedAttention(6, 6, 3))
    return layer(x, memory, mask)


@pytest.mark.parametrize("name", ["additive", "multi-head", "aligned", "gated"])
def test_padding_of_the_memory_changes_nothing(name: str):
    memory = randn(5, 3, 6)
    found, weights = read_all(name, padded(memory), MASK)
    more, _ = read_all(name, torch.cat([padded(memory), memory[:2]]), torch.cat([MASK, MASK[:2] & False]))
    same(more, found)
    same(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    for number, length in enumerate(LENGTHS):
        # All sequences of one length: only the one with this number is compared.
        alone, _ = read_all(name, memory[:length], None)
        place = (number,) if name == "additive" else (slice(None), number)
        same(found[place], alone[place])


@pytest.mark.parametrize("name", ["additive", "multi-head"])
def test_several_queries_of_a_sequence_read_one_memory(name: str):
    """As the hypotheses of beam search do: the same as a memory that is repeated for each of them."""
    memory, beam = padded(randn(5, 3, 6)), 4
    query = randn(2, 3 * beam, 6, seed=3)
    if name == "additive":
        layer = liven(AdditiveAttention(6, 6, heads=2))
        few, many = read_rows(layer, query[0], memory, beam)
    else:
        layer = liven(MultiHeadAttention(6, 2))
        few, many = read_rows(layer, query, memory, beam)
    same(few, many)


def read_rows(layer: torch.nn.Module, query: Tensor, memory: Tensor, beam: int) -> list[Tensor]:
    repeated, mask = memory.repeat_interleave(beam, 1), MASK.repeat_interleave(beam, 1)
    found = [layer(query, layer.remember(*read)) for read in ((memory, MASK), (repeated, mask))]
    return [torch.cat([part.flatten() for part in each]) for each in found]


@pytest.mark.parametrize("heads", [0, 4])
def test_heads_must_divide_the_memory(heads: int):
    with pytest.raises(ValueError, match="heads"):
        AdditiveAttention(3, 6, heads)


# ----------------------------------------------------------------------------------------- matching


def matching(unit: type[linnet.Recurrent], **options: Any) -> MatchingRecurrence:
    cells = (unit(size, 4, **options).release_cell() for size in (3, 6))
    return liven(MatchingRecurrence(*cells, AdditiveAttention(cells_output(unit), 6, heads=2)))


def cells_output(unit: type[linnet.Recurrent]) -> int:
    return unit(3, 4).release_cell().output_size


@pytest.mark.parametrize("unit", linnet.UNITS.values(), ids=list(linnet.UNITS))
def test_stepping_equals_running_and_padding_changes_nothing(unit: type[linnet.Recurrent]):
    layer = matching(unit).eval()  # LiGRU's batch norm counts the steps of a call in training
    x, memory = randn(5, 3, 3), layer.attention.remember(randn(7, 3, 6, seed=1))
    start = randn(3, layer.state_size, seed=2)
    whole = layer(x, memory, start)
    state, outputs = start, []
    for step in x:
        stepped = layer.step(step, memory, state)
        state = stepped.state
        outputs.append(stepped.output)
    same(torch.stack(outputs), whole.output)
    same(state, whole.state)
    found = layer(padded(x), memory, start, MASK)
    same(found.output, padded(whole.output, value=0.0))
    assert found.weights.shape == (3, 2, 5, 7)
    short = layer(x[:2], memory, start)
    same(found.state[1], short.state[1])


def test_padding_gets_no_gradient():
    layer = matching(linnet.LRN)
    x = padded(randn(5, 3, 3)).requires_grad_()
    memory = padded(randn(5, 3, 6)).requires_grad_()
    found = layer(x, layer.attention.remember(memory, MASK), None, MASK)
    (found.output.sum() + found.state.sum()).backward()
    for leaf in (x, memory):
        assert leaf.grad.isfinite().all()
        assert not leaf.grad[~MASK].any()
        assert leaf.grad[MASK].all()


@pytest.mark.parametrize("unit", [linnet.LRN, linnet.SRU, linnet.LSTM])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_pair_over_two_sequences(unit: type[linnet.Recurrent], reverse: bool):
    cells = (unit(size, 4).release_cell() for size in (3, 6))
    layer = liven(PairRecurrence(*cells))
    x, second = randn(5, 3, 3), randn(5, 3, 6, seed=1)
    output, final = layer(padded(x), padded(second), None, MASK, reverse)
    for number, length in enumerate(LENGTHS):
        own = slice(number, number + 1)
        alone, end = layer(x[:length, own], second[:length, own], reverse=reverse)
        same(output[:length, own], alone)
        same(final[own], end)
        state = torch.zeros(1, layer.state_size).double()
        for t in reversed(range(length)) if reverse else range(length):
            y, state = layer.step(x[t, own], second[t, own], state)
            same(y, alone[t])
        same(state, end)
    assert not output[~MASK].any()


def test_the_state_is_one_vector():
    cell = linnet.SRUCell(3, 4)
    assert state_size(cell) == 8
    assert state_size(linnet.LSTMCell(3, 4)) == 8
    assert state_size(linnet.LRNCell(3, 4)) == 4
    h, c = randn(2, 4), randn(2, 4, seed=1)
    vector = join_state(cell, h, {"c": c})
    same(vector, torch.cat([h, c], -1))
    same(split_state(cell, vector)["c"], c)


def test_cells_that_do_not_fit_answer():
    attention = AdditiveAttention(4, 6)
    with pytest.raises(ValueError, match=r"both must be of one unit and one size; got LRN .* and SRU"):
        MatchingRecurrence(linnet.LRNCell(3, 4), linnet.SRUCell(6, 4), attention)
    with pytest.raises(ValueError, match="it must have input_size=6; got 5"):
        MatchingRecurrence(linnet.LRNCell(3, 4), linnet.LRNCell(5, 4), attention)
    layer = PairRecurrence(linnet.LRNCell(3, 4), linnet.LRNCell(6, 4))
    with pytest.raises(ValueError, match=r"must have shape \(2, 4\); got \(2, 8\)"):
        layer(torch.zeros(5, 2, 3), torch.zeros(5, 2, 6), torch.zeros(2, 8))


# -------------------------------------------------------------------------------------------- spans


@pytest.mark.parametrize("longest", [1, 3, 9])
def test_best_spans_by_search(longest: int):
    start, end = randn(8, 7).softmax(-1), randn(8, 7, seed=1).softmax(-1)
    first, last, scores = best_spans(start, end, longest)
    for row in range(8):
        spans = [(i, j) for i in range(7) for j in range(i, min(7, i + longest))]
        best = max(spans, key=lambda span: start[row, span[0]] * end[row, span[1]])
        assert (int(first[row]), int(last[row])) == best
        same(scores[row], start[row, best[0]] * end[row, best[1]])


@pytest.mark.parametrize("name", ["bilinear", "pointer"])
def test_padding_is_no_answer_and_changes_none(name: str):
    layer = liven(BilinearSpans(6, 4) if name == "bilinear" else PointerNetwork(linnet.GRUCell(6, 4), 3))
    x, query = randn(5, 3, 6), randn(3, 4, seed=1)
    found = layer(padded(x), query, MASK)
    assert torch.equal(found.start.isfinite(), MASK.T)
    _, last, _ = found.best(15)
    assert (last < LENGTHS).all()
    for number, length in enumerate(LENGTHS):
        alone = layer(x[:length, number : number + 1], query[number : number + 1])
        same(found.start[number, :length], alone.start[0])
        same(found.end[number, :length], alone.end[0])


def test_an_answer_that_is_ignored_has_no_loss():
    logits = SpanLogits(randn(2, 5), randn(2, 5, seed=1))
    loss = logits.loss(torch.tensor([1, -100]), torch.tensor([2, -100]))
    expected = -logits.start.log_softmax(-1)[0, 1] - logits.end.log_softmax(-1)[0, 2]
    same(loss, torch.stack([expected, torch.zeros_like(expected)]))


def test_linear_pooling_ignores_padding():
    layer, y = liven(LinearPooling(6)), randn(5, 3, 6)
    found, weights = layer.attend(padded(y), LENGTHS)
    assert not weights[~MASK].any()
    for number, length in enumerate(LENGTHS):
        same(found[number], layer(y[:length, number : number + 1])[0])
