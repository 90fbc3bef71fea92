"""What was prepared for a module, or copied from it, is not used any more once the module has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_runs import enliven
from helpers import same
from torch import Tensor, nn

import linnet
from linnet.layers.int8_modules import Quantised
from linnet.run.change import Originals
from linnet.run.choose import warn_once

# No size is a whole number of vectors, so that kernels read padded copies of scales and biases.
SIZE, BATCH = 7, 3
UNITS = [linnet.SRU, linnet.LSTM, linnet.GRU, linnet.SCRN]


def replace_buffer(module: Quantised, name: str) -> None:
    setattr(module, name, getattr(module, name).flip(0))


def replace_scale(module: Quantised) -> None:
    module.weight_scale = nn.Parameter(2 * module.weight_scale, requires_grad=False)


def assign_data_twice(tensor: Tensor) -> None:
    """The second one may get the memory of the first, which is free."""
    for _ in range(2):
        tensor.data = tensor.data.flip(0)
    tensor.data = tensor.data.roll(1, 0)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "numbers in place": lambda m: m.weight_int8.neg_(),
    "a row of numbers": lambda m: m.weight_int8[0].zero_(),
    "new numbers": lambda m: replace_buffer(m, "weight_int8"),
    "data of the numbers": lambda m: setattr(m.weight_int8, "data", -m.weight_int8.data),
    "data of the numbers again": lambda m: assign_data_twice(m.weight_int8),
    "scales in place": lambda m: m.weight_scale.mul_(1.5),
    "new scales": replace_scale,
    "data of the scales": lambda m: setattr(m.weight_scale, "data", 3 * m.weight_scale.data),
    "bias in place": lambda m: m.bias.add_(1),
    "a new bias": lambda m: replace_buffer(m, "bias"),
    "data of the bias": lambda m: setattr(m.bias, "data", m.bias.data - 1),
}


def runs_of(rnn: Any) -> dict[str, Callable[[], Tensor]]:
    """From a state that is not zero: recurrent matrices multiply it."""
    x, session, cell = torch.randn(4, BATCH, SIZE), linnet.stream(rnn, BATCH), rnn.first_cell
    _, state = rnn(x)
    of_cell = tuple(s[0] for s in state) if isinstance(state, tuple) else state[0]

    def streamed() -> Tensor:
        session.state = state
        return session(x[0])

    return {
        "a sequence": lambda: rnn(x, state)[0],
        "a step": lambda: rnn(x[:1], state)[0],
        "a step of a cell": lambda: cell.run_step(x[0], of_cell)[0],
        "a stream": streamed,
    }


@torch.no_grad()
def by_the_loop(run: Callable[[], Tensor]) -> Tensor:
    with linnet.backend("reference"):
        return run()


@pytest.mark.parametrize("activations", [True, False], ids=["int8", "weights only"])
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.__name__)
@torch.no_grad()
def test_a_quantised_module_runs_with_its_present_numbers(unit: Any, activations: bool):
    rnn = linnet.quantize(enliven(unit(SIZE, SIZE)), activations=activations)
    modules = [m for m in rnn.modules() if isinstance(m, Quantised)]
    runs = runs_of(rnn)
    for name, change in CHANGES.items():
        for module in modules:
            before = {what: run() for what, run in runs.items()}
            if "bias" in name and module.bias is None:
                continue
            change(module)
            for what, run in runs.items():
                assert not torch.equal(run(), before[what]), f"{what} ignores {name}"
                torch.testing.assert_close(run(), by_the_loop(run), msg=lambda m: f"{what} after {name}: {m}")  # noqa: B023


@torch.no_grad()
def test_a_stream_uses_a_new_projection_of_its_output():
    rnn = linnet.quantize(linnet.SRU(SIZE, SIZE, proj_size=3))
    runs = runs_of(rnn)
    before = runs["a stream"]()
    rnn.directions[0].projection.weight_int8.neg_()
    same(runs["a stream"](), by_the_loop(runs["a stream"]), atol=1e-6)
    assert not torch.equal(before, runs["a stream"]())


@torch.no_grad()
def test_numbers_without_a_count_of_changes_are_read_each_time():
    """Inference tensors, which torch lets change without a trace."""
    rnn = linnet.quantize(linnet.GRU(SIZE, SIZE))
    with torch.inference_mode():
        module = rnn.first_cell.input
        module.weight_int8 = module.weight_int8.clone()
        with pytest.warns(linnet.FallbackWarning, match="are inference tensors"):
            runs = runs_of(rnn)
        for what, run in runs.items():
            before = run()
            module.weight_int8.neg_()
            assert not torch.equal(run(), before), what
            same(run(), by_the_loop(run), atol=1e-6)


def test_a_model_that_is_quantised_in_inference_mode_is_an_ordinary_one():
    with torch.inference_mode():
        rnn = linnet.quantize(linnet.GRU(SIZE, SIZE))
    held = [*rnn.parameters(), *rnn.buffers()]
    assert not any(tensor.is_inference() for tensor in held if tensor.dtype == torch.int8)
    quantised = [m for m in rnn.modules() if isinstance(m, Quantised)]
    assert not any(t.is_inference() for m in quantised for t in (*m.parameters(), *m.buffers()))


@pytest.mark.parametrize("is_global", [False, True], ids=["of a module", "global"])
@torch.no_grad()
def test_steps_are_prepared_again_when_a_hook_is_gone(is_global: bool):
    cell, x = linnet.GRUCell(SIZE, SIZE), torch.randn(BATCH, SIZE)
    register = (
        nn.modules.module.register_module_forward_hook if is_global else cell.input.register_forward_hook
    )
    handle = register(lambda *_: None)
    warn_once.cache_clear()
    with pytest.warns(linnet.FallbackWarning, match="has a hook"):
        cell(x)
    assert cell.plan_cache.decision.obstacle is not None
    kept = cell.plan_cache.decision
    cell(x)
    assert cell.plan_cache.decision is kept
    handle.remove()
    cell(x)
    assert cell.plan_cache.decision.obstacle is None


def test_memory_that_a_copy_was_made_from_is_not_used_again():
    tensor = torch.zeros(1000)
    originals = Originals([tensor])
    address = tensor.data_ptr()
    for _ in range(3):
        tensor.data = torch.ones(1000)
        assert tensor.data_ptr() != address
        assert not originals.hold()


@pytest.mark.parametrize("unit", linnet.UNITS)
def test_no_unit_of_linnet_has_settings_that_must_be_described_at_each_call(unit: str):
    """Its modules are watched, so that a call of NRU need not describe its projections again."""
    rnn = linnet.UNITS[unit](8, 8).eval()
    with torch.no_grad():
        rnn(torch.zeros(2, 1, 8))
    assert rnn.directions[0].plan_cache.decision.watch.settings == []


def test_a_changed_option_of_a_module_inside_is_seen():
    rnn = linnet.NRU(8, 8, layer_norm=True, dtype=torch.float64).eval()
    x = torch.randn(3, 2, 8, dtype=torch.float64)
    with torch.no_grad():
        before = rnn(x)[0]
        rnn.directions[0].cell.norm.eps = 1.0
        after = rnn(x)[0]
        with linnet.backend("reference"):
            assert torch.allclose(rnn(x)[0], after, rtol=1e-12, atol=1e-12)
    assert not torch.equal(before, after)
