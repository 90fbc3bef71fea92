"""Kernels against the reference loop: output, final state and every gradient, at awkward sizes."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import test_golden
import torch
from fused_runs import (
    CONTINUOUS,
    FLAGS,
    FORMS,
    FUSED,
    NOT_ELEMENTWISE,
    OF_ANY_SIZE,
    OTHER_STEPS,
    TOLERANCES,
    WITH_INNER_PRODUCTS,
    Size,
    Variant,
    agree,
    check,
    compare,
    draw,
    draw_state,
    flags,
    identical,
    jumps,
    over,
    plans_of,
    run,
    variant,
    works_or_says,
)
from golden_cases import files
from helpers import each, tensors
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence

import linnet
from linnet.cpu.forward import ForwardScan, Kind
from linnet.program.operands import Operands
from linnet.program.plan import Fusible
from linnet.run import bound_unit as fused
from linnet.run.scan import Call, Source, fused_scan

# Every size and every kind of flags at least twice; whole vectors, rests of vectors, both.
SIZES = [
    Size(1, 1, 1, "nothing"),
    Size(1, 33, 16, "lengths"),
    Size(2, 3, 5, "mask and resets"),
    Size(63, 1, 16, "resets"),
    Size(63, 3, 31, "mask and resets"),
    Size(9, 33, 64, "lengths"),
    Size(5, 3, 500, "mask"),
    Size(63, 33, 5, "nothing"),
    Size(7, 1, 500, "resets"),
]
FEW_SIZES = [Size(1, 1, 1, "mask"), Size(63, 3, 31, "mask and resets"), Size(6, 33, 64, "nothing")]


@over("size", SIZES)
@over("variant", FORMS)
def test_every_form_in_both_directions_at_awkward_sizes(variant: Variant, size: Size):
    check(variant, size)


@over("size", FEW_SIZES)
@over("variant", [each for each in FUSED if each not in FORMS])
def test_every_other_unit_in_both_directions(variant: Variant, size: Size):
    check(variant, size)


@over("size", FEW_SIZES)
@over("variant", FORMS)
def test_every_unit_in_float32(variant: Variant, size: Size):
    check(variant, size, torch.float32)


@over("size", FEW_SIZES)
@over("variant", CONTINUOUS)
def test_every_unit_in_bfloat16(variant: Variant, size: Size):
    check(variant, size, torch.bfloat16)


@over("variant", CONTINUOUS)
def test_every_unit_in_bfloat16_with_projections_by_torch(variant: Variant, monkeypatch):
    """As on a CPU that has instructions for products of bfloat16, and for large products."""
    monkeypatch.setattr(fused, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(fused, "ENOUGH", 0)
    check(variant, FEW_SIZES[1], torch.bfloat16)


def test_torch_projects_large_sequences_of_bfloat16_only(monkeypatch):
    weight, x = linnet.SRU(256, 256).first_cell.input.weight, torch.empty(32, 32, 256, dtype=torch.bfloat16)
    monkeypatch.setattr(fused, "multiplies_bfloat16", lambda: True)
    assert fused.is_better_by_torch(weight, x)
    assert not fused.is_better_by_torch(weight, x[:2])
    assert not fused.is_better_by_torch(weight, x.float())
    monkeypatch.setattr(fused, "multiplies_bfloat16", lambda: False)
    assert not fused.is_better_by_torch(weight, x)


@over("size", FEW_SIZES[:2])
@over("variant", [*OTHER_STEPS, *WITH_INNER_PRODUCTS])
def test_every_form_of_a_step(variant: Variant, size: Size):
    check(variant, size)


# The norm of one channel is 0 but for rounding.
@over("size", [Size(1, 1, 2, "mask"), FEW_SIZES[1]])
@over("variant", NOT_ELEMENTWISE)
def test_every_form_of_a_step_that_is_not_elementwise(variant: Variant, size: Size):
    check(variant, size)


@over("variant", [v for v in (*OTHER_STEPS, *WITH_INNER_PRODUCTS) if not jumps(v)])
def test_every_form_of_a_step_in_bfloat16(variant: Variant):
    """But for those that jump, such as modReLU, where bfloat16 takes a small number for 0."""
    check(variant, FEW_SIZES[1], torch.bfloat16)


@over("kind", FLAGS)
def test_all_kinds_of_flags_on_a_unit_of_each_sort(kind: str):
    for unit in (linnet.SRU, linnet.QRNN, linnet.LSTM, linnet.GRU, linnet.SCRN):
        check(variant(unit), Size(11, 4, 19, kind))
    for sort in WITH_INNER_PRODUCTS[:2]:
        check(sort, Size(11, 4, 19, kind))


# ------------------------------------------------------------------------------- how things come in


SORTS = [
    variant(linnet.SRU, square=True),
    variant(linnet.LRN),
    variant(linnet.LSTM, peepholes=True),
    variant(linnet.GRU),
    variant(linnet.GRU, form="before"),
    variant(linnet.LSTM, proj_size=3),
]


@over("sort", SORTS)
@over("kind", FLAGS)
def test_batch_first(sort: Variant, kind: str):
    rnn = sort.build(9, bidirectional=True, batch_first=True)
    x = draw(4, 7, rnn.input_size, seed=5).requires_grad_()
    compare(rnn, x, **flags(kind, 7, 4, batch_first=True))


STRIDES = {
    "every other step": lambda x: x.repeat_interleave(2, 0)[::2],
    "every other channel": lambda x: x.repeat_interleave(2, 2)[..., ::2],
    "a slice of the batch": lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
    "time within channels": lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "the same at all steps": lambda x: x[:1].expand(x.shape),
    "the same for all sequences": lambda x: x[:, :1].expand(x.shape),
    "one number": lambda x: x[:1, :1, :1].expand(x.shape),
}


@over("sort", SORTS)
@over("strides", STRIDES)
def test_inputs_of_any_strides(sort: Variant, strides: str):
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    state = each(lambda s: s[:, :1].expand(-1, 3, -1), draw_state(rnn, 3))
    apart = flags("mask and resets", 12, 6)
    compare(rnn, STRIDES[strides](x), state, **{name: flag[::2, ::2] for name, flag in apart.items()})


GRADIENTS = {
    "a sum over all": lambda y: y.sum(),
    "a sum over time": lambda y: (y.sum(0) ** 2).sum(),
    "a sum over the batch": lambda y: (y.sum(1) ** 2).sum(),
    "a sum over channels": lambda y: (y.sum(2) ** 2).sum(),
    "the last step": lambda y: y[-1].sin().sum(),
    "every other channel": lambda y: y[..., ::2].sin().sum(),
    "transposed": lambda y: (y.transpose(0, 2) * torch.arange(y.shape[0])).sum(),
}


@over("sort", SORTS)
@over("loss", GRADIENTS)
def test_gradients_of_any_strides(sort: Variant, loss: str):
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    found = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            y, _ = rnn(x)
        found.append(torch.autograd.grad(GRADIENTS[loss](y), [x, *rnn.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@over("sort", SORTS)
def test_a_gradient_of_the_final_state_alone(sort: Variant):
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    for i in range(len(rnn.first_cell.states)):
        found = []
        for backend in ("cpu", "reference"):
            with linnet.backend(backend):
                _, state = rnn(x)
            loss = tensors(state)[i].sin().sum()
            found.append(
                torch.autograd.grad(loss, [x, *rnn.parameters()], materialize_grads=True, allow_unused=True)
            )
        torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@over("sort", [SORTS[0], variant(linnet.SCRN), variant(linnet.QRNN, window=2), variant(linnet.GRU)])
def test_any_one_tensor_may_take_a_gradient_alone(sort: Variant):
    """x without one, parameters frozen: what is not asked for must not disturb what is."""
    rnn = sort.build(5)
    x = draw(4, 3, rnn.input_size, seed=5)
    leaves = {"x": x, **dict(rnn.named_parameters())}
    for leaf in leaves.values():
        for other in leaves.values():
            other.requires_grad_(other is leaf)
        compare(rnn, x, **flags("mask and resets", 4, 3))
        alone_in_it(rnn, x, leaf)


def alone_in_it(rnn: Any, x: Tensor, leaf: Tensor) -> None:
    """Without a state that takes a gradient, too."""
    found = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            found.append(torch.autograd.grad(rnn(x)[0].sin().sum(), leaf)[0])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@over("sort", [*SORTS, variant(linnet.SCRN), variant(linnet.ATR)])
@over("kind", FLAGS)
@over("around", [torch.no_grad, torch.inference_mode])
def test_inference_computes_the_same(sort: Variant, kind: str, around: Any):
    rnn = sort.build(9, bidirectional=True)
    x, state = draw(7, 3, rnn.input_size, seed=5), draw_state(rnn, 3)
    with around(), linnet.backend("cpu"):
        ours = rnn(x, state, **flags(kind, 7, 3))
    with linnet.backend("reference"):
        theirs = rnn(x, state, **flags(kind, 7, 3))
    torch.testing.assert_close(ours, detached(theirs), rtol=1e-13, atol=1e-13)


def detached(result: Any) -> Any:
    y, state = result
    return y.detach(), each(Tensor.detach, state)


@over("dtype", list(TOLERANCES))
@over("sort", SORTS)
def test_a_projection_is_the_same_however_many_steps_are_made_at_a_time(
    sort: Variant, dtype: torch.dtype, monkeypatch
):
    """The state goes from piece to piece unrounded, and each number is one sum in one order."""
    rnn = sort.build(37, dtype, bidirectional=True)
    x, state = draw(7, 9, rnn.input_size, seed=5, dtype=dtype), draw_state(rnn, 9)
    how = flags("mask and resets", 7, 9)
    with torch.no_grad():
        whole = rnn(x, state, **how)
        for at_once in (1, 2, 3):
            monkeypatch.setattr("linnet.cpu.forward.steps_at_once", lambda batch, steps=at_once: steps)
            # Another module, because this one has kept how many steps it makes at a time.
            torch.testing.assert_close(copy.deepcopy(rnn)(x, state, **how), whole, rtol=0, atol=0)


@over("dtype", list(TOLERANCES))
@over("sort", SORTS)
def test_a_projection_is_the_same_for_any_strides(sort: Variant, dtype: torch.dtype):
    """Rows that follow each other in even steps are taken in one run, others are not."""
    rnn = sort.build(37, dtype)
    x = draw(7, 9, rnn.input_size, seed=5, dtype=dtype)
    apart = x.new_zeros(7, 12, rnn.input_size)[:, :9].copy_(x)
    other = x.transpose(0, 1).contiguous().transpose(0, 1)
    with torch.no_grad():
        whole = rnn(x)
        for seen in (apart, other, x.expand_as(x)):
            torch.testing.assert_close(rnn(seen), whole, rtol=0, atol=0)


@over("sort", SORTS)
def test_inference_keeps_no_states_of_all_steps(sort: Variant, monkeypatch):
    kept = []
    original = ForwardScan.__init__

    def spy(scan: ForwardScan, operands: Operands, kind: Kind) -> None:
        kept.append(kind.keep)
        original(scan, operands, kind)

    monkeypatch.setattr(ForwardScan, "__init__", spy)
    rnn = sort.build(9)
    x = draw(7, 3, rnn.input_size, seed=5)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            rnn(x)
            rnn(x, resets=torch.zeros(7, 3, dtype=torch.bool))
    assert kept
    assert not any(kept)


def test_packed_sequences():
    for unit in (linnet.SRU, linnet.LSTM):
        rnn = variant(unit).build(9, bidirectional=True)
        x, lengths = draw(6, 4, 7, seed=5), torch.tensor([3, 6, 1, 4])
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        with linnet.backend("reference"):
            expected, state = rnn(packed)
        with linnet.backend("cpu"):
            y, final = rnn(packed)
        torch.testing.assert_close((y.data, final), (expected.data, state), rtol=1e-13, atol=1e-13)


def test_a_sequence_without_a_batch():
    for unit in (linnet.SRU, linnet.LSTM):
        rnn = variant(unit).build(9)
        with linnet.backend("reference"):
            expected = rnn(draw(6, 7, seed=5))
        with linnet.backend("cpu"):
            torch.testing.assert_close(rnn(draw(6, 7, seed=5)), expected, rtol=1e-13, atol=1e-13)


# ------------------------------------------------------------------------------- options of the stack


OPTIONS = {
    "two layers": {"num_layers": 2},
    "norm of the gates": {"norm": "layer"},
    "norm by root mean square": {"norm": "rms", "num_layers": 2},
    "norm of the input": {"prenorm": "layer"},
    "projected": {"proj_size": 4},
    "residual": {"num_layers": 2, "residual": True},
    "zoneout": {"zoneout": 0.3},
    "dropout of the state": {"state_dropout": 0.3},
    "dropout of weights": {"weight_drop": 0.3},
    "dropout of all weights": {"weight_drop": 0.3, "weight_drop_on": "all"},
    "dropout between layers": {"num_layers": 2, "dropout": 0.3},
    "dropout of the input": {"input_dropout": 0.3, "num_layers": 2},
    "without biases": {"bias": False},
}


@over("options", OPTIONS)
@over("unit", [linnet.SRU, linnet.GRU, linnet.SCRN])
@over("training", [True, False])
def test_options_of_the_stack(unit: Any, options: str, training: bool):
    """The same seed draws the same masks by either backend."""
    # SRU has no recurrent matrix that could read a dropped state.
    unit = linnet.LSTM if unit is linnet.SRU and options == "dropout of the state" else unit
    rnn = variant(unit).build(6, bidirectional=True, **OPTIONS[options]).train(training)
    x, state = draw(5, 3, 7, seed=5).requires_grad_(), draw_state(rnn, 3)
    results = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(0)
        results.append(run(backend, rnn, x, state, **flags("mask and resets", 5, 3)))
    agree(*results, 1e-13)


@over("context_in_output", [True, False])
def test_zoneout_of_a_unit_in_stages(context_in_output: bool):
    """What is zoned out is the state after all stages; the second stage reads the context before that."""
    rnn = variant(linnet.SCRN, context_in_output=context_in_output).build(6, zoneout=0.3).eval()
    x = draw(5, 3, 7, seed=5).requires_grad_()
    compare(rnn, x, **flags("mask and resets", 5, 3))
    with torch.no_grad():  # single steps, by one native call
        found = rnn(x[:1]), rnn.first_cell.run_step(x[0])
        with linnet.backend("reference"):
            torch.testing.assert_close(found, (rnn(x[:1]), rnn.first_cell.run_step(x[0])))


def test_second_derivatives_through_a_dropped_state():
    found = []
    for backend in ("cpu", "reference"):
        rnn = variant(linnet.RAN).build(5, state_dropout=0.4)
        x = draw(4, 3, 7, seed=5).requires_grad_()
        torch.manual_seed(0)
        with linnet.backend(backend):
            y, _ = rnn(x)
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *rnn.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


NOISY = [
    variant(linnet.SRU, square=True, cell_dropout=0.4, input_dropout=0.3),
    variant(linnet.SRU, square=True, cell_dropout=0.4, cell_dropout_on="gate"),
    variant(linnet.QRNN, zoneout=0.4),
    variant(linnet.QRNN, zoneout=0.4, window=2, pooling="ifo", input_dropout=0.3),
    variant(linnet.LSTM, zoneout=0.4, peepholes=True),
    variant(linnet.GRU, zoneout=0.4, form="ran", weight_drop=0.3),
]


@over("noisy", NOISY)
@over("dtype", [torch.float64, torch.bfloat16])
def test_noise_on_the_state(noisy: Variant, dtype: torch.dtype, monkeypatch):
    """Masks that depend on their shape alone: backends may draw them in another order."""

    def same_mask(shape, rate, like):
        # A module asks for the names of its parts on the meta device when it is built.
        mask = (draw(*shape, seed=sum(shape)) > 0).to(like.dtype) / (1 - rate)
        return torch.empty(shape, device="meta") if like.is_meta else mask

    for module in ("units.sru", "layers.projection"):
        monkeypatch.setattr(f"linnet.{module}.keep_mask", same_mask)
    rnn = noisy.build(6, dtype, bidirectional=noisy.unit is not linnet.SRU)
    x = draw(5, 3, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
    tolerance, wide = TOLERANCES[dtype]
    wider, state = copy.deepcopy(rnn).to(wide), draw_state(rnn, 3)
    torch.manual_seed(0)
    ours = run("cpu", rnn, x, state, **flags("mask and resets", 5, 3))
    torch.manual_seed(0)
    theirs = run(
        "reference", wider, x.to(wide), each(lambda s: s.to(wide), state), **flags("mask and resets", 5, 3)
    )
    agree(ours, theirs, tolerance)


@over("attribute", ["alpha", "zoneout"])
def test_an_attribute_changed_after_building_counts(attribute: str):
    """A step reads its numbers when it runs; a kernel must not hold on to what they were."""
    rnn = linnet.SCRN(4, 6) if attribute == "alpha" else linnet.LRN(4, 6, zoneout=0.5)
    rnn.eval()
    place = rnn.first_cell if attribute == "alpha" else rnn.directions[0]
    setattr(place, attribute, 0.1)
    x = draw(5, 3, 4, seed=5, dtype=torch.float32)
    y, _ = rnn(x)
    with linnet.backend("reference"):
        torch.testing.assert_close(y, rnn(x)[0])


# ------------------------------------------------------------------------------ NaN, buffers, threads


@over("variant", FORMS)
def test_what_stands_at_padded_steps_reaches_nothing(variant: Variant):
    rnn = variant.build(9, bidirectional=True)
    x, mask = draw(8, 3, 7, seed=5), flags("mask", 8, 3)["mask"]
    expected = run("cpu", rnn, x.requires_grad_(), mask=mask)
    poisoned = x.detach().masked_fill(~mask[..., None], torch.nan).requires_grad_()
    ours = run("cpu", rnn, poisoned, mask=mask)
    identical(ours, expected)
    assert (ours["gradient of x"][~mask] == 0).all()
    assert (ours["output"][~mask] == 0).all()


@over("value", [torch.nan, torch.inf])
@over("variant", FORMS)
def test_nan_and_infinity_spread_as_in_the_reference(variant: Variant, value: float):
    rnn = variant.build(9)
    x = draw(6, 3, 7, seed=5)
    x[2, 1, 4] = value
    x.requires_grad_()
    ours, theirs = run("cpu", rnn, x), run("reference", rnn, x)
    for name, right in theirs.items():
        assert torch.equal(ours[name].isnan(), right.isnan()), name
        assert torch.equal(ours[name].isinf(), right.isinf()), name
    assert ours["output"][:, [0, 2]].isfinite().all()


def guarded(make: Any, rooms: list[Tensor], fill: float | None = None) -> Any:
    """`torch.empty` or `torch.zeros` in the middle of larger rooms, all of NaN but for what it fills."""

    def room(*shape, **options):
        tensor = make(*shape, **options)
        if not tensor.is_floating_point() or tensor.device.type != "cpu":
            return tensor
        rooms.append(tensor.new_empty(tensor.numel() + 128).fill_(torch.nan))
        middle = rooms[-1][64 : 64 + tensor.numel()].view(tensor.shape)
        return middle if fill is None else middle.fill_(fill)

    return room


@over("dtype", list(TOLERANCES))
@over("sort", [*SORTS, variant(linnet.SCRN), variant(linnet.QRNN, window=2)])
def test_kernels_read_nothing_they_did_not_write_and_write_nothing_else(
    sort: Variant, dtype: torch.dtype, monkeypatch
):
    """Buffers come full of NaN, and lie between NaN: what is read too early or too far shows."""
    for size in (Size(5, 3, 1, "nothing"), Size(4, 7, 37, "mask and resets"), Size(3, 2, 16, "nothing")):
        rnn = sort.build(size.hidden, dtype, bidirectional=True)
        x = draw(size.steps, size.batch, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
        how = flags(size.kind, *size[:2])
        expected = run("cpu", rnn, x, **how)
        rooms: list[Tensor] = []
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", guarded(torch.empty, rooms))
            patch.setattr(torch, "zeros", guarded(torch.zeros, rooms, 0.0))
            ours = run("cpu", rnn, x, **how)
            with torch.no_grad(), linnet.backend("cpu"):
                y, _ = rnn(x, draw_state(rnn, size.batch), **how)
        identical(ours, expected)
        assert torch.equal(y, expected["output"])
        assert rooms
        assert all(room[:64].isnan().all() and room[-64:].isnan().all() for room in rooms)


def scan_gradients(fusible: Fusible, groups: list[list[Tensor]], how: tuple) -> list[Tensor]:
    """The output, the final states and the gradients, straight from the scan."""
    leaves = [[t.detach().requires_grad_() for t in group] for group in groups]
    (joint,), *others = leaves
    tensors = [tensor for group in others for tensor in group]
    y, finals = fused_scan(Call(fusible, flags=how), Source(joint, None, None), tensors)
    results = [y, *finals]
    above = [draw(*r.shape, seed=i, dtype=r.dtype) for i, r in enumerate(results)]
    # The gradients of matrices come last: they are products by torch, not by a kernel.
    wanted = [leaf for group in leaves[:-1] for leaf in group]
    return [*results, *torch.autograd.grad(results, wanted, above)]


def scan_groups(fusible: Fusible, size: Size, dtype: torch.dtype) -> list[list[Tensor]]:
    traced, (steps, batch, hidden, _) = fusible.plan.traced, size
    if traced.sizes:
        return whole_groups(fusible, steps, batch, dtype)
    made = sum(len(parts) for _, parts in fusible.plan.matrices)
    joint = len(traced.inputs) - len(fusible.plan.extras) - made
    shapes = [
        [(steps, batch, joint * hidden)],
        [(steps, batch, hidden)] * len(fusible.plan.extras),
        [(hidden,)] * len(traced.weights),
        [(batch, hidden)] * len(traced.states),
        [(len(parts) * hidden, hidden) for _, parts in fusible.plan.matrices],
    ]
    return [
        [
            draw(*shape, seed=10 * i + j, dtype=dtype) / (shape[-1] ** 0.5 if i == 4 else 1)
            for j, shape in enumerate(group)
        ]
        for i, group in enumerate(shapes)
    ]


def whole_groups(fusible: Fusible, steps: int, batch: int, dtype: torch.dtype) -> list[list[Tensor]]:
    """The tensors of a scan whose plan has sizes."""
    plan, sizes = fusible.plan, dict(fusible.plan.traced.sizes)
    shapes = [
        [(steps, batch, sum(sizes[name] for name in plan.projected))],
        [(steps, batch, sizes[name]) for name in plan.extras],
        [(sizes[name],) for name in plan.traced.weights],
        [(batch, sizes[name]) for name in plan.traced.states],
        [(sum(sizes[part] for part in parts), sizes[source]) for source, parts in plan.matrices],
    ]
    return [
        [
            draw(*s, seed=10 * i + j, dtype=dtype) / (s[-1] ** 0.5 if i == 4 else 1)
            for j, s in enumerate(group)
        ]
        for i, group in enumerate(shapes)
    ]


@pytest.fixture
def threads():
    """Sets the number of threads, and puts it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@over("dtype", [torch.float32, torch.bfloat16])
