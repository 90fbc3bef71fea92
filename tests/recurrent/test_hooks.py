"""Hooks, pruning and weight norm on modules in a stack: kernels do not call these, yet none is ignored."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from helpers import liven, randn, same
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import linnet
from tools.variants import FORMS

over_units = pytest.mark.parametrize("unit", FORMS.values(), ids=lambda unit: unit.__name__)


def inner(unit: type[linnet.Recurrent]) -> list[str]:
    """The modules within a cell; "" is the cell itself."""
    return [name for name, _ in unit(4, 4).first_cell.named_modules()]


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
@over_units
def test_a_hook_on_each_inner_module_runs(unit, kind):
    for name in inner(unit):
        rnn, called = unit(4, 4), []
        module = rnn.first_cell.get_submodule(name)
        getattr(module, kind)(lambda *_, called=called: called.append(True))
        rnn(torch.randn(3, 2, 4))
        assert called, f"the hook on {name or 'the cell'} did not run"


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
@over_units
def test_a_hook_runs_when_a_cell_steps(unit, kind):
    for name in inner(unit):
        cell, called = unit(4, 4).first_cell, []
        getattr(cell.get_submodule(name), kind)(lambda *_, called=called: called.append(True))
        cell(torch.randn(2, 4))
        assert called, f"the hook on {name or 'the cell'} did not run"


@over_units
def test_what_a_hook_returns_is_what_the_unit_reads(unit):
    rnn, x = liven(unit(4, 4)), randn(3, 2, 4)
    before, _ = rnn(x)

    def doubled(module: nn.Module, inputs: Any, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: 2 * part for name, part in parts.items()}

    handle = rnn.first_cell.input.register_forward_hook(doubled)
    after, _ = rnn(x)
    with linnet.backend("reference"):
        same(after, rnn(x)[0])
    assert not torch.allclose(before, after)
    handle.remove()
    same(rnn(x)[0], before)


@over_units
def test_a_hook_on_a_cell_of_a_stack_sees_whole_sequences(unit):
    rnn, seen, x = liven(unit(4, 4)), [], randn(3, 2, 4)
    rnn.first_cell.register_forward_hook(lambda cell, inputs, output: seen.append((inputs[0], output[0])))
    y, _ = rnn(x)
    assert len(seen) == 1
    same((seen[0][0][..., :4], seen[0][1]), (x, y))  # a unit that reads time has it as one more channel


@over_units
def test_backward_hooks_run(unit):
    rnn, called = unit(4, 4), []
    rnn.first_cell.register_full_backward_hook(lambda *_: called.append("backward"))
    rnn.first_cell.register_full_backward_pre_hook(lambda *_: called.append("before"))
    rnn(torch.randn(3, 2, 4, requires_grad=True))[0].sum().backward()
    assert called == ["before", "backward"]


def test_a_hook_on_all_modules_runs():
    called: list[str] = []
    register = nn.modules.module.register_module_forward_hook
    handle = register(lambda module, *_: called.append(type(module).__name__))
    try:
        linnet.SRU(4, 4)(torch.randn(3, 2, 4))
    finally:
        handle.remove()
    assert {"Projection", "SRUCell", "SRU"} <= set(called)


def pruned(unit: type[linnet.Recurrent]) -> Any:
    """Every matrix, and every parameter of the cell's own, with half of its numbers pruned."""
    rnn = liven(unit(4, 4))
    for module in rnn.first_cell.modules():
        vectors = module is rnn.first_cell
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and (vectors or parameter.dim() > 1):
                prune.l1_unstructured(module, name, amount=0.5)
    return rnn


def without_hooks(rnn: linnet.Recurrent) -> Any:
    """The same numbers as ordinary parameters."""
    other = type(rnn)(4, 4).double()
    pairs = zip(rnn.modules(), other.modules(), strict=True)
    with torch.no_grad():
        for theirs, ours in pairs:
            for name, parameter in ours._parameters.items():
                if f"{name}_orig" in theirs._parameters:
                    weight = theirs.get_parameter(f"{name}_orig") * theirs.get_buffer(f"{name}_mask")
                else:
                    weight = theirs._parameters[name]
                if parameter is not None:
                    parameter.copy_(weight)
    return other


