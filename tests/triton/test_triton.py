"""Triton kernels: their source, their place among the backends, and what the interpreter makes of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import triton_cases
from fused_runs import ON_GPU, Variant, finish, over, plans_of
from user_units import Leaky

import linnet
from linnet.analysis import kernel_code
from linnet.program.trace import OPERATIONS
from linnet.program.unit import CannotFuse
from linnet.run import available, choose, ways
from linnet.run.decision import Answers
from linnet.triton.loop import Recipe
from linnet.triton.source import backward_source, forward_source
from linnet.triton.step import ARITHMETIC, FUNCTIONS, Names

NO_TRITON = available.NO_TRITON
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason=NO_TRITON)
# Half a minute of work, on a machine that may be busy with other things.
PATIENCE = 1200
ROOT = Path(linnet.__file__).parents[1]


def start(*command: str, **environment: str) -> subprocess.Popen:
    """A Python process that finds what this one finds."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    known = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # The interpreter of Triton 3.6 does what NumPy 2 deprecates.
    strict = ("-W", "error", "-W", "ignore:Conversion of an array:DeprecationWarning")
    return subprocess.Popen([sys.executable, *strict, *command], env=known, **pipes)


@needs_triton
@over("group", triton_cases.GROUPS)
def test_kernels_compute_what_the_reference_does(group: str):
    """Output, final state and every gradient, by Triton's interpreter."""
    print(finish(start(triton_cases.__file__, group, TRITON_INTERPRET="1"), PATIENCE))


# ------------------------------------------------------------------------------------- the source


def recipes(variant: Variant) -> list[tuple[Recipe, Recipe]]:
    """Of each stage: forward, and backward with all gradients."""
    plans = [plan for plan, _ in plans_of(variant.build(4))]
    return [(Recipe.of(p), Recipe.of(p, (*p.traced.inputs, *p.traced.weights))) for p in plans]


def test_every_operation_of_a_trace_can_be_written():
    assert set(ARITHMETIC) | set(FUNCTIONS) == set(OPERATIONS)


@over("variant", [*ON_GPU, Variant(Leaky, {})])
def test_the_source_is_python_and_always_the_same(variant: Variant):
    for forward, backward in recipes(variant):
        for made, again in (
            (forward_source(forward), forward_source(forward)),
            (backward_source(backward), backward_source(backward)),
        ):
            compile(made.source, made.name, "exec")
            assert made == again
            assert ("_both(" in made.source) == (not forward.products)
            assert "atomic" not in made.source


def test_the_equations_stand_there_once():
    """Both directions and all flags share one function of numbers, written from the traced lines."""
    ((forward, _),) = recipes(Variant(linnet.LRN, {}))
    source = forward_source(forward).source
    assert source.count("tl.sigmoid") == 2
    body = source[source.index("def forward_step") : source.index("return")]
    lines = [line.split(" = ")[0].strip() for line in body.splitlines() if " = " in line]
    assert lines == [line.result for line in forward.traced.forward.lines]


def test_a_backward_kernel_reads_and_writes_only_what_is_asked_for():
    ((_, backward),) = recipes(Variant(linnet.SRU, {}))
    few = Recipe(backward.traced, backward.extras, backward.products, ("v_f",))
    keys = {tensor.key for tensor in backward_source(few).tensors}
    assert "d.joint" not in keys
    assert {"sum.v_f", "carry.c"} <= keys
    assert "sum.v_r" not in keys


def test_names_of_a_unit_cannot_clash_with_those_of_a_kernel():
    names = Names()
    wished = ("t", "stay.h", "stay_h", "first", "ß", "lambda", "t")
    made = [names(wish) for wish in wished]
    assert len(set(made)) == len(wished)
    assert all(re.fullmatch(r"\w+", name, re.ASCII) for name in made)
    assert not {"t", "first", "lambda"} & set(made)


# ------------------------------------------------------------------------------------- the backend


def test_triton_is_an_error_on_the_cpu_that_says_what_to_do():
    with (
        linnet.backend("triton"),
        pytest.raises(RuntimeError, match=r'backend\("triton"\) was requested') as error,
    ):
        linnet.SRU(4, 4)(torch.zeros(2, 1, 4))
    missing = find_spec("triton") is None
    assert ("[triton]" if missing else ".to('cuda')") in str(error.value)


