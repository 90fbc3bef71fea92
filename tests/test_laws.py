"""Laws: what holds for every unit, with any of its options, at any shape, in float64."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from helpers import Ran, each, gradients, identical, liven, randn, random_state, run, same, same_run, tensors
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import linnet
from tools import variants


@pytest.fixture(autouse=True)
def seeded():
    """Noise and initialisations are drawn the same way in every run, whatever ran before."""
    torch.manual_seed(0)


class Variant(variants.Variant):
    """A unit with options, in float64, with weights that are all at work."""

    @property
    def name(self) -> str:
        return str(self)

    def build(self, input_size: int, hidden_size: int, layers: int = 1, seed: int = 0, **more: Any) -> Any:
        rnn = self.unit(input_size, hidden_size, layers, **{**self.options, **more})
        return liven(rnn.eval(), seed)

    @property
    def cell(self) -> type[linnet.Cell]:
        return getattr(linnet, f"{self.unit.__name__}Cell")

    @property
    def in_cell(self) -> bool:
        """Whether the cell does it all, so that nothing of the options is the stack's own doing."""
        options, own = set(self.options), set(inspect.signature(self.cell).parameters)
        return not (options & {"zoneout", "proj_size"} - own or "residual" in options)

    @property
    def stacks_both_ways(self) -> bool:
        """Two directions make the next layer's input twice as wide, which the reduced RAN cannot take."""
        return "reduced" not in self.options


def variant(unit: type[linnet.Recurrent], **options: Any) -> Variant:
    return Variant(unit, options)


PLAIN = [Variant(*each) for each in variants.PLAIN]
# The laws are about stacks: a reduced RAN reads as many channels as it has, not as many as it projects to.
# Options by which a unit has other states or inputs; those that change its equations only have their parity.
STRUCTURAL = {"highway", "window", "context_size", "learned_start", "form", "heads", "directions"}


def is_tried(variant: variants.Variant) -> bool:
    if {"reduced", "proj_size"} <= variant.options.keys():
        return False
    return variant not in variants.STEPS or bool(STRUCTURAL & variant.options.keys())


VARIANTS = [Variant(*each) for each in variants.VARIANTS if is_tried(each)]


def over(chosen: list[Variant]) -> Any:
    return pytest.mark.parametrize("variant", chosen, ids=str)


class Shape(NamedTuple):
    time: int
    batch: int
    input: int
    hidden: int
    seed: int

    def build(self, variant: Variant, layers: int = 1, **more: Any) -> Any:
        return variant.build(self.width(variant), self.size(variant), layers, self.seed, **more)

    def size(self, variant: Variant) -> int:
        return variant.size(self.hidden)

    def width(self, variant: Variant) -> int:
        return self.size(variant) if variant.square else self.input

    def x(self, variant: Variant) -> Tensor:
        return randn(self.time, self.batch, self.width(variant), seed=self.seed + 1)

    def state(self, rnn: linnet.Recurrent) -> Any:
        return random_state(rnn, self.batch, self.seed + 2)


SHAPES = st.builds(
    Shape,
    time=st.integers(1, 6),
    batch=st.integers(1, 3),
    input=st.integers(1, 4),
    hidden=st.integers(1, 5),
    seed=st.integers(0, 10_000),
)


def law(number: int, chosen: list[Variant] = VARIANTS) -> Any:
    """Try a law on each variant, at `number` shapes of its own; `data` draws what else a law needs."""

    def decorate(test: Callable[[Variant, Shape, st.DataObject], None]) -> Any:
        def tried(variant: Variant) -> None:
            @seed(zlib.crc32(variant.name.encode()))
            @settings(max_examples=number, database=None, deadline=None)
            @given(shape=SHAPES, data=st.data())
            def holds(shape: Shape, data: st.DataObject) -> None:
                test(variant, shape, data)

            holds()

        tried.__name__, tried.__doc__ = test.__name__, test.__doc__
        return over(chosen)(tried)

    return decorate


# ---------------------------------------------------------------------------- time


