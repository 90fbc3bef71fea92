"""Each operation of a kernel, alone, against exact arithmetic and against torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from linnet.program.plan import Fusible, Plan
from linnet.program.trace import trace
from linnet.run.scan import Call, Source, fused_scan

FLOATS = [torch.float32, torch.float64]
INF, NAN = math.inf, math.nan


def kernel(function: Callable[..., Tensor], *inputs: Tensor, size: int = 37) -> Tensor:
    """`function` of one-dimensional inputs by a kernel, in rows of `size`: whole vectors and a rest."""
    names = [f"x{i}" for i in range(len(inputs))]

    def step(parts, states, weights):
        return function(*parts.values()), states

    plan = Plan(trace(step, names, ["h"], []), tuple(names[1:]), ())
    rows = [torch.cat([x, x.new_zeros(-len(x) % size)]).view(1, -1, size) for x in inputs]
    start = torch.zeros_like(rows[0][0])
    y, _ = fused_scan(Call(Fusible(plan, step)), Source(rows[0], None, None), [*rows[1:], start])
    return y.flatten()[: len(inputs[0])]


def grid(dtype: torch.dtype) -> Tensor:
    """All magnitudes, densely where the functions turn, and the borders of the steps of a power of two."""
    form = torch.finfo(dtype)
    top = 110 if dtype == torch.float32 else 800
    borders = torch.arange(-130, 131, dtype=torch.double) * math.log(2) / 2
    sizes = [math.log10(form.smallest_normal) - 7, math.log10(form.max)]
    magnitudes = torch.logspace(*sizes, 400, dtype=torch.double)
    parts = [
        torch.linspace(-top, top, 1001, dtype=torch.double),
        torch.linspace(-3, 3, 1001, dtype=torch.double),
        *(borders, borders * (1 - 1e-7), borders * (1 + 1e-7)),
        *(magnitudes, -magnitudes),
        torch.tensor([form.tiny, -form.tiny, form.max, -form.max, form.eps, 0.0, -0.0]).double(),
        torch.tensor([-1 + 1e-3, -1 + 1e-6, -1 + 1e-7, -0.9, -0.5]).double(),
    ]
    x = torch.cat(parts).to(dtype)
    return x[x.isfinite()]


def ulps(function: Callable[[Any], Any], x: Tensor, y: Tensor) -> Tensor:
    """How far y is from `function` of x, in units of the last place of the exact result."""
    form = torch.finfo(x.dtype)
    digits, lowest = -round(math.log2(form.eps)), round(math.log2(form.smallest_normal))
    errors = []
    with mpmath.workprec(160):
        for known, found in zip(x.tolist(), y.tolist(), strict=True):
            exact = function(mpmath.mpf(known))
            if abs(exact) > form.max:
                errors.append(0.0 if found == math.copysign(INF, exact) else INF)
                continue
            exponent = int(mpmath.floor(mpmath.log(abs(exact), 2))) if exact else lowest
            last_place = mpmath.mpf(2) ** (max(exponent, lowest) - digits)
            errors.append(float(abs(found - exact) / last_place) if math.isfinite(found) else INF)
    return torch.tensor(errors, dtype=torch.double)


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


# The exact function, where to try it, and its error in units of the last place, as measured and a bit more.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Tensor], Tensor], float]] = {
    "exp": (mpmath.exp, lambda x: x < INF, 1.0),
    # Where its value is denormal a sigmoid may be 0: see below.
    "sigmoid": (sigmoid, lambda x: x > math.log(torch.finfo(x.dtype).smallest_normal), 2.0),
    "tanh": (mpmath.tanh, lambda x: x < INF, 2.5),
    "expm1": (mpmath.expm1, lambda x: x < INF, 1.6),
    "log1p": (mpmath.log1p, lambda x: x > -1, 1.6),
    "log": (mpmath.log, lambda x: x > 0, 1.0),
    "sin": (mpmath.sin, lambda x: x.abs() < 1e5, 1.0),
    "cos": (mpmath.cos, lambda x: x.abs() < 1e5, 1.0),
    "sqrt": (mpmath.sqrt, lambda x: x >= 0, 0.5),
    "reciprocal": (lambda x: 1 / x, lambda x: x != 0, 0.5),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_the_last_places(name: str, dtype: torch.dtype):
    exact, defined, bound = FUNCTIONS[name]
    x = grid(dtype)
    x = x[defined(x)]
    errors = ulps(exact, x, kernel(getattr(torch, name), x))
    worst = errors.argmax()
    assert errors[worst] <= bound, f"{name}({x[worst].item()!r}) is {errors[worst].item():.3g} ulps off"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_sigmoid_below_all_normal_numbers_is_denormal_or_zero(dtype: torch.dtype):
    x = grid(dtype)
    smallest = torch.finfo(dtype).smallest_normal
    x = x[x <= math.log(smallest)]
    y = kernel(torch.sigmoid, x)
    assert ((y >= 0) & (y <= smallest)).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_on_a_vector_is_the_function_on_a_number(name: str, dtype: torch.dtype):
    """To the last bit: where a row is cut depends on the number of threads, and results must not."""
    x = grid(dtype)
    x = x[FUNCTIONS[name][1](x)]
    function = getattr(torch, name)
    assert torch.equal(kernel(function, x, size=1), kernel(function, x, size=64))


SPECIAL = (INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-30, -1e-30, 3e38, -3e38, 1e-42, 1e300)
ONE = [*FUNCTIONS, "abs", "neg", "sign", "floor", "relu", "square"]
TWO = ["add", "sub", "mul", "div", "maximum", "minimum", "pow"]
COMPARISONS = ["gt", "ge", "lt", "le", "eq", "ne"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ONE)
def test_special_values_come_out_as_in_torch(name: str, dtype: torch.dtype):
    """Infinity, NaN, zeros, what has no logarithm or root, overflow."""
    x = torch.tensor(SPECIAL, dtype=torch.double).to(dtype)
    function = getattr(torch, name)
    like_torch(kernel(function, x), function(x), x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", TWO)
def test_pairs_of_special_values_come_out_as_in_torch(name: str, dtype: torch.dtype):
    special = torch.tensor(SPECIAL, dtype=torch.double).to(dtype)
    a, b = special.repeat_interleave(len(special)), special.repeat(len(special))
    function = getattr(torch, name)
    like_torch(kernel(function, a, b), function(a, b), torch.stack([a, b], 1))


def like_torch(ours: Tensor, theirs: Tensor, of: Tensor) -> None:
    """Equal to the rounding of the functions, and NaN, infinite or 0 just where torch's is."""
    bound = 4 * torch.finfo(ours.dtype).eps
    close = torch.isclose(ours, theirs, rtol=bound, atol=0, equal_nan=True)
    assert close.all(), f"of {of[~close].tolist()}: {ours[~close].tolist()} and not {theirs[~close].tolist()}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_special_values_are_those_of_torch(name: str, dtype: torch.dtype):
    special = torch.tensor(SPECIAL, dtype=torch.double).to(dtype)
    a, b = special.repeat_interleave(len(special)), special.repeat(len(special))

    def choose(a, b):
        return torch.where(getattr(torch, name)(a, b), torch.ones_like(a), torch.zeros_like(a))

    def choose_otherwise(a, b):
        return torch.where(torch.logical_not(getattr(torch, name)(a, b)), a, torch.ones_like(a))

    assert torch.equal(kernel(choose, a, b), choose(a, b))
    # And the other way round, with the value itself: it may be NaN, which was chosen or was not.
    torch.testing.assert_close(
        kernel(choose_otherwise, a, b), choose_otherwise(a, b), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_are_those_of_torch(dtype: torch.dtype):
    base = torch.linspace(-3, 3, 241, dtype=dtype)
    for exponent in (2, 3, -1, 0.5, 2.5, 0, 7):
        ours = kernel(lambda x, e=exponent: x**e, base)
        # By repeated products in torch, by one function here.
        bound = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours, base**exponent, rtol=bound, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_in_a_step_are_exact(dtype: torch.dtype):
    x = torch.ones(40, dtype=dtype)
    for number in (0.1, 1 / 3, 1e-40, 3.3e38, -INF, NAN, 16777217.0):
        like_torch(kernel(lambda x, n=number: x * n, x), x * number, x)


# ------------------------------------------------------------------------------------------ bfloat16


def rounded(values: Tensor) -> Tensor:
    """float32 numbers as the output of a kernel that stores bfloat16: the weights come in whole."""

    def step(parts, states, weights):
        return parts["x"] + weights["w"], states

    plan = Plan(trace(step, ["x"], ["h"], ["w"]), (), ())
    size = len(values)
    x = torch.full((1, 1, size), -0.0, dtype=torch.bfloat16)  # adds nothing, not even to -0
    y, _ = fused_scan(Call(Fusible(plan, step)), Source(x, None, None), [values, x[0]])
    return y.flatten()


def float32(*bits: int) -> Tensor:
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


def test_bfloat16_is_rounded_as_torch_rounds():
    bits = torch.randint(-(2**31), 2**31, (4099,), generator=torch.Generator().manual_seed(0))
    values = bits.to(torch.int32).view(torch.float32)
    values = values[~values.isnan()]
    assert torch.equal(rounded(values).view(torch.int16), values.bfloat16().view(torch.int16))


def test_halfway_between_two_bfloat16_the_even_one_is_taken():
    values = float32(0x3F808000, 0x3F818000, 0x3F808001, 0x3F817FFF, 0x00008000, 0x00018000, 0x7F7F8000)
    expected = float32(0x3F800000, 0x3F820000, 0x3F810000, 0x3F810000, 0x00000000, 0x00020000, 0x7F800000)
    assert torch.equal(rounded(values).float(), expected)


def test_nan_in_bfloat16_stays_nan_wherever_its_bits_are():
    values = float32(0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001 - 2**32, 0xFFFFFFFF - 2**32, 0x7F80FFFF)
    assert rounded(values).isnan().all()


def test_functions_in_bfloat16_are_those_of_float32_rounded_once():
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.abs() < 80]
    for name in ("exp", "sigmoid", "tanh"):
        exact = getattr(torch, name)(x.double())
        error = (kernel(getattr(torch, name), x).double() - exact).abs()
        # Half a unit in the last place, and what the functions themselves are off.
        assert (error <= 0.501 * last_place(exact)).all(), name


def last_place(exact: Tensor) -> Tensor:
    _, exponent = torch.frexp(exact)
    smallest = torch.finfo(torch.bfloat16).smallest_normal
    return torch.ldexp(torch.ones_like(exact), exponent - 8).clamp(min=smallest * 2**-7)