def test_where_triton_is_missing_a_gpu_runs_the_reference_and_a_warning_says_so(monkeypatch):
    monkeypatch.setattr(available, "HAS_TRITON", False)
    choose.warn_once.cache_clear()
    direction: Any = linnet.SRU(4, 4).directions[0]
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(2, 1, 4, device="cuda")
    way, _, reason = choose.choose(direction, x, {}, (None, None, False))
    assert way is ways.REFERENCE
    assert reason is not None
    with pytest.warns(linnet.FallbackWarning, match=f"SRU runs on .* {re.escape(available.NO_TRITON)}"):
        choose.fall_back(direction.cell, reason)


def test_a_tensor_on_a_gpu_calls_for_triton():
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(2, 1, 4, device="cuda")
        assert choose.kernels_for(x) is ways.TRITON
        assert choose.kernels_for(x.to("cpu")) is ways.CPU
        wrong = x.to(torch.int32)
        with linnet.backend("cpu"):
            assert choose.kernels_for(x, choose.requested.get()) is ways.CPU
            assert ways.CPU.obstacle(x) == "there is no kernel for cuda"
    if find_spec("triton") is not None:
        assert ways.TRITON.obstacle(x) is None
        assert ways.TRITON.obstacle(wrong) == "there is no Triton kernel for torch.int32"


@pytest.mark.parametrize(
    ("rnn", "what"),
    [
        (linnet.GRU(3, 4, form="before"), "products within a step"),
        (linnet.LSTM(3, 4, norm="rms", norm_on="all"), "sums, norms or reorders channels"),
        (linnet.SCRN(3, 4, hidden_reads="previous"), "joins parts of different sizes"),
    ],
    ids=["a product", "a norm", "sizes"],
)
def test_a_step_without_a_kernel_says_what_is_missing(rnn: linnet.Recurrent, what: str):
    direction: Any = rnn.directions[0]
    with pytest.raises(CannotFuse, match=f"no triton kernel for .*{what}"):
        ways.TRITON.unit(direction, Answers(direction), ())
    with pytest.raises(RuntimeError, match=f"on a GPU: there is no Triton kernel for .*{what}"):
        kernel_code.recipes(rnn, backward=False)


def pair_of_directions(chosen: ways.Way, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both directions in one launch, as if the choice had been made; without a GPU no launch succeeds."""
    rnn = linnet.SRU(4, 4, bidirectional=True)
    monkeypatch.setattr(choose, "kernels_for", lambda x, name=None: ways.TRITON)
    choices = [choose.Choice(chosen, Answers(each)) for each in rnn.directions]  # type: ignore[arg-type]
    monkeypatch.setattr(choose, "choose", lambda *given: choices.pop(0))
    states = [{"c": torch.zeros(1, 4)}] * 2
    flags = [(None, None, False), (None, None, True)]
    return choose.run_pair(list(rnn.directions), torch.zeros(2, 1, 4), states, flags)  # type: ignore[arg-type]


def test_directions_run_one_after_the_other_if_a_weight_does_not_fit(monkeypatch):
    def cannot(runs):
        raise CannotFuse("a weight does not fit")

    monkeypatch.setattr(choose, "run_fused_pair", cannot)
    assert pair_of_directions(ways.TRITON, monkeypatch) is None


def test_directions_run_one_after_the_other_for_a_tracer(monkeypatch):
    """It has to find registered operations, and there is none for a pair."""
    monkeypatch.setattr(choose, "run_fused_pair", lambda runs: "one launch")
    assert pair_of_directions(ways.TRITON, monkeypatch) == "one launch"
    assert pair_of_directions(ways.TRITON.when_recorded, monkeypatch) is None


@over("name", ["NRU", "StatisticalRU"])
def test_units_without_a_kernel_say_why(name: str):
    rnn = getattr(linnet, name)(4, 4)
    with linnet.backend("triton"), pytest.raises(RuntimeError, match=f"{name} cannot run on it"):
        rnn(torch.zeros(2, 1, 4))


@needs_triton
def test_a_machine_with_triton_but_no_gpu_runs_as_without_it():
    """Neither importing nor running touches triton, and nothing warns."""
    code = (
        "import sys, torch, linnet\n"
        "y, _ = linnet.SRU(4, 4, bidirectional=True)(torch.zeros(2, 1, 4))\n"
        "y.sum().backward()\n"
        "assert 'triton' not in sys.modules\n"
    )
    assert finish(start("-c", code)) == ""


def test_without_triton_linnet_imports_and_runs():
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, linnet\n"
        "linnet.LRN(4, 4)(torch.zeros(2, 1, 4))[0].sum().backward()\n"
        "from linnet.analysis.kernel_code import gpu_kernel\n"
        "assert 'def forward(' in gpu_kernel('lrn')\n"
    )
    assert finish(start("-c", code)) == ""