@over("variant", FORMS)
def test_results_are_the_same_bits_for_any_number_of_threads(
    variant: Variant, dtype: torch.dtype, threads, monkeypatch
):
    """Few long rows, which are cut into blocks of channels, and many short ones; on all threads."""
    monkeypatch.setattr("linnet.cpu.threads.WORTH", 1)
    for size in (Size(5, 3, 500, "mask and resets"), Size(7, 33, 31, "nothing")):
        how = (*(flags(size.kind, *size[:2]).get(name) for name in ("mask", "resets")), True)
        for fusible in plans_of(variant.build(size.hidden if variant not in OF_ANY_SIZE else 4)):
            groups = scan_groups(fusible, size, dtype)
            found = []
            for count in (1, 2, 3):
                threads(count)
                found.append(scan_gradients(fusible, groups, how))
            for again in found[1:]:
                assert all(map(torch.equal, found[0], again))


@over("variant", FORMS)
def test_results_are_right_with_several_threads(variant: Variant, threads, monkeypatch):
    monkeypatch.setattr("linnet.cpu.threads.WORTH", 1)
    threads(3)
    check(variant, Size(5, 3, 500, "mask and resets"))
    check(variant, Size(4, 35, 17, "nothing"))


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "nothing"), (torch.bfloat16, "mask")])
# What is computed after a scan are torch's products, which it divides among threads in its own way.
@over("variant", [variant for variant in FORMS if not variant.unit(4, 4).first_cell.reads_out])
def test_without_gradients_any_number_of_threads_gives_the_same_bits(
    variant: Variant, dtype: torch.dtype, kind: str, threads, monkeypatch
):
    """No sequence of states is kept then: what one thread writes, another may be about to read."""
    monkeypatch.setattr("linnet.cpu.threads.WORTH", 1)
    rnn = variant.build(200, dtype)
    for steps, batch in ((1, 1), (1, 3), (6, 2), (5, 33)):
        x, state = draw(steps, batch, rnn.input_size, seed=5, dtype=dtype), draw_state(rnn, batch)
        found = []
        for count in (1, 2, 3):
            threads(count)
            with torch.no_grad(), linnet.backend("cpu"):
                y, final = rnn(x, state, **flags(kind, steps, batch))
            found.append([y, *tensors(final)])
        for again in found[1:]:
            assert all(map(torch.equal, found[0], again))