@pytest.mark.parametrize("step", [False, True], ids=["sequence", "step"])
@over_units
def test_pruned_weights_are_read_anew_at_each_pass(unit, step):
    """Pruning computes the weight before each call: after an update, from the new one."""
    rnn, x = pruned(unit), randn(3, 2, 4)

    def output(rnn: linnet.Recurrent) -> Tensor:
        return rnn.first_cell(x[0])[0] if step else rnn(x)[0]

    same(output(rnn), output(without_hooks(rnn)))
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.mul_(1.5)
    same(output(rnn), output(without_hooks(rnn)))
    for _ in range(2):
        output(rnn).sum().backward()


@pytest.mark.parametrize("way", ["cell", "layer", "stream"])
@over_units
def test_parametrized_weights_are_computed_at_each_step(unit: type[linnet.Recurrent], way: str):
    """Native single steps keep addresses of weights, and must not keep those of computed ones."""
    rnn = liven(unit(4, 4)).eval()
    for module in list(rnn.first_cell.modules()):
        for name, weight in list(module._parameters.items()):
            if weight is not None and weight.dim() == 2:
                parametrizations.weight_norm(module, name)
    x = randn(2, 4)
    stream = linnet.stream(rnn, batch=2) if way == "stream" else None
    steps = {"cell": lambda: rnn.first_cell.run_step(x)[0], "layer": lambda: rnn(x[None])[0][0]}

    def step() -> Tensor:
        if stream is None:
            return steps[way]()
        stream.reset()
        return stream(x)

    with torch.no_grad():
        before = [step() for _ in range(3)][-1]
        for parameter in rnn.parameters():
            parameter.mul_(1.5)
        after = step()
        with linnet.backend("reference"):
            same(after, step())
    assert not torch.allclose(before, after)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("unit", [linnet.SRU, linnet.JANET], ids=lambda unit: unit.__name__)
def test_weight_norm_by_hooks_and_by_parametrization_agree(unit):
    ours, theirs, x = liven(unit(4, 4)), liven(unit(4, 4)), randn(3, 2, 4)
    name = ours.first_cell.input.weight_name
    nn.utils.weight_norm(ours.first_cell.input, name)
    parametrizations.weight_norm(theirs.first_cell.input, name)
    for _ in range(2):
        same(ours(x)[0], theirs(x)[0])
        with torch.no_grad():
            getattr(ours.first_cell.input, f"{name}_g").mul_(2)
            theirs.first_cell.input.parametrizations[name].original0.mul_(2)


def test_the_loop_that_a_hook_leads_to_is_told_once():
    class Hooked(linnet.LRN):
        """A unit of another name, since what is told once is told for all tests."""

    class HookedCell(linnet.LRNCell):
        pass

    Hooked.cell_class = HookedCell
    rnn = Hooked(4, 4)
    rnn.first_cell.input.register_forward_hook(lambda *_: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            rnn(torch.randn(3, 2, 4))
    (told,) = caught
    assert told.category is linnet.FallbackWarning
    assert "Hooked runs on the reference loop: input has a hook" in str(told.message)


def test_a_kernel_that_was_asked_for_is_not_given_up_for_a_hook():
    rnn = linnet.LRN(4, 4)
    rnn.first_cell.input.register_forward_hook(lambda *_: None)
    with linnet.backend("cpu"), pytest.raises(RuntimeError, match="input has a hook"):
        rnn(torch.randn(3, 2, 4))


@pytest.mark.parametrize("wrap", [prune.identity, parametrizations.weight_norm], ids=["pruned", "normed"])
def test_weights_that_cannot_be_dropped_are_an_error(wrap):
    rnn = linnet.LSTM(4, 4, weight_drop=0.5)
    wrap(rnn, "weight_hh_l0")
    with pytest.raises(RuntimeError, match=r"weight_drop .* of 'recurrent' has been replaced"):
        rnn(torch.randn(3, 2, 4))
    assert rnn.eval()(torch.randn(3, 2, 4))[0].isfinite().all()
