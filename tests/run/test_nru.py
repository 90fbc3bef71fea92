"""The kernel of NRU, whose memory is written by outer products, against the reference loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from fused_runs import (
    FLAGS,
    Size,
    agree,
    check,
    draw,
    draw_state,
    finish,
    flags,
    identical,
    over,
    run,
    start,
    variant,
    works_or_says,
)
from helpers import each, tensors

import linnet

FORMS = [
    variant(linnet.NRU),
    variant(linnet.NRU, num_heads=1, head_activation="relu", head_reduction="sum", bias=False),
    variant(linnet.NRU, layer_norm=True),
]
# A kernel is made for each size; it takes a while.
SIZES = [
    Size(1, 1, 1, "nothing"),
    Size(63, 3, 31, "mask and resets"),
    Size(2, 33, 31, "lengths"),
    Size(9, 7, 31, "mask"),
    Size(9, 1, 31, "resets"),
]


@over("size", SIZES)
@over("form", FORMS)
def test_both_directions_at_awkward_sizes(form: Any, size: Size):
    check(form, size)


def test_float32():
    check(FORMS[0], SIZES[1], torch.float32)


def test_two_layers_without_biases_batch_first():
    rnn = FORMS[1].build(31, num_layers=2, batch_first=True)
    x = draw(3, 8, 7, seed=5).requires_grad_()
    how = flags("mask and resets", 8, 3, batch_first=True)
    agree(run("cpu", rnn, x, **how), run("reference", rnn, x, **how), 1e-12)


@over("kind", FLAGS)
def test_inference(kind: str):
    rnn = FORMS[0].build(31)
    x, state = draw(8, 3, 7, seed=5), draw_state(rnn, 3)
    with linnet.backend("reference"):
        expected = rnn(x, state, **flags(kind, 8, 3))
    with linnet.backend("cpu"), torch.no_grad():
        y, final = rnn(x, state, **flags(kind, 8, 3))
    torch.testing.assert_close((y, *final), (expected[0], *expected[1]), rtol=1e-12, atol=1e-12)


def test_any_one_tensor_may_take_a_gradient_alone():
    rnn = FORMS[0].build(31)
    x = draw(4, 3, 7, seed=5)
    leaves = [x, *rnn.parameters()]
    for leaf in leaves:
        for other in leaves:
            other.requires_grad_(other is leaf)
        how = flags("mask and resets", 4, 3)
        agree(run("cpu", rnn, x, **how), run("reference", rnn, x, **how), 1e-12)


@over("value", [torch.nan, torch.inf])
@over("form", FORMS)
def test_nan_and_infinity_spread_as_in_the_reference(form: Any, value: float):
    rnn = form.build(31)
    x = draw(6, 3, 7, seed=5)
    x[2, 1, 4] = value
    x.requires_grad_()
    ours, theirs = run("cpu", rnn, x), run("reference", rnn, x)
    for name, right in theirs.items():
        assert torch.equal(ours[name].isnan(), right.isnan()), name


def test_heads_that_write_nothing_have_a_gradient():
    """All strengths and directions 0: the norms are held at their least, and nothing is divided by 0."""
    rnn = FORMS[0].build(31)
    with torch.no_grad():
        rnn.first_cell.heads.weight.zero_()
        rnn.first_cell.heads.bias.zero_()
    x = draw(5, 3, 7, seed=5).requires_grad_()
    ours = run("cpu", rnn, x)
    assert all(tensor.isfinite().all() for tensor in ours.values())
    agree(ours, run("reference", rnn, x), 1e-12)


def test_where_the_norm_overflows_nothing_is_written():
    """Directions of 1e8 have fifth powers that float32 does not hold: a norm of infinity, and so 0."""
    rnn = FORMS[0].build(31, dtype=torch.float32)
    x = draw(5, 3, 7, seed=5, dtype=torch.float32).requires_grad_()
    state = each(lambda s: 2e4 * s, draw_state(rnn, 3))
    ours = run("cpu", rnn, x, state)
    assert torch.equal(ours["final state 1"], state[1])
    agree(ours, run("reference", rnn, x, state), 1e-6)


# Those of which p q^T falls into vectors of 16 numbers, too.
WIDE_FORMS = [
    FORMS[0],
    variant(linnet.NRU, head_activation="relu", head_reduction="sum", bias=False),
    FORMS[2],
]
# How large p and q are. The fifth powers of p q^T leave float32 below 1e-9 and above 5e7, and float64 below
# 1e-62, where the norm is held at 1e-12 anyway, and above 1e61.
HEAD_SIZES = {
    torch.float32: (0.0, 1e-25, 1e-7, 3e-6, 1e-5, 3e-5, 1e-4, 1e3, 1e4, 1e5, 1e15),
    torch.float64: (0.0, 1e-100, 1e-7, 1e-6, 1e-5, 1e15, 1e31, 1e40, 1e140),
}


def scale_directions(rnn: Any, *sizes: float) -> None:
    """Multiply what makes the rows of p, q, p' and q' by these sizes, in turn."""
    heads = rnn.first_cell.heads
    first = 2 * rnn.first_cell.num_heads
    with torch.no_grad():
        for parameter in heads.parameters():
            for i, size in enumerate(sizes):
                parameter[first + i :: len(sizes)] *= size


def check_far_from_one(form: Any, dtype: torch.dtype, *sizes: float) -> None:
    rnn = form.build(31, dtype=dtype)
    scale_directions(rnn, *sizes)
    x = draw(3, 3, 7, seed=5, dtype=dtype).requires_grad_()
    ours = run("cpu", rnn, x)
    assert all(tensor.isfinite().all() for tensor in ours.values())
    agree(ours, run("reference", rnn, x), 2e-5 if dtype == torch.float32 else 1e-12)


@over("dtype_and_size", [(dtype, size) for dtype in HEAD_SIZES for size in HEAD_SIZES[dtype]])
@over("form", WIDE_FORMS)
def test_directions_of_any_size_are_finite_and_those_of_the_reference(form: Any, dtype_and_size: Any):
    dtype, size = dtype_and_size
    check_far_from_one(form, dtype, size)


@over("dtype", HEAD_SIZES)
@over("form", WIDE_FORMS)
def test_directions_of_mixed_sizes_are_those_of_the_reference(form: Any, dtype: torch.dtype):
    """Within a head, and from head to head: p and q have 16 rows each, four of them a head."""
    small, large = (1e-5, 1e5) if dtype == torch.float32 else (1e-7, 1e40)
    check_far_from_one(form, dtype, small, 1.0)
    check_far_from_one(form, dtype, *[small] * 4, *[1.0] * 4, *[large] * 4, *[1e-2] * 4)


def test_results_are_the_same_bits_from_run_to_run():
    rnn = FORMS[0].build(31, bidirectional=True)
    x = draw(9, 5, 7, seed=5).requires_grad_()
    expected = run("cpu", rnn, x)
    for _ in range(3):
        identical(run("cpu", rnn, x), expected)


def test_results_are_right_with_several_threads(monkeypatch):
    monkeypatch.setattr("linnet.cpu.threads.WORTH", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        check(FORMS[0], Size(5, 17, 31, "mask and resets"))
    finally:
        torch.set_num_threads(before)


def test_second_derivatives_are_right_or_refused():
    """A gradient that quietly left out part of itself would be the worst of all."""
    rnn = FORMS[0].build(31)
    x = draw(4, 2, 7, seed=5).requires_grad_()
    state = tuple(s.requires_grad_() for s in draw_state(rnn, 2))
    leaves = [x, *state, *rnn.parameters()]

    def second(backend: str) -> Any:
        with linnet.backend(backend):
            y, final = rnn(x, state)
            loss = y.sin().sum() + sum(s.cos().sum() for s in tensors(final))
            first = torch.autograd.grad(loss, leaves, create_graph=True)
            return torch.autograd.grad(sum((g**2).sum() for g in first), leaves, materialize_grads=True)

    works_or_says(lambda: second("cpu"), second("reference"), 1e-11)


AUTOCAST = """
import torch, linnet