@over("variant", FORMS)
def test_results_are_the_same_bits_from_run_to_run(variant: Variant, threads):
    threads(2)
    rnn = variant.build(100, torch.float32, bidirectional=True)
    x = draw(40, 5, 7, seed=5, dtype=torch.float32).requires_grad_()
    expected = run("cpu", rnn, x)
    for _ in range(3):
        identical(run("cpu", rnn, x), expected)


# ---------------------------------------------------------------------------------------- autograd


def first_gradients(rnn: Any, x: Tensor, state: Any, how: dict[str, Tensor]) -> list[Tensor]:
    y, final = rnn(x, state, **how)
    loss = y.sin().sum() + sum(s.cos().sum() for s in tensors(final))
    leaves = [x, *tensors(state), *rnn.parameters()]
    return list(
        torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True, materialize_grads=True)
    )


@over("kind", FLAGS)
@over("sort", [*SORTS, variant(linnet.SCRN), variant(linnet.QRNN, window=2), variant(linnet.RAN)])
def test_second_derivatives_are_those_of_the_reference(sort: Variant, kind: str):
    rnn = sort.build(4)
    x = draw(4, 2, rnn.input_size, seed=5).requires_grad_()
    state = each(lambda s: s.requires_grad_(), draw_state(rnn, 2))
    leaves = [x, *tensors(state), *rnn.parameters()]
    found = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            first = first_gradients(rnn, x, state, flags(kind, 4, 2))
            penalty = sum((g**2).sum() for g in first)
            second = torch.autograd.grad(penalty, leaves, allow_unused=True, materialize_grads=True)
        found.append([*first, *second])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