@law(3, [v for v in VARIANTS if v.in_cell])
def test_stepping_the_cell_equals_running_the_module(variant: Variant, shape: Shape, data: st.DataObject):
    rnn = shape.build(variant)
    cell = variant.cell(shape.width(variant), shape.size(variant), **variant.options)
    cell.double().eval().load_state_dict(rnn.first_cell.state_dict(), strict=False)
    pairs = zip(cell.parameters_inside(), rnn.first_cell.parameters_inside(), strict=True)
    for (_, mine), (_, weight) in pairs:
        mine.data.copy_(weight)
    state = shape.state(rnn)
    y, final = rnn(shape.x(variant), state)
    held, outputs = each(lambda s: s[0], state), []
    for x_t in shape.x(variant):
        y_t, held = cell.run_step(x_t, held)
        outputs.append(y_t)
    same(torch.stack(outputs), y)
    same(each(lambda s: s[None], held), final)


@over([v for v in VARIANTS if v.in_cell])
def test_a_step_without_batch_or_state_is_a_batch_of_one_from_zeros(variant: Variant):
    rnn = variant.build(4, 4)
    x = randn(4)
    y, state = rnn.first_cell.run_step(x)
    batched, final = rnn(x[None, None])
    same(y, batched[0, 0])
    same(state, each(lambda s: s[0, 0], final))


@law(3)
def test_the_state_carries_across_any_cut(variant: Variant, shape: Shape, data: st.DataObject):
    shape = shape._replace(time=shape.time + 1)
    cut = data.draw(st.integers(1, shape.time - 1), label="cut")
    rnn = shape.build(variant, layers=2)
    x, state = shape.x(variant), shape.state(rnn)
    y, final = rnn(x, state)
    before, state = rnn(x[:cut], state)
    after, state = rnn(x[cut:], state)
    same(torch.cat([before, after]), y)
    same(state, final)


@law(2)
def test_the_past_ignores_the_future(variant: Variant, shape: Shape, data: st.DataObject):
    """Whatever reads a NaN becomes one."""
    now = data.draw(st.integers(0, shape.time - 1), label="now")
    rnn = shape.build(variant, layers=2)
    x, state = shape.x(variant), shape.state(rnn)
    y, _ = rnn(x, state)
    x[now + 1 :] = torch.nan
    blind, _ = rnn(x, state)
    identical(blind[: now + 1], y[: now + 1])


@over(VARIANTS)
def test_the_first_input_and_state_reach_the_last_output(variant: Variant):
    """In each sequence of the batch. 12 channels: a ReLU or a modReLU may close some of them, not all."""
    rnn = variant.build(12, 12, layers=2, seed=3)
    x = randn(5, 3, 12).requires_grad_()
    state = each(Tensor.requires_grad_, random_state(rnn, 3))
    y, _ = rnn(x, state)
    of_x, *of_state = torch.autograd.grad(y[-1].sin().sum(), [x, *tensors(state)])
    # The synapses of LTC leak: with such weights, a step keeps less than a hundredth of its state.
    least = 1e-14 if variant.unit is linnet.LTC else 1e-9
    assert of_x[0].abs().amax(-1).gt(least).all()
    assert sum(g[0].abs().amax(-1) for g in of_state).gt(least).all()


# ---------------------------------------------------------------------------- padding


def one_by_one(rnn: linnet.Recurrent, x: Tensor, state: Any, mask: Tensor) -> Ran:
    """Each sequence run on its own, with nothing but its real steps."""
    total = run(rnn, x, state)
    # autograd returns one tensor for both of two parameters that it has only added.
    own = {name: gradient.clone() for name, gradient in total.grad_parameters.items()}
    total = total._replace(grad_parameters=own)
    for result in (total.y, *total.state, *gradients(total)):
        result.zero_()
    for b in range(x.shape[1]):
        real, its_state = mask[:, b], each(lambda s, b=b: s[:, b : b + 1], state)
        if real.any():
            ran = run(rnn, x[real, b : b + 1], its_state)
            total.y[real, b], total.grad_x[real, b] = ran.y[:, 0], ran.grad_x[:, 0]
            for name, gradient in ran.grad_parameters.items():
                total.grad_parameters[name].add_(gradient)
            ends, grads = ran.state, ran.grad_state
        else:
            ends, grads = tensors(its_state), tuple(s.cos() for s in tensors(its_state))
        for whole, part in zip((*total.state, *total.grad_state), (*ends, *grads), strict=True):
            whole[:, b : b + 1] = part
    return total


