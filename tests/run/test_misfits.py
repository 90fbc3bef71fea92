"""Weights that do not fit: kernels read memory by its address, so what they are given is looked at first."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from fused_runs import enliven
from helpers import same

import linnet
from linnet.run.choose import warn_once
from tools.variants import FORMS

EVERY = [*FORMS.values()]
NAMES = lambda unit: unit.__name__  # noqa: E731


@pytest.fixture(autouse=True)
def _falls_back():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", linnet.FallbackWarning)
        yield


def changes(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """What may have become of a parameter by an assignment to its `data`, or by a careless `to`."""
    data = parameter.detach()
    return {
        "fewer rows": data[: len(data) // 2].clone(),
        "more rows": torch.cat([data, data]),
        "one number": data.flatten()[:1].clone(),
        "fewer columns": data[..., : data.shape[-1] // 2].clone(),
        "more columns": torch.cat([data, data], -1),
        "one dimension more": data[None].clone(),
        "nothing": data[:0].clone(),
        "float64": data.double(),
        "bfloat16": data.bfloat16(),
        "whole numbers": data.long(),
        "meta": data.to("meta"),
    }


def outcome(module: torch.nn.Module, x: torch.Tensor, grad: bool) -> Any:
    """What comes out, or that it is an error."""
    try:
        with torch.set_grad_enabled(grad):
            y, _ = module(x)
            if grad:
                y.sum().backward()
        return y.detach()
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return "an error"


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_weight_that_does_not_fit_does_what_the_loop_does(unit, step, grad):
    """An error, or what broadcasting makes of it."""
    build = unit.cell_class if step else unit
    x = torch.randn(2, 16) if step else torch.randn(3, 2, 16)
    names = [name for name, _ in build(16, 16).named_parameters()]
    for name in names:
        for change, data in changes(build(16, 16).get_parameter(name)).items():
            module = enliven(build(16, 16))
            module(x)
            kept = module.get_parameter(name)
            owner, _, last = name.rpartition(".")
            module.get_submodule(owner)._parameters[last] = torch.nn.Parameter(
                data, requires_grad=data.is_floating_point()
            )
            with linnet.backend("reference"):
                expected = outcome(module, x, grad)
            found = outcome(module, x, grad)
            what = f"{name} with {change}"
            assert isinstance(found, str) == isinstance(expected, str), (
                f"{what}: {found} instead of {expected}"
            )
            if not isinstance(found, str):
                same(found, expected, atol=1e-4, rtol=1e-4)
            module.get_submodule(owner)._parameters[last] = kept
            module(x)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_a_projection_on_another_device_is_an_error(backend):
    """torch itself multiplies by a matrix on meta, and gives arbitrary numbers."""
    rnn = linnet.SRU(16, 16, proj_size=4)
    rnn.directions[0].projection.to("meta")
    with (
        linnet.backend(backend),
        torch.no_grad(),
        pytest.raises(ValueError, match="'weight' of the projection"),
    ):
        rnn(torch.randn(3, 2, 16))


@pytest.mark.parametrize("unit", [linnet.RAN, linnet.SRU, linnet.SCRN])
def test_a_matrix_on_meta_is_an_error_where_a_norm_follows_it(unit):
    """torch computes a projection that has a norm, and the kernel reads the result."""
    rnn = unit(16, 16, num_layers=2, norm="layer", bias=False)
    projection = rnn.directions[1].cell.input
    projection.weight = torch.nn.Parameter(projection.weight.to("meta"))
    with torch.no_grad(), pytest.raises(ValueError, match="is on meta"):
        rnn(torch.randn(3, 2, 16))


@pytest.mark.parametrize("options", [{}, {"prenorm": "rms"}, {"norm": "layer"}], ids=str)
def test_a_reduction_on_meta_is_an_error(options):
    """torch computes the product that reduces x to a lower rank."""
    rnn = linnet.SRU(16, 16, rank=2, **options)
    projection = rnn.first_cell.input
    projection.reduce = torch.nn.Parameter(projection.reduce.to("meta"))
    with torch.no_grad(), pytest.raises(ValueError, match=r"'input.reduce' of SRU is on meta"):
        rnn(torch.randn(3, 2, 16))


@pytest.mark.parametrize("steps", [1, 3])
def test_a_matrix_on_meta_is_an_error_for_a_unit_with_a_kernel_of_its_own(steps: int):
    rnn = linnet.NRU(3, 4, num_layers=2).eval()
    projection = rnn.cells[1].input
    projection.weight = torch.nn.Parameter(projection.weight.to("meta"))
    with torch.no_grad(), pytest.raises(ValueError, match=r"'input.weight' of NRU is on meta"):
        rnn(torch.randn(steps, 2, 3))


def test_a_weight_that_shrinks_between_two_steps_is_noticed():
    cell = linnet.LSTMCell(16, 16)
    with torch.no_grad():
        cell(torch.randn(2, 16))
        cell.recurrent.weight.data = cell.recurrent.weight.data[:48]
        with pytest.raises(RuntimeError):
            cell(torch.randn(2, 16))


@pytest.mark.parametrize("change", ["fewer columns", "more columns"])
@pytest.mark.parametrize("cell", [False, True], ids=["layer", "cell"])
@pytest.mark.parametrize("unit", EVERY, ids=NAMES)
def test_a_single_step_with_gradients_compares_the_input_matrix_with_x(unit, cell, change):
    """Forward alone, which reads x by its address: backward is torch's product, with its own check."""
    module = (unit.cell_class if cell else unit)(16, 16, dtype=torch.float64)
    x = torch.randn(*(() if cell else (1,)), 2, 16, dtype=torch.float64)
    module(x)
    weight = (module if cell else module.first_cell).input.weight
    kept = weight.data
    weight.data = changes(weight)[change]
    with pytest.raises(RuntimeError):
        module(x)
    weight.data = kept
    with linnet.backend("reference"):
        expected = module(x)[0].detach()
    same(module(x)[0].detach(), expected)


def test_a_unit_that_can_have_no_kernel_says_so_without_a_warning(caplog: pytest.LogCaptureFixture):
    """There is nothing that its user could change; tests treat warnings as errors."""
    warn_once.cache_clear()
    rnn = linnet.StatisticalRU(3, 4, state_dropout=0.5).train()
    with caplog.at_level("INFO", "linnet"):
        rnn(torch.randn(2, 1, 3))
    assert "StatisticalRU runs on the reference loop: there are no kernels for state_dropout" in caplog.text
