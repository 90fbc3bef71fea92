"""What random cases seldom reach, for the soak: first calls, changed numbers of int8, and empty batches.

first     threads make the first calls of a fresh process at once: steps, streams or sequences
buffers   the numbers, scales and biases of a quantised module change between calls
empty     the batch is empty, before and after one that is not

python -m tools.edges 17    runs the first calls of case 17 in this process
"""

from __future__ import annotations

import copy
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import linnet
from linnet.layers.int8_modules import Quantised
from linnet.recurrent.recurrent import Recurrent
from linnet.run.choose import FallbackWarning
from tools.attacks import (
    PATIENCE,
    Outcome,
    agree_with_loop,
    described,
    exactly,
    named_results,
    one_way,
    outcome,
    together,
)
from tools.cases import Case, draw
from tools.outcomes import Results, Wrong, error, randn, run, tensors

ROOT = Path(__file__).parents[1]
THREADS = 8
# Two calls of the same kernels may add up products in another order.
CLOSE = 1e-5


def check_close(found: Outcome, expected: Outcome, what: str) -> None:
    """Raise unless both are the same numbers, or both are errors."""
    if isinstance(found, str) or isinstance(expected, str):
        if not (isinstance(found, str) and isinstance(expected, str)):
            raise Wrong(f"{what}: {described(found)} instead of {described(expected)}")
        return
    for name, right in expected.items():
        if found[name].shape != right.shape:
            raise Wrong(f"{what}: {name} has the shape {found[name].shape} instead of {right.shape}")
        off = error(found[name], right)
        if right.isfinite().all() and not off <= CLOSE:
            raise Wrong(f"{what}: {name} has an error of {off:.2g} of its largest number")


# ---------------------------------------------------------------------------------------- first


def check_first(case: Case) -> None:
    command = [sys.executable, "-m", "tools.edges", str(case.number)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    if done.returncode:
        raise Wrong(f"a fresh process ended with {done.returncode}: {done.stdout}{done.stderr}")


def first_calls(case: Case) -> None:
    """Eight threads, each with another batch; then one after another."""
    chance = random.Random(case.number)
    rnn = one_way(exactly(case, training=False)).build()
    if chance.random() < 0.25:
        rnn = linnet.quantize(rnn.float())
    kind = chance.choice(list(FIRST))
    dtype = rnn.first_cell.example.dtype
    inputs = [randn(case.number, 5, batch, case.input_size).to(dtype) for batch in range(1, THREADS + 1)]
    jobs = [partial(FIRST[kind], rnn, x) for x in inputs]
    for (found,), job in zip(together(jobs), jobs, strict=True):
        check_close(found, outcome(job), f"the first calls ({kind})")


def with_gradients(rnn: Recurrent, x: Tensor) -> Results:
    y, state = rnn(x.requires_grad_(not isinstance(rnn.first_cell.input, Quantised)))
    found = named_results(y.detach(), tuple(s.detach() for s in tensors(state)))
    return {**found, **({"dx": torch.autograd.grad(y.sum(), x)[0]} if y.requires_grad else {})}


@torch.no_grad()
def without_gradients(rnn: Recurrent, x: Tensor) -> Results:
    return named_results(*rnn(x))


@torch.no_grad()
def streamed(rnn: Recurrent, x: Tensor) -> Results:
    session = linnet.stream(rnn, x.shape[1])
    return named_results(torch.stack([session(row) for row in x]), session.state)


FIRST: dict[str, Callable[[Recurrent, Tensor], Results]] = {
    "a step": lambda rnn, x: without_gradients(rnn, x[:1]),
    "a step with gradients": lambda rnn, x: with_gradients(rnn, x[:1]),
    "a sequence": without_gradients,
    "a sequence with gradients": with_gradients,
    "a stream": streamed,
}


# -------------------------------------------------------------------------------------- buffers


@torch.no_grad()
def check_buffers(case: Case) -> None:
    """After each change, the module must compute what a copy does, which has packed nothing yet."""
    chance = random.Random(case.number)
    case = one_way(replace(case, dtype=torch.float32, training=False, built=[]))
    rnn = linnet.quantize(case.build(), activations=chance.random() < 0.7)
    modules = [module for module in rnn.modules() if isinstance(module, Quantised)]
    x = randn(case.number, min(case.steps, 5), case.batch, case.input_size).float()
    session = quiet_stream(rnn, case.batch)
    state = rnn.first_cell.pack_state(
        {
            name: randn(case.number, len(rnn.directions), case.batch, size).float()
            for name, size in rnn.first_cell.states.items()
        }
    )
    for _ in range(4):
        found = by_all_ways(rnn, session, x, state)
        expected = by_all_ways(copy.deepcopy(rnn), None, x, state)
        for way, made in found.items():
            check_close(made, expected[way], f"{way} of a quantised module")
        kind = chance.choice(list(CHANGES))
        CHANGES[kind](chance.choice(modules))


def quiet_stream(rnn: Recurrent, batch: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return linnet.stream(rnn, batch)


def by_all_ways(rnn: Recurrent, session: Any, x: Tensor, state: Any) -> dict[str, Outcome]:
    session = quiet_stream(rnn, x.shape[1]) if session is None else session
    session.state = state
    return {
        "a sequence": outcome(lambda: named_results(*rnn(x, state))),
        "a step": outcome(lambda: named_results(*rnn(x[:1], state))),
        "a stream": outcome(lambda: {"output": session(x[0])}),
    }


def assign_data(tensor: Tensor) -> None:
    tensor.data = tensor.data.flip(0)


def change_bias(module: Any) -> None:
    if module.bias is not None:
        module.bias.add_(0.5)


def replace_bias(module: Any) -> None:
    if module.bias is not None:
        module.bias = -module.bias


CHANGES: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda m: None,
    "numbers in place": lambda m: m.weight_int8.neg_(),
    "new numbers": lambda m: setattr(m, "weight_int8", m.weight_int8.flip(0)),
    "data of numbers": lambda m: assign_data(m.weight_int8),
    "scales in place": lambda m: m.weight_scale.mul_(1.5),
    "new scales": lambda m: setattr(
        m, "weight_scale", nn.Parameter(0.5 * m.weight_scale, requires_grad=False)
    ),
    "data of scales": lambda m: assign_data(m.weight_scale),
    "bias in place": change_bias,
    "new bias": replace_bias,
}


# ---------------------------------------------------------------------------------------- empty


def check_empty(case: Case) -> None:
    case = exactly(case, training=False)
    rnn, empty = case.build(), replace(case, batch=0)
    for steps in (1, case.steps):
        for gradients in ("none", case.gradients):
            each = replace(empty, steps=steps, gradients=gradients)
            found, expected = (outcome(partial(run, each, rnn, by)) for by in (None, "reference"))
            check_close(found, expected, f"an empty batch of {steps} steps")
    cell = linnet.quantize(rnn.first_cell.float()) if case.number % 2 else rnn.first_cell
    with torch.no_grad():
        y, _ = cell.run_step(torch.zeros(0, case.input_size, dtype=cell.example.dtype))
    if y.shape != (0, cell.output_size):
        raise Wrong(f"a step of an empty batch returns {tuple(y.shape)}")
    agree_with_loop(case, rnn.double(), "after an empty batch")


if __name__ == "__main__":
    first_calls(draw(int(sys.argv[1])))