def lengths_of(data: st.DataObject, shape: Shape) -> list[int]:
    one = st.integers(1, shape.time)
    return data.draw(st.lists(one, min_size=shape.batch, max_size=shape.batch), label="lengths")


def mask_of(data: st.DataObject, shape: Shape) -> Tensor:
    """Any mask: holes at the start, in the middle and at the end, and sequences that are not there at all."""
    row = st.lists(st.booleans(), min_size=shape.batch, max_size=shape.batch)
    return torch.tensor(data.draw(st.lists(row, min_size=shape.time, max_size=shape.time), label="mask"))


def both_ways(data: st.DataObject, variant: Variant) -> bool:
    return variant.stacks_both_ways and data.draw(st.booleans(), label="bidirectional")


@law(2)
def test_padding_changes_neither_results_nor_gradients(variant: Variant, shape: Shape, data: st.DataObject):
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state = shape.x(variant), shape.state(rnn)
    lengths = lengths_of(data, shape)
    mask = torch.arange(shape.time)[:, None] < torch.tensor(lengths)
    same_run(run(rnn, x, state, lengths=lengths), one_by_one(rnn, x, state, mask))


@law(2)
def test_a_mask_with_holes_is_the_sequence_without_them(variant: Variant, shape: Shape, data: st.DataObject):
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, mask = shape.x(variant), shape.state(rnn), mask_of(data, shape)
    same_run(run(rnn, x, state, mask=mask), one_by_one(rnn, x, state, mask))


@law(3)
def test_what_stands_in_the_padding_changes_no_bit(variant: Variant, shape: Shape, data: st.DataObject):
    poison = data.draw(st.sampled_from([torch.nan, torch.inf, -torch.inf, 1e300]), label="poison")
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, mask = shape.x(variant), shape.state(rnn), mask_of(data, shape)
    clean = run(rnn, x.masked_fill(~mask[..., None], 0), state, mask=mask)
    identical(run(rnn, x.masked_fill(~mask[..., None], poison), state, mask=mask), clean)
    identical(clean.y[~mask], torch.zeros_like(clean.y[~mask]))
    identical(clean.grad_x[~mask], torch.zeros_like(clean.grad_x[~mask]))
    assert all(result.isfinite().all() for result in (clean.y, *clean.state, *gradients(clean)))


@over(PLAIN)
def test_lengths_may_be_a_list_a_tensor_or_a_mask(variant: Variant):
    rnn = variant.build(3, 4, layers=2, bidirectional=True)
    x, state, lengths = randn(5, 3, 3), random_state(rnn, 3), torch.tensor([2, 5, 1])
    expected = run(rnn, x, state, mask=torch.arange(5)[:, None] < lengths)
    for given_as in (lengths.tolist(), tuple(lengths.tolist()), lengths, lengths.int(), lengths.numpy()):
        identical(run(rnn, x, state, lengths=given_as), expected)


@over(PLAIN)
def test_a_loss_that_is_nan_in_the_padding_trains_as_if_it_were_not(variant: Variant):
    """Padded targets may hold anything; the gradient that comes from there stops at the mask."""
    rnn = variant.build(3, 4, layers=2)
    lengths = [4, 2]
    mask = torch.arange(4)[:, None] < torch.tensor(lengths)
    y, _ = rnn(randn(4, 2, 3), lengths=lengths)
    upstream = randn(*y.shape, seed=5)
    parameters = list(rnn.parameters())
    clean = torch.autograd.grad(y, parameters, upstream * mask[..., None], retain_graph=True)
    poisoned = torch.autograd.grad(y, parameters, upstream.masked_fill(~mask[..., None], torch.nan))
    identical(poisoned, clean)


@law(2)
def test_packed_in_gives_packed_out_as_padded_does(variant: Variant, shape: Shape, data: st.DataObject):
    """The order of the batch is the caller's, whatever order the packing keeps inside."""
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, lengths = shape.x(variant), shape.state(rnn), lengths_of(data, shape)
    y, final = rnn(x, state, lengths=lengths)
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    out, end = rnn(packed, state)
    assert isinstance(out, PackedSequence)
    identical(tuple(out)[1:], tuple(packed)[1:])
    padded, its_lengths = pad_packed_sequence(out, total_length=shape.time)
    same(padded, y)
    same(end, final)
    assert its_lengths.tolist() == lengths


