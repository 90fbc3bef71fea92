"""Resets to a given state: by kernels as by the reference loop, with the gradients of that state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fused_runs import (
    FORMS,
    NOT_ELEMENTWISE,
    OTHER_STEPS,
    WITH_INNER_PRODUCTS,
    Size,
    Variant,
    compare,
    draw,
    draw_state,
    flags,
    over,
    run,
    variant,
)
from helpers import each, tensors

import linnet

SIZES = [Size(1, 3, 5, "resets"), Size(9, 2, 19, "resets"), Size(11, 5, 17, "mask and resets")]


def starts(rnn: linnet.Recurrent, batch: int, steps: int = 0) -> Any:
    """A state for all resets; or one for each step."""
    state = draw_state(rnn, batch, seed=21)
    if not steps:
        return state
    return each(lambda s: s * torch.linspace(-1, 1, steps, dtype=s.dtype)[:, None, None, None], state)


def check(variant: Variant, size: Size, dtype: torch.dtype = torch.double, **more: Any) -> None:
    """With one state for all resets, and with one for each step."""
    both = {} if "reduced" in variant.options else {"bidirectional": True}
    rnn = variant.build(size.hidden, dtype, **both, **more).eval()
    x = draw(size.steps, size.batch, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
    for steps in (0, size.steps):
        state = starts(rnn, size.batch, steps)
        compare(rnn, x, reset_state=state, **flags(size.kind, size.steps, size.batch))


@over("size", SIZES)
@over("variant", FORMS)
def test_every_unit_in_both_directions(variant: Variant, size: Size):
    check(variant, size)


# Every second form of a step: their equations have their parity in tests/run.
@over("variant", [*OTHER_STEPS, *WITH_INNER_PRODUCTS, *NOT_ELEMENTWISE][::2])
def test_every_form_of_a_step(variant: Variant):
    check(variant, SIZES[2])


@over("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype):
    for unit in (linnet.SRU, linnet.LSTM, linnet.GRU):
        check(variant(unit), SIZES[2], dtype)


@over("options", [{"zoneout": 0.3}, {"num_layers": 2, "residual": True, "proj_size": 19}])
def test_options_of_the_driver(options: dict[str, Any]):
    for unit in (linnet.LRN, linnet.LSTM, linnet.SCRN):
        check(variant(unit, **options), SIZES[1])


def test_masks_on_the_state_apply_to_the_state_at_a_reset():
    """A seed gives the same masks by kernels and by the loop."""
    rnn = variant(linnet.LSTM).build(8, state_dropout=0.5, zoneout=0.3).train()
    x, how = draw(6, 3, 7, seed=5).requires_grad_(), {"reset_state": starts(rnn, 3), **flags("resets", 6, 3)}
    results = []
    for backend in ("cpu", "reference"):
        torch.manual_seed(3)
        results.append(run(backend, rnn, x, **how))
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-11)


def test_a_state_at_resets_without_resets_that_are_set_changes_nothing():
    rnn = variant(linnet.GRU).build(8)
    x, never = draw(6, 3, 7, seed=5), torch.zeros(6, 3, dtype=torch.bool)
    found = rnn(x, resets=never, reset_state=each(lambda s: s * float("nan"), starts(rnn, 3)))
    torch.testing.assert_close(found, rnn(x), rtol=1e-12, atol=1e-12)


def test_gradients_cross_no_reset_and_reach_the_state():
    rnn = variant(linnet.LSTM).build(8)
    x, state = draw(5, 1, 7, seed=5).requires_grad_(), each(lambda s: s.requires_grad_(), starts(rnn, 1, 5))
    resets = torch.tensor([False, False, True, False, False])[:, None]
    y, _ = rnn(x, resets=resets, reset_state=state)
    gradients = torch.autograd.grad(y[-1].sum(), (x, *state))
    assert (gradients[0][:2] == 0).all()
    for gradient in gradients[1:]:
        assert (gradient[resets[:, 0]] != 0).all()
        assert (gradient[~resets[:, 0]] == 0).all()


def test_the_gradient_can_be_differentiated_again():
    rnn = variant(linnet.LRN).build(3)
    x, state = draw(4, 2, 7, seed=5), starts(rnn, 2).requires_grad_()
    resets = flags("resets", 4, 2)["resets"]
    assert resets.any()
    assert torch.autograd.gradgradcheck(lambda s: rnn(x, resets=resets, reset_state=s)[0], (state,))


@over("variant", [variant(linnet.SRU), variant(linnet.LSTM), variant(linnet.NRU), variant(linnet.SCRN)])
def test_a_single_step_without_gradients(variant: Variant):
    rnn = variant.build(8)
    x, state, start = draw(1, 4, 7, seed=5), draw_state(rnn, 4), starts(rnn, 4)
    resets = torch.tensor([[True, False, True, False]])
    with torch.no_grad():
        assert linnet.explain(rnn, x, state, resets=resets, reset_state=start).ways == ["step"]
        y, new = rnn(x, state, resets=resets, reset_state=start)
        pairs = zip(tensors(start), tensors(state), strict=True)
        given = [torch.where(resets[0][:, None], *pair) for pair in pairs]
        expected = rnn(x, type(state)(*given) if len(given) > 1 else given[0])
    torch.testing.assert_close((y, new), expected, rtol=1e-12, atol=1e-12)


def test_a_single_step_records_the_gradient_of_the_state_only():
    rnn = variant(linnet.SRU).build(8).requires_grad_(False)
    start = starts(rnn, 2).requires_grad_()
    y, _ = rnn(draw(1, 2, 7, seed=5), resets=torch.tensor([[True, False]]), reset_state=start)
    (gradient,) = torch.autograd.grad(y.sum(), start)
    assert (gradient[0, 0] != 0).all()
    assert (gradient[0, 1] == 0).all()


def test_kernels_run():
    rnn = variant(linnet.LSTM).build(8)
    how = {"reset_state": starts(rnn, 3), **flags("resets", 6, 3)}
    assert linnet.explain(rnn, draw(6, 3, 7, seed=5), **how).ways == ["scan"]


def test_an_unbatched_sequence():
    rnn = variant(linnet.LSTM).build(8, num_layers=2, bidirectional=True)
    x, resets = draw(6, 1, 7, seed=5), torch.arange(6)[:, None] % 3 == 1
    for steps in (0, 6):
        state = starts(rnn, 1, steps)
        y, _ = rnn(x, resets=resets, reset_state=state)
        alone = each(lambda s: s.squeeze(-2), state)
        torch.testing.assert_close(rnn(x[:, 0], resets=resets[:, 0], reset_state=alone)[0], y[:, 0])


def test_the_pair_of_as_lstm():
    rnn = variant(linnet.SRU).build(8, as_lstm=True)
    x, resets, c = draw(6, 3, 7, seed=5), flags("resets", 6, 3)["resets"], draw(1, 3, 8, seed=2)
    pair = (torch.full_like(c, float("nan")), c)  # h is the last output, which no step reads
    found, _ = rnn(x, resets=resets, reset_state=pair)
    plain = variant(linnet.SRU).build(8)
    torch.testing.assert_close(found, plain(x, resets=resets, reset_state=c)[0])


def test_a_compiled_module():
    rnn = variant(linnet.LSTM).build(8, torch.float32)
    x, resets = draw(6, 3, 7, seed=5, dtype=torch.float32), flags("resets", 6, 3)["resets"]
    rnn(x)
    compiled = torch.compile(rnn, backend="aot_eager", fullgraph=True)
    state = each(lambda s: s.requires_grad_(), starts(rnn, 3))
    results = [module(x, resets=resets, reset_state=state)[0] for module in (compiled, rnn)]
    gradients = [torch.autograd.grad(y.square().sum(), [*state, *rnn.parameters()]) for y in results]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::linnet.FallbackWarning")
def test_int8_matrices():
    """Their kernels know zeros only; single steps and the loop take any state."""
    rnn = linnet.quantize(variant(linnet.GRU).build(8, torch.float32).eval())
    x, resets = draw(6, 3, 7, seed=5, dtype=torch.float32), flags("resets", 6, 3)["resets"]
    state = start = draw(1, 3, 8, seed=2, dtype=torch.float32)
    with torch.no_grad():
        y, _ = rnn(x, state, resets=resets, reset_state=start)
        for t in range(6):
            y_t, state = rnn(x[t : t + 1], state, resets=resets[t : t + 1], reset_state=start)
            torch.testing.assert_close(y_t[0], y[t], rtol=1e-4, atol=1e-4)