torch.manual_seed(0)
rnn = linnet.NRU(7, 31)
x = torch.randn(6, 3, 7, requires_grad=True)
with linnet.backend("reference"):
    expected = torch.autograd.grad(rnn(x)[0].sum(), [x, *rnn.parameters()])
with torch.autocast("cpu", torch.bfloat16):
    y, state = rnn(x)
found = torch.autograd.grad(y.float().sum(), [x, *rnn.parameters()])
for ours, theirs in zip(found, expected, strict=True):
    assert (ours - theirs).norm() <= 0.05 * theirs.norm()
"""


def test_autocast_is_close_to_float32():
    """In a process of its own: a kernel that takes one dtype for another writes where it should not."""
    finish(start("-c", AUTOCAST))


def test_bfloat16():
    rnn = FORMS[0].build(31, torch.bfloat16)
    x = draw(4, 3, 7, seed=5, dtype=torch.bfloat16)
    with linnet.backend("cpu"):
        y, _ = rnn(x)
    assert y.dtype == torch.bfloat16
    with linnet.backend("reference"):
        expected, _ = rnn.float()(x.float())
    torch.testing.assert_close(y.float(), expected, rtol=0, atol=3e-2)


# ---------------------------------------------------------------------------------- safe memory


@over("backend", ["cpu", "reference"])
@over("which", ["mask", "resets"])
def test_flags_that_are_changed_before_the_backward_pass_are_noticed(which: str, backend: str):
    """Gradients of other flags than those of the forward pass would be silently wrong."""
    rnn = FORMS[0].build(31)
    x = draw(5, 3, 7, seed=5).requires_grad_()
    how = flags(which, 5, 3)
    with linnet.backend(backend):
        y, _ = rnn(x, **how)
    how[which].logical_not_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


WRONG = {
    "heads.weight": (
        lambda w: w[:-1],
        r"heads.weight has the shape \(71, 95\) instead of \(72, 95\)",
    ),
    "heads.bias": (
        lambda w: w.double(),
        "'weight.heads.bias' is torch.float64 on cpu, and x is torch.float32",
    ),
    "recurrent.weight": (
        lambda w: w[:, :-3],
        r"recurrent.weight has the shape \(31, 92\) instead of \(31, 95\)",
    ),
    "norm.weight": (
        lambda w: w.to("meta"),
        "'weight.norm.weight' is torch.float32 on meta, and x is torch.float32 on cpu",
    ),
    "norm.bias": (lambda w: w[:4], r"norm.bias has the shape \(4,\) instead of \(31,\)"),
}


@over("is_bound", [True, False])
@over("name", WRONG)
def test_a_parameter_that_does_not_fit_is_refused(name: str, is_bound: bool):
    """The kernel is given addresses: it would read and write beside the tensors."""
    change, message = WRONG[name]
    rnn, x = FORMS[2].build(31, dtype=torch.float32), draw(5, 3, 7, seed=5, dtype=torch.float32)
    if is_bound:
        rnn(x)
    else:  # its step is recorded with the parameter as it is
        message = "but NRU cannot run on it"
    module = rnn.first_cell.get_submodule(name.rpartition(".")[0])
    attribute = name.rpartition(".")[2]
    setattr(module, attribute, torch.nn.Parameter(change(getattr(module, attribute).detach())))
    with linnet.backend("cpu"), pytest.raises((RuntimeError, ValueError), match=message):
        rnn(x)
    for backend in (None, "reference"):
        with linnet.backend(backend), pytest.raises((RuntimeError, ValueError)):
            rnn(x)


def test_two_threads_may_go_back_through_one_graph():
    rnn = FORMS[2].build(31)
    x = draw(30, 5, 7, seed=5).requires_grad_()
    how = flags("mask and resets", 30, 5)
    leaves = [x, *rnn.parameters()]
    with linnet.backend("cpu"):
        y, final = rnn(x, **how)
    loss = y.sin().sum() + sum(s.sin().sum() for s in final)
    expected = torch.autograd.grad(loss, leaves, retain_graph=True)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: torch.autograd.grad(loss, leaves, retain_graph=True), range(20)))
    for gradients in found:
        assert all(map(torch.equal, gradients, expected))