@law(2)
def test_a_masked_sequence_reversed_is_the_backward_direction(
    variant: Variant, shape: Shape, data: st.DataObject
):
    """The input is wider than two hidden states, so that SRU skips by a matrix in both modules."""
    shape = shape._replace(input=variant.size(2 * shape.size(variant) + 1))
    variant = variant._replace(options={k: v for k, v in variant.options.items() if k != "residual"})
    variant = variant._replace(square=variant.square and variant.unit in (linnet.RAN, linnet.MinGRU))
    both, one = shape.build(variant, bidirectional=True), shape.build(variant)
    backward = {k: v for k, v in both.state_dict().items() if "directions.1." in k or "_reverse" in k}
    names = {k: k.replace("directions.1.", "directions.0.").removesuffix("_reverse") for k in backward}
    one.load_state_dict({names[k]: v for k, v in backward.items()})
    x, state, mask = shape.x(variant), shape.state(both), mask_of(data, shape)
    y, final = both(x, state, mask=mask)
    reversed_y, end = one(x.flip(0), each(lambda s: s[1:], state), mask=mask.flip(0))
    same(y[..., y.shape[-1] // 2 :], reversed_y.flip(0))
    same(each(lambda s: s[1:], final), end)


# ---------------------------------------------------------------------------- resets


def stretch_by_stretch(
    rnn: linnet.Recurrent, x: Tensor, state: Any, resets: Tensor, starts: Any = None
) -> tuple[Tensor, Any]:
    """x [T, 1, D] cut before each reset, each piece run from `starts`, but for the ends of the whole.

    starts   one state for each step (default: the unit's own); the way back starts a piece from that of the
             next one
    """
    if starts is None:
        start = rnn.first_cell.pack_state(rnn.initial_state(1, x))
        starts = each(lambda s: s.expand(len(x), *s.shape), start)
    firsts = sorted({0, *resets.nonzero().flatten().tolist()})
    stops = [*firsts[1:], len(x)]
    backward = (torch.arange(len(rnn.directions)) % rnn.num_directions == 1)[:, None, None]
    outputs, ends = [], []
    for start, stop in zip(firsts, stops, strict=True):
        enters = ~backward & bool(start == 0 and not resets[0]) | backward & bool(stop == len(x))
        given = [
            torch.where(enters, s, torch.where(backward, stored[stop % len(x)], stored[start]))
            for s, stored in zip(tensors(state), tensors(starts), strict=True)
        ]
        y, end = rnn(x[start:stop], tuple(given) if len(given) > 1 else given[0])
        outputs.append(y)
        ends.append(tensors(end))
    final = [torch.where(backward, first, last) for first, last in zip(ends[0], ends[-1], strict=True)]
    return torch.cat(outputs), final


@law(3)
def test_a_reset_starts_a_new_sequence(variant: Variant, shape: Shape, data: st.DataObject):
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, lengths = shape.x(variant), shape.state(rnn), lengths_of(data, shape)
    resets = mask_of(data, shape) & (torch.arange(shape.time)[:, None] < torch.tensor(lengths))
    y, final = rnn(x, state, lengths=lengths, resets=resets)
    for b, length in enumerate(lengths):
        its_state = each(lambda s, b=b: s[:, b : b + 1], state)
        its_y, end = stretch_by_stretch(rnn, x[:length, b : b + 1], its_state, resets[:length, b])
        same(y[:length, b : b + 1], its_y)
        same([s[:, b : b + 1] for s in tensors(final)], end)


@law(2)
def test_a_reset_to_a_state_starts_a_new_sequence_from_it(
    variant: Variant, shape: Shape, data: st.DataObject
):
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, mask, resets = shape.x(variant), shape.state(rnn), mask_of(data, shape), mask_of(data, shape)
    scales = torch.linspace(-1, 1, shape.time, dtype=torch.double)[:, None, None, None]
    of_steps = each(lambda s: s * scales, random_state(rnn, shape.batch, shape.seed + 3))
    y, final = rnn(x, state, mask=mask, resets=resets, reset_state=of_steps)
    for b in range(shape.batch):
        real, its_state = mask[:, b], each(lambda s, b=b: s[:, b : b + 1], state)
        end = tensors(its_state)
        if real.any():
            starts = each(lambda s, b=b, real=real: s[real, :, b : b + 1], of_steps)
            its_y, end = stretch_by_stretch(rnn, x[real, b : b + 1], its_state, resets[real, b], starts)
            same(y[real, b : b + 1], its_y)
        same([s[:, b : b + 1] for s in tensors(final)], list(end))


@over(PLAIN)
def test_one_state_for_all_resets_is_the_same_state_at_each_step(variant: Variant):
    rnn = variant.build(3, 4, layers=2, bidirectional=variant.stacks_both_ways)
    x, state, start = randn(5, 2, 3), random_state(rnn, 2), random_state(rnn, 2, 7)
    resets = torch.rand(5, 2, generator=torch.Generator().manual_seed(1)) < 0.4
    found = run(rnn, x, state, resets=resets, reset_state=start)
    each_step = each(lambda s: s.expand(5, *s.shape), start)
    same_run(run(rnn, x, state, resets=resets, reset_state=each_step), found)
    zeros = each(torch.zeros_like, start)
    same_run(run(rnn, x, state, resets=resets, reset_state=zeros), run(rnn, x, state, resets=resets))


@law(3)
def test_resets_in_a_mask_with_holes_are_those_of_the_sequence_without_them(
    variant: Variant, shape: Shape, data: st.DataObject
):
    """Left padding, for example: a reset at the first real step starts nothing anew for the way back."""
    rnn = shape.build(variant, layers=2, bidirectional=both_ways(data, variant))
    x, state, mask, resets = shape.x(variant), shape.state(rnn), mask_of(data, shape), mask_of(data, shape)
    y, final = rnn(x, state, mask=mask, resets=resets)
    for b in range(shape.batch):
        real, its_state = mask[:, b], each(lambda s, b=b: s[:, b : b + 1], state)
        end = tensors(its_state)
        if real.any():
            its_y, end = stretch_by_stretch(rnn, x[real, b : b + 1], its_state, resets[real, b])
            same(y[real, b : b + 1], its_y)
        same([s[:, b : b + 1] for s in tensors(final)], list(end))


@over(PLAIN)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_reset_in_the_padding_changes_nothing(variant: Variant, bidirectional: bool):
    """A collated batch may hold anything beyond the end of a sequence, a reset too."""
    rnn = variant.build(3, 4, layers=2, bidirectional=bidirectional)
    x, state = randn(5, 2, 3), random_state(rnn, 2)
    resets = torch.zeros(5, 2, dtype=torch.bool)
    expected = run(rnn, x, state, lengths=[5, 3], resets=resets)
    resets[3:, 1] = True
    identical(run(rnn, x, state, lengths=[5, 3], resets=resets), expected)


def test_gradients_do_not_cross_a_reset():
    rnn = variant(linnet.LSTM).build(3, 4, layers=2)
    x = randn(5, 1, 3).requires_grad_()
    resets = torch.tensor([False, False, True, False, False])[:, None]
    y, _ = rnn(x, resets=resets)
    (gradient,) = torch.autograd.grad(y[-1].sum(), x)
    assert (gradient[:2] == 0).all()
    assert (gradient[2:] != 0).all()


# ---------------------------------------------------------------------------- layout


@law(2)
def test_batch_first_is_time_first_turned(variant: Variant, shape: Shape, data: st.DataObject):
    how = {"bidirectional": both_ways(data, variant)}
    rnn = shape.build(variant, layers=2, **how)
    turned = shape.build(variant, layers=2, batch_first=True, **how)
    x, state = shape.x(variant), shape.state(rnn)
    mask, resets, lengths = mask_of(data, shape), mask_of(data, shape), lengths_of(data, shape)
    for flags, turned_flags in (
        ({"mask": mask}, {"mask": mask.T}),
        ({"lengths": lengths, "resets": resets}, {"lengths": lengths, "resets": resets.T}),
    ):
        if "resets" in flags:
            flags["reset_state"] = turned_flags["reset_state"] = each(torch.cos, state)
        y, final = rnn(x, state, **flags)
        turned_y, turned_final = turned(x.transpose(0, 1), state, **turned_flags)
        identical(turned_y, y.transpose(0, 1))
        identical(turned_final, final)


@law(2)
def test_one_sequence_needs_no_batch(variant: Variant, shape: Shape, data: st.DataObject):
    shape = shape._replace(batch=1)
    how = {"bidirectional": both_ways(data, variant), "batch_first": data.draw(st.booleans())}
    rnn = shape.build(variant, layers=2, **how)
    x, state = shape.x(variant).transpose(0, int(rnn.batch_first)), shape.state(rnn)
    mask, resets, lengths = mask_of(data, shape), mask_of(data, shape), lengths_of(data, shape)
    batch = 0 if rnn.batch_first else 1
    for flags, its_flags in (
        ({}, {}),
        ({"mask": mask.movedim(1, batch)}, {"mask": mask[:, 0]}),
        (
            {"lengths": lengths, "resets": resets.movedim(1, batch)},
            {"lengths": lengths, "resets": resets[:, 0]},
        ),
    ):
        y, final = rnn(x, state, **flags)
        alone, end = rnn(x.squeeze(batch), each(lambda s: s[:, 0], state), **its_flags)
        identical(alone, y.squeeze(batch))
        identical(end, each(lambda s: s[:, 0], final))


@over(VARIANTS)
def test_strides_do_not_matter(variant: Variant):
    rnn = variant.build(4, 4, layers=2)
    wide = randn(3, 8, 5).permute(2, 0, 1)[..., ::2]
    state = each(lambda s: s.mT.contiguous().mT, random_state(rnn, 3))
    assert not wide.is_contiguous()
    same(run(rnn, wide, state), run(rnn, wide.contiguous(), each(Tensor.contiguous, state)))


# ---------------------------------------------------------------------------- gradients


@over(VARIANTS)
def test_gradients_are_those_of_finite_differences(variant: Variant):
    """Of the input, the initial state and every parameter, through two steps."""
    few = {"memory_size": 4} if variant.unit is linnet.NRU and not variant.options else {}
    size = variant.size(3)
    rnn = variant.build(size, size, seed=1, **few)
    names = [name for name, _ in rnn.named_parameters()]
    x, state = randn(2, 2, size).requires_grad_(), random_state(rnn, 2)
    held = [s.requires_grad_() for s in tensors(state)]

    def forward(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        start = others[0] if isinstance(state, Tensor) else type(state)(*others[: len(held)])
        y, final = functional_call(
            rnn, dict(zip(names, others[len(held) :], strict=True)), (x, start), {"lengths": [2, 1]}
        )
        return y, *tensors(final)

    assert torch.autograd.gradcheck(forward, (x, *held, *rnn.parameters()), fast_mode=True)


# ---------------------------------------------------------------------------- life as a module


@over(PLAIN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_other_dtypes_run_forward_and_backward(variant: Variant, dtype: torch.dtype):
    rnn = variant.unit(6, 6, 2, **variant.options, dtype=dtype).eval()
    x = randn(4, 3, 6).to(dtype).requires_grad_()
    y, state = rnn(x, lengths=[4, 1, 3])
    y, state = rnn(x, state)
    assert {t.dtype for t in (y, *tensors(state))} == {dtype}
    y.float().square().mean().backward()
    everything = [y, *tensors(state), x.grad, *(p.grad for p in rnn.parameters() if p.grad is not None)]
    assert all(t.isfinite().all() for t in everything)


@over(PLAIN)
def test_float32_is_float64_rounded(variant: Variant):
    rnn = variant.unit(6, 6, 2)
    double = copy.deepcopy(rnn).double()
    x = randn(4, 3, 6).float()
    y, state = rnn(x)
    precise, end = double(x.double())
    same((y.double(), *(s.double() for s in tensors(state))), (precise, *tensors(end)), atol=1e-5, rtol=1e-4)


@over(PLAIN)
def test_a_module_turned_to_float64_is_one_born_in_float64(variant: Variant):
    turned = liven(variant.unit(3, 4, 2))
    born = variant.unit(3, 4, 2, dtype=torch.double)
    born.load_state_dict(turned.state_dict())
    x = randn(4, 2, 3)
    identical(turned(x), born(x))


@over(PLAIN)
def test_autocast_runs_and_its_state_can_go_on(variant: Variant):
    rnn = variant.unit(6, 6, 2)
    x = randn(4, 3, 6).float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        _, state = rnn(x)
        y, state = rnn(x, state, lengths=[4, 1, 3])
    y.float().square().mean().backward()
    assert all(t.isfinite().all() for t in (y, *tensors(state), x.grad))


@over(VARIANTS)
def test_copies_pickles_and_state_dicts_compute_the_same(variant: Variant):
    rnn = variant.build(4, 4, layers=2)
    x, state = randn(3, 2, 4), random_state(rnn, 2)
    other = variant.build(4, 4, layers=2, seed=9)
    other.load_state_dict(rnn.state_dict(), strict=True)
    for twin in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn)), other):
        identical(twin(x, state), rnn(x, state))


@over(VARIANTS)
def test_a_state_survives_pickle_and_torch_save(variant: Variant):
    """torch.load as people call it: with weights_only, its default."""
    _, state = variant.build(4, 4)(randn(3, 2, 4))
    file = io.BytesIO()
    torch.save({"state": state}, file)
    file.seek(0)
    for twin in (
        pickle.loads(pickle.dumps(state)),
        copy.deepcopy(each(Tensor.detach, state)),
        torch.load(file)["state"],
    ):
        assert type(twin) is (Tensor if isinstance(state, Tensor) else type(state))
        identical(twin, state)


@over(VARIANTS)
def test_every_parameter_is_given_a_start_and_the_seed_decides_it(variant: Variant):
    torch.manual_seed(7)
    rnn = variant.unit(4, 4, 2, **variant.options)
    start = copy.deepcopy(rnn.state_dict())
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.fill_(torch.nan)
    torch.manual_seed(7)
    rnn.reset_parameters()
    identical(rnn.state_dict(), start)
    assert all(parameter.isfinite().all() for parameter in rnn.parameters())


@over(PLAIN)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (3, 5), (7, 3), (64, 13)], ids=str)
def test_input_and_hidden_size_are_enough(variant: Variant, sizes: tuple[int, int]):
    rnn = variant.unit(*sizes)
    y, state = rnn(torch.randn(3, 2, sizes[0]))
    assert y.shape == (3, 2, rnn.output_size)
    assert all(s.shape[:2] == (1, 2) for s in tensors(state))
    cell = variant.cell(*sizes)
    y, state = cell.run_step(torch.randn(2, sizes[0]))
    assert y.shape == (2, rnn.output_size)
    assert all(s.shape[:1] == (2,) for s in tensors(state))


