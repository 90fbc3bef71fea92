"""A unit that a user writes: fused like ours, or run by the reference with the reason said."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import user_units
from fused_runs import FLAGS, Size, Variant, agree, check, draw, draw_state, finish, flags, over, run, start
from helpers import tensors

import linnet
from linnet.run import choose

LEAKY = Variant(user_units.Leaky, {})


@over("size", [Size(1, 1, 1, "nothing"), Size(63, 3, 31, "mask and resets"), Size(5, 33, 64, "lengths")])
@over("dtype", [torch.float64, torch.float32])
def test_a_users_unit_fuses_and_agrees_with_its_reference(dtype: torch.dtype, size: Size):
    check(LEAKY, size, dtype)


@over("kind", FLAGS)
@over("options", [{}, {"bias": False}, {"num_layers": 2, "norm": "layer"}, {"proj_size": 3}])
def test_a_users_unit_takes_all_that_ours_take(options: dict[str, Any], kind: str):
    check(LEAKY, Size(6, 3, 9, kind), **options)


def test_a_users_unit_is_zoned_out():
    rnn = LEAKY.build(9, zoneout=0.3)
    x = draw(6, 3, 7, seed=5).requires_grad_()
    results = []
    for name in ("cpu", "reference"):
        torch.manual_seed(0)
        results.append(run(name, rnn, x, **flags("mask", 6, 3)))
    agree(*results, 1e-12)


def test_second_derivatives_do_not_depend_on_the_order_of_new_states():
    """Its step gives c before h; its state is (h, c)."""
    rnn = LEAKY.build(4)
    x = draw(4, 2, 7, seed=5).requires_grad_()
    state = draw_state(rnn, 2)
    found = []
    for name in ("cpu", "reference"):
        with linnet.backend(name):
            y, final = rnn(x, state)
        h, c = tensors(final)
        loss = y.sin().sum() + h.exp().sum() + 3 * c.cos().sum()
        first = torch.autograd.grad(loss, [x, *rnn.parameters()], create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), [x, *rnn.parameters()])
        found.append([*first, *second])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_a_start_made_from_the_input_has_its_gradient_counted_once():
    """The state is a function of x, too, and second derivatives must not mix the two ways up."""
    rnn = LEAKY.build(4, input_size=4)
    x = draw(4, 2, 4, seed=5).requires_grad_()
    found = []
    for name in ("cpu", "reference"):
        with linnet.backend(name):
            y, _ = rnn(x, (x[:1].sin(), x[:1].cos()))
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), x)
        found.append([first, second])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def test_a_copy_of_a_users_unit_is_a_unit():
    rnn = LEAKY.build(9)
    x = draw(5, 2, 7, seed=5)
    with linnet.backend("cpu"):
        torch.testing.assert_close(copy.deepcopy(rnn)(x), rnn(x), rtol=0, atol=0)


# ------------------------------------------------------------------------------- a unit that does not


def test_a_unit_that_is_not_pointwise_runs_and_says_why_once():
    choose.warn_once.cache_clear()
    rnn = Variant(user_units.Sorting, {}).build(6)
    x = draw(5, 2, 7, seed=5)
    with pytest.warns(linnet.FallbackWarning) as told:
        outputs = [rnn(x)[0] for _ in range(3)]
    (text,) = [str(warning.message) for warning in told]
    assert text.startswith("Sorting runs on the reference loop: ")
    assert "sort" in text
    assert Path(user_units.__file__).name in text
    with linnet.backend("reference"):
        torch.testing.assert_close(outputs[0], rnn(x)[0], rtol=0, atol=0)


def test_a_unit_that_is_not_pointwise_is_an_error_where_the_kernel_was_asked_for():
    rnn = Variant(user_units.Sorting, {}).build(6)
    with linnet.backend("cpu"), pytest.raises(RuntimeError, match=r"Sorting cannot run on it: .*sort"):
        rnn(draw(5, 2, 7, seed=5))


def test_the_reference_is_silent_where_it_was_asked_for():
    choose.warn_once.cache_clear()
    rnn = Variant(user_units.Sorting, {}).build(6)
    with warnings.catch_warnings(), linnet.backend("reference"):
        warnings.simplefilter("error")
        rnn(draw(5, 2, 7, seed=5))


# ------------------------------------------------------------------------------------- odd units

# A kernel that gets these wrong reads or writes beyond its operands: not in this process.
PERILOUS = (
    "a learned number",
    "a parameter of one element",
    "one gate for all channels",
    "one number of x for all channels",
    "a part that the step does not read",
)


@over("name", [name for name in user_units.ODD if name not in PERILOUS])
def test_an_odd_unit_computes_what_its_reference_does(name: str):
    """By a kernel or by the reference, but without an error and without a difference."""
    user_units.compare(name)


def test_odd_units_that_could_crash_compute_what_their_reference_does():
    finish(start(user_units.__file__, *PERILOUS))


@over("name", ["cpu", "reference"])
def test_an_output_of_its_own_is_computed_once_from_the_state_that_is_carried(name: str):
    rnn = user_units.ODD["an output of its own"](4, 5, dtype=torch.double, zoneout=0.3).eval()
    x, mask = draw(6, 3, 4, seed=5), flags("mask", 6, 3)["mask"]
    inputs, h, expected = rnn.cells[0].project(x), torch.zeros(3, 5, dtype=torch.double), []
    for t, real in enumerate(mask[..., None]):
        y, new = rnn.cells[0].step(inputs["a"][t], inputs["b"][t], h)
        h = torch.where(real, 0.3 * h + 0.7 * new["h"], h)
        expected.append((2 * y - h + 1) * real)
    with linnet.backend(name):
        output, state = rnn(x, mask=mask)
    torch.testing.assert_close((output, state[0]), (torch.stack(expected), h), rtol=1e-12, atol=1e-12)


@over("name", ["cpu", "reference"])
def test_an_output_of_its_own_in_single_steps(name: str):
    rnn = user_units.ODD["an output of its own"](4, 5, dtype=torch.double)
    x, cell = draw(3, 4, seed=5), rnn.cells[0]
    inputs, zeros = cell.project(x), torch.zeros(3, 5, dtype=torch.double)
    y, new = cell.step(inputs["a"], inputs["b"], zeros)
    with linnet.backend(name), torch.no_grad():
        for output, state in (cell(x), rnn(x[None])):
            torch.testing.assert_close(output.reshape(3, 5), 2 * y - new["h"] + 1, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(state.reshape(3, 5), new["h"], rtol=1e-12, atol=1e-12)


def test_a_buffer_that_is_loaded_counts():
    """What a checkpoint brings must reach the kernel."""
    rnn = user_units.ODD["a buffer of one number"](4, 5, dtype=torch.double)
    x = draw(5, 2, 4, seed=5)
    before, _ = rnn(x)
    rnn.load_state_dict({**rnn.state_dict(), "directions.0.cell.w": torch.tensor(2.0).double()})
    after, _ = rnn(x)
    with linnet.backend("reference"):
        torch.testing.assert_close(after, rnn(x)[0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(before, after)


def test_a_buffer_that_its_cell_names_is_an_operand_of_kernels():
    rnn = user_units.ODD["a buffer that kernels read"](4, 5, dtype=torch.double)
    x = draw(5, 2, 4, seed=5)
    before, _ = rnn(x)
    assert "cpu kernels" in str(linnet.explain(rnn, x))
    for change in (lambda w: w.fill_(0.7), lambda w: w.mul_(2)):
        change(rnn.first_cell.w)
        after, _ = rnn(x)
        with linnet.backend("reference"):
            torch.testing.assert_close(after, rnn(x)[0], rtol=1e-12, atol=1e-12)
        assert not torch.allclose(before, after)
        before = after


def test_one_step_of_a_unit_with_a_module_beside_its_projection():
    """Its extra inputs cannot be computed on meta, where programs of single steps look for them."""
    rnn = user_units.ODD["a module beside the projection"](4, 5, dtype=torch.double)
    x = draw(1, 2, 4, seed=5)
    with torch.no_grad():
        found = rnn(x)
        with linnet.backend("reference"):
            expected = rnn(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