@over("sort", [variant(linnet.LRN), variant(linnet.SRU, square=True), variant(linnet.ATR)])
def test_second_derivatives_are_slopes_of_the_first(sort: Variant):
    rnn = sort.build(2, input_size=2)
    names = [name for name, _ in rnn.named_parameters()]

    def output(x, *parameters):
        with linnet.backend("cpu"):
            return functional_call(rnn, dict(zip(names, parameters, strict=True)), (x,))[0]

    x = draw(3, 2, 2, seed=5).requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in rnn.parameters()]
    assert torch.autograd.gradcheck(output, (x, *parameters))
    assert torch.autograd.gradgradcheck(output, (x, *parameters))


def test_second_derivatives_where_only_a_state_takes_a_gradient():
    """Some of the final states do not depend on it at all."""
    rnn = linnet.QRNN(4, 5, window=2, dtype=torch.double).requires_grad_(False)
    state = list(draw_state(rnn, 2))
    state[0].requires_grad_()
    found = []
    for backend in ("cpu", "reference"):
        with linnet.backend(backend):
            y, _ = rnn(draw(3, 2, 4, seed=5), tuple(state))
        (first,) = torch.autograd.grad((y**2).sum(), state[0], create_graph=True)
        found.append(torch.autograd.grad(first.sum(), state[0]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@over("sort", SORTS)
def test_a_graph_that_is_kept_gives_the_same_gradients_again(sort: Variant):
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    with linnet.backend("cpu"):
        y, _ = rnn(x)
    leaves = [x, *rnn.parameters()]
    first, second = (torch.autograd.grad(y.sin().sum(), leaves, retain_graph=True) for _ in range(2))
    # A product may be made anew, and is then made elsewhere in memory.
    torch.testing.assert_close(first, second, rtol=1e-14, atol=1e-14)


@over("sort", SORTS)
def test_an_output_changed_before_the_backward_pass_gives_an_error_or_the_right_gradient(sort: Variant):
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    with linnet.backend("reference"):
        y, _ = rnn(x)
        (expected,) = torch.autograd.grad((2 * y).sum(), x)
    with linnet.backend("cpu"):
        y, _ = rnn(x)
    found, problem = expected, "modified"
    try:
        y.mul_(2)
        (found,) = torch.autograd.grad(y.sum(), x)
    except RuntimeError as error:
        problem = str(error)
    assert "modified" in problem
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_an_output_that_is_changed_behind_autograd_changes_no_gradient():
    """LRN's output is its state, which its gradient reads: the states are computed again."""
    rnn = variant(linnet.LRN).build(9)
    x, found = draw(6, 3, 7, seed=5).requires_grad_(), []
    for factor in (1, 2):
        y, _ = rnn(x)
        with torch.no_grad():
            y.detach().mul_(factor)
        found.append(torch.autograd.grad(y.sum(), [x, *rnn.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


@over("sort", SORTS)
def test_a_run_is_freed_at_once(sort: Variant):
    """No cycle keeps its memory until the collector comes by."""
    rnn = sort.build(9)
    x = draw(6, 3, rnn.input_size, seed=5).requires_grad_()
    gc.disable()
    try:
        y, state = rnn(x)
        y.sum().backward()
        seen = [weakref.ref(t) for t in (y, *tensors(state))] + [weakref.ref(y.grad_fn)]
        del y, state
        assert all(ref() is None for ref in seen)
    finally:
        gc.enable()


def test_vmap_works_or_says_what_to_do():
    rnn = variant(linnet.LRN).build(5)
    xs = draw(4, 3, 2, 7, seed=5)
    expected = torch.stack([rnn(x)[0] for x in xs])
    works_or_says(lambda: torch.func.vmap(lambda x: rnn(x)[0])(xs), expected)


def test_gradients_of_functions_work_or_say_what_to_do():
    """Per sequence, as torch.func does it."""
    rnn = variant(linnet.LSTM).build(5)
    parameters = {name: p.detach() for name, p in rnn.named_parameters()}
    xs = draw(4, 3, 2, 7, seed=5)

    def loss(parameters, x):
        return functional_call(rnn, parameters, (x,))[0].sin().sum()

    with linnet.backend("reference"):
        expected = [torch.func.grad(loss)(parameters, x) for x in xs]
    stacked = {name: torch.stack([each[name] for each in expected]) for name in parameters}
    works_or_says(lambda: torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, xs), stacked)


# Of torch's own making, in what it imports for this.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode_works_or_says_what_to_do():
    rnn = variant(linnet.SRU).build(5)
    x, along = draw(3, 2, 7, seed=5), draw(3, 2, 7, seed=6)

    def output(x):
        return rnn(x)[0]

    with linnet.backend("reference"):
        expected = torch.func.jvp(output, (x,), (along,))
    works_or_says(lambda: torch.func.jvp(output, (x,), (along,)), expected)


# ------------------------------------------------------------------------------------ the authors


# Units, and forms of units, that run by the reference loop.
# There are kernels for some of its sizes and options only.
SOME = "nru/nru_"
GOLDEN = {f"{path.parent.name}/{path.stem}": path for path in files()}


@over("name", [name for name in GOLDEN if not name.startswith(SOME)])
def test_kernels_give_the_authors_numbers(name: str):
    with linnet.backend("cpu"):
        test_golden.test_output_state_and_gradients_are_the_authors(GOLDEN[name])


@over("name", [name for name in GOLDEN if name.startswith(SOME)])
def test_nru_gives_the_authors_numbers_or_says_that_it_has_no_kernel(name: str):
    problem = ""
    try:
        with linnet.backend("cpu"):
            test_golden.test_output_state_and_gradients_are_the_authors(GOLDEN[name])
    except RuntimeError as error:
        problem = str(error)
    assert not problem or "cannot run on it" in problem


@over("name", GOLDEN)
def test_the_reference_gives_the_authors_numbers(name: str):
    with linnet.backend("reference"):
        test_golden.test_output_state_and_gradients_are_the_authors(GOLDEN[name])


# ---------------------------------------------------------------------------------------- autocast


@over("variant", CONTINUOUS)
@over("kind", ["nothing", "mask and resets"])
def test_autocast_is_close_to_float32(variant: Variant, kind: str):
    """Products in bfloat16, the recurrence in float32; parameters, gradients and states stay float32."""
    rnn = variant.build(20, torch.float32, bidirectional=True)
    x = draw(9, 4, 7, seed=5, dtype=torch.float32).requires_grad_()
    state = draw_state(rnn, 4)
    expected = run("reference", rnn, x, state, **flags(kind, 9, 4))
    with torch.autocast("cpu", torch.bfloat16):
        ours = run("cpu", rnn, x, state, **flags(kind, 9, 4))
    agree(ours, expected, 3e-2)
    assert {ours[name].dtype for name in ours if name != "output"} == {torch.float32}


@over("unit", [linnet.LSTM, linnet.RAN, linnet.GRU, linnet.ATR])
@over("frozen", [False, True])
def test_gradients_that_serve_projections_and_products_alike(unit: Any, frozen: bool):
    """Where both are added, one gradient serves both: not at a start anew, nor where one alone is wanted."""
    rnn = variant(unit).build(6)
    if frozen:
        rnn.first_cell.input.requires_grad_(False)
    for kind in ("nothing", "resets"):
        x = draw(5, 9, 7, seed=5).requires_grad_(not frozen)
        agree(*(run(backend, rnn, x, **flags(kind, 5, 9)) for backend in ("cpu", "reference")), 1e-13)


@over("channels", [1, 4])
def test_numbers_that_lie_in_memory_with_the_other_sign_are_read_right(channels: int):
    """As the imaginary part of a conjugate does; the gradient may come like that, too."""
    rnn = linnet.LRN(channels, channels, dtype=torch.double)
    values = draw(5, 3, channels, 2, seed=5)
    x = torch.view_as_complex(values).conj().imag
    assert x.is_neg()
    found = []
    for name in ("cpu", "reference"):
        with linnet.backend(name):
            y, _ = rnn(x)
        with linnet.backend(name), torch.no_grad():
            quiet, _ = rnn(x)
        found.append([y, quiet, *torch.autograd.grad(y, list(rnn.parameters()), x)])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
