"""Kernels under torch.func: `vmap`, `grad` and both, against a loop over the calls or the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_runs import (
    FORMS,
    Variant,
    draw,
    draw_state,
    flags,
    over,
    variant,
)
from helpers import each
from torch.func import functional_call, grad, jacrev, jvp, stack_module_state, vmap

import linnet

# A unit without and one with a recurrent matrix, one with two stages, and a step with a product within.
INNER = variant(linnet.GRU, form="before")
SORTS = [variant(linnet.SRU), variant(linnet.LSTM), variant(linnet.SCRN), INNER, variant(linnet.LEM)]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def same_as_reference(call: Callable[[], Any]) -> None:
    found = call()
    with linnet.backend("reference"):
        close(found, call())


def weights_of(rnn: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in rnn.named_parameters()}


@over("variant", FORMS)
def test_a_batch_of_calls_and_its_gradients(variant: Variant):
    rnn = variant.build(5)
    xs = draw(3, 4, 2, rnn.input_size, seed=5).requires_grad_()

    def both(xs: Any, outputs: Any) -> tuple[Any, Any]:
        return outputs, torch.autograd.grad(outputs.sin().sum(), [xs, *rnn.parameters()])

    expected = both(xs, torch.stack([rnn(x)[0] for x in xs]))
    close(both(xs, vmap(lambda x: rnn(x)[0])(xs)), expected)


@over("variant", FORMS)
def test_gradients_of_each_call(variant: Variant):
    rnn = variant.build(5)
    weights, xs = weights_of(rnn), draw(3, 4, 2, rnn.input_size, seed=5)

    def loss(weights: Any, x: Any) -> Any:
        return functional_call(rnn, weights, (x,))[0].sin().sum()

    found = vmap(grad(loss), (None, 0))(weights, xs)
    for i, x in enumerate(xs):
        expected = torch.autograd.grad(rnn(x)[0].sin().sum(), list(rnn.parameters()))
        close([gradient[i] for gradient in found.values()], list(expected))


@over("variant", SORTS)
def test_kernels_run(variant: Variant):
    rnn, xs, found = variant.build(5), draw(3, 4, 2, 7, seed=5), []

    def explain(x: Any) -> Any:
        found.append(linnet.explain(rnn, x))
        return x.sum()

    vmap(explain)(xs)
    vmap(grad(explain))(xs)
    assert {way for explanation in found for way in explanation.ways} == {"operation"}
    assert "torch.func" in str(found[0])


@over("kind", ["lengths", "mask and resets"])
@over("variant", SORTS)
def test_flags_and_states_of_a_batch(variant: Variant, kind: str):
    """The dimension of the batch of calls may be any, and states may have one that x has not."""
    rnn = variant.build(5, bidirectional=True)
    xs = draw(4, 2, 3, 7, seed=5)
    states = each(lambda s: s.unsqueeze(-1) * draw(3, seed=1), draw_state(rnn, 2))
    how = flags(kind, 4, 2)

    def run(x: Any, state: Any) -> Any:
        return rnn(x, state, **how)

    x_of, state_of = (lambda i: xs[:, :, i]), (lambda i: each(lambda s: s[..., i], states))
    for dims in ((2, -1), (None, -1), (2, None)):
        found = vmap(run, dims)(xs if dims[0] else x_of(0), states if dims[1] else state_of(0))
        for i in range(3):
            expected = run(x_of(i if dims[0] else 0), state_of(i if dims[1] else 0))
            close(each_leaf(lambda t, i=i: t[i], found), each_leaf(lambda t: t, expected))


def each_leaf(function: Any, results: Any) -> list[Any]:
    y, state = results
    return [function(y), *map(function, (state,) if isinstance(state, torch.Tensor) else state)]


def test_each_call_may_have_a_mask_of_its_own():
    rnn, xs = variant(linnet.GRU).build(5), draw(3, 4, 2, 7, seed=5)
    masks, resets = draw(3, 4, 2, seed=1) > -0.5, draw(3, 4, 2, seed=2) > 0.5
    found = vmap(lambda x, mask, reset: rnn(x, mask=mask, resets=reset)[0])(xs, masks, resets)
    for i in range(3):
        close(found[i], rnn(xs[i], mask=masks[i], resets=resets[i])[0])


@over("variant", SORTS)
def test_an_ensemble(variant: Variant):
    """Each call has its own weights."""
    rnns = [variant.build(5) for _ in range(3)]
    for number, rnn in enumerate(rnns):
        for parameter in rnn.parameters():
            parameter.data *= 1 - number / 10
    stacked, x = stack_module_state(rnns), draw(4, 2, 7, seed=5)

    def run(weights: Any, buffers: Any, x: Any) -> Any:
        return functional_call(rnns[0], (weights, buffers), (x,))[0]

    found = vmap(run, (0, 0, None))(*stacked, x)
    expected = torch.stack([rnn(x)[0] for rnn in rnns])
    close(found, expected)
    gradients = torch.autograd.grad(found.sin().sum(), list(stacked[0].values()))
    for i, rnn in enumerate(rnns):
        close([g[i] for g in gradients], list(torch.autograd.grad(rnn(x)[0].sin().sum(), rnn.parameters())))


@over("variant", SORTS)
def test_transforms_of_transforms(variant: Variant):
    rnn, xs = variant.build(3), draw(2, 2, 3, 1, 7, seed=5)

    def cubed(x: Any) -> Any:
        return rnn(x)[0].pow(3).sum()

    same_as_reference(lambda: vmap(vmap(lambda x: rnn(x)[0]))(xs))
    same_as_reference(lambda: vmap(vmap(grad(cubed)))(xs))
    same_as_reference(lambda: jacrev(lambda x: rnn(x)[0][-1])(xs[0, 0]))
    same_as_reference(lambda: grad(lambda x: grad(cubed)(x).square().sum())(xs[0, 0]))
    same_as_reference(lambda: vmap(grad(lambda x: grad(cubed)(x).square().sum()))(xs[0]))


@over("variant", SORTS)
def test_autograd_differentiates_what_torch_func_has_computed(variant: Variant):
    rnn, xs = variant.build(3), draw(2, 3, 1, 7, seed=5).requires_grad_()

    def loss(weights: Any, x: Any) -> Any:
        return functional_call(rnn, weights, (x,))[0].pow(3).sum()

    def twice() -> Any:
        y = vmap(lambda x: rnn(x)[0])(xs)
        (once,) = torch.autograd.grad(y.pow(3).sum(), xs, create_graph=True)
        return torch.autograd.grad(once.square().sum(), [xs, *rnn.parameters()])

    def learn_to_learn() -> Any:
        weights = dict(rnn.named_parameters())
        steps = grad(loss)(weights, xs[0])
        better = {name: weight - 0.1 * steps[name] for name, weight in weights.items()}
        return torch.autograd.grad(loss(better, xs[1]), list(weights.values()))

    same_as_reference(twice)
    same_as_reference(learn_to_learn)


def test_only_some_weights_need_gradients():
    rnn, xs = variant(linnet.LSTM).build(5), draw(3, 4, 2, 7, seed=5)
    weights = weights_of(rnn)
    matrix = weights.pop("weight_hh_l0")

    def loss(matrix: Any, x: Any) -> Any:
        given = {**weights, "weight_hh_l0": matrix}
        return functional_call(rnn, given, (x,))[0].sin().sum()

    same_as_reference(lambda: vmap(grad(loss), (None, 0))(matrix, xs))


def test_a_weight_with_the_negative_bit_is_read_with_its_sign():
    rnn, x = variant(linnet.LSTM).build(5), draw(4, 2, 7, seed=5)
    weights = {name: torch.complex(w, -w).conj().imag for name, w in weights_of(rnn).items()}
    assert all(weight.is_neg() for weight in weights.values())
    close(vmap(lambda x: functional_call(rnn, weights, (x,))[0])(x[None])[0], rnn(x)[0])


def test_resets_to_a_state():
    rnn, xs = variant(linnet.LSTM).build(5), draw(3, 4, 2, 7, seed=5)
    start, resets = draw_state(rnn, 2, seed=3), flags("resets", 4, 2)["resets"]
    found = vmap(lambda x: rnn(x, resets=resets, reset_state=start)[0])(xs)
    close(found, torch.stack([rnn(x, resets=resets, reset_state=start)[0] for x in xs]))


def test_single_steps():
    rnn, xs = variant(linnet.SRU).build(5), draw(3, 1, 2, 7, seed=5)
    close(vmap(lambda x: rnn(x)[0])(xs), torch.stack([rnn(x)[0] for x in xs]))
    cell = linnet.SRUCell(7, 5).double()
    with torch.no_grad():
        close(vmap(lambda x: cell(x)[0])(xs[:, 0]), torch.stack([cell(x)[0] for x in xs[:, 0]]))


# Of torch's own making, in what it imports for this.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_a_transform_without_a_rule_runs_on_the_loop():
    rnn, x = variant(linnet.SRU).build(5), draw(4, 2, 7, seed=5)
    found: list[Any] = []
    jvp(lambda x: found.append(linnet.explain(rnn, x)) or x, (x,), (x,))
    assert found[0].ways == ["loop"]
    assert "this transform of torch.func needs the operations" in str(found[0])


def test_a_hand_written_kernel_has_no_rule():
    rnn, xs = variant(linnet.NRU).build(6), draw(3, 4, 2, 7, seed=5)
    close(vmap(lambda x: rnn(x)[0])(xs), torch.stack([rnn(x)[0] for x in xs]))