@over(PLAIN)
def test_the_signature_shows_torch_arguments_shared_options_and_the_papers(variant: Variant):
    parameters = inspect.signature(variant.unit).parameters
    torch_arguments = "input_size hidden_size num_layers bias batch_first dropout bidirectional device dtype"
    expected = torch_arguments.split()
    if variant.unit is linnet.RNN:
        expected.insert(3, "nonlinearity")
    assert list(parameters)[: len(expected)] == expected
    shared = {"variational", "input_dropout", "state_dropout", "zoneout", "weight_drop", "weight_drop_on"}
    shared |= {"norm", "prenorm", "input_heads", "proj_size", "residual"}
    cell = inspect.signature(variant.cell).parameters.values()
    own = {p.name: p.default for p in cell if p.kind is p.KEYWORD_ONLY}
    assert shared | set(own) <= set(parameters)
    assert {name: parameters[name].default for name in own} == own
    assert "Recurrent" not in str(inspect.signature(variant.unit))


def test_code_written_for_nn_lstm_runs_with_every_unit():
    """The seven leading arguments go by position, and the calls around a run are there."""
    for unit in linnet.UNITS.values():
        rnn = unit(3, 4, 2, *(["tanh"] if unit is linnet.RNN else []), True, True, 0.1, True)
        rnn.flatten_parameters()
        assert (rnn.num_layers, rnn.batch_first, rnn.dropout, rnn.bidirectional) == (2, True, 0.1, True)
        assert isinstance(rnn, nn.Module)
