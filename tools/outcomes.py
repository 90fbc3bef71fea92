"""The results of a random case, by a kernel or by the loop, and their comparison."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from linnet.cpu import threads
from linnet.recurrent.recurrent import Recurrent
from linnet.run.choose import backend
from tools.cases import Case
from tools.variants import possible

Results = dict[str, Tensor]
Change = Callable[[Tensor], Tensor]

USUAL_WORTH = threads.WORTH
# The largest error of a kernel, relative to the largest number of a tensor.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2}
# The error of a kernel may also be this multiple of the loop's own error in the same dtype.
AS_THE_LOOP = 8.0
# If the loop's own error is larger than this, it has no correct digit, and there is nothing to compare with:
# for example, a layer norm over two nearly equal numbers in bfloat16.
NO_DIGIT = 1.0
# How many changes of the last bits are tried.
NUDGES = 4


class Wrong(AssertionError):  # noqa: N818, it is what the result is
    """A result that is wrong."""


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def unchanged(x: Tensor) -> Tensor:
    return x


def nudged(x: Tensor, seed: int = 0) -> Tensor:
    """Change the last bit of each number up or down, independently: a norm would undo a common change."""
    ways = randn(seed + x.numel(), *x.shape).sign()
    return (x * (1 + torch.finfo(x.dtype).eps * ways)).to(x.dtype)


@contextmanager
def changing(module: nn.Module, change: Change) -> Iterator[None]:
    """Change the parameters too: a norm over one channel hides a change of x."""
    kept = [(p, p.data) for p in module.parameters() if p.is_floating_point() and not p.is_meta]
    for parameter, data in kept if change is not unchanged else ():
        parameter.data = change(data)
    try:
        yield
    finally:
        for parameter, data in kept if change is not unchanged else ():
            parameter.data = data


def results(case: Case, by: str | None, fresh: bool = True) -> Results:
    """Return the output, the final states and the gradients, by name.

    by      the backend, or None for the default
    fresh   build a new module
    """
    case = replace(case, built=[]) if fresh else case
    rnn = case.build()
    return run(case, rnn, by)


def run(case: Case, rnn: Recurrent, by: str | None, change: Change = unchanged) -> Results:
    dtype = rnn.first_cell.example.dtype
    with_gradient = case.gradients in ("all", "x")
    x = randn(case.number, case.steps, case.batch, case.input_size).to(dtype)
    leaf = lay_out(case, change(x)).requires_grad_(with_gradient)
    batch_first = case.layout == "batch first"
    torch.manual_seed(case.number)
    state = given_state(case, rnn, dtype)
    threads.WORTH = 1 if case.eager else USUAL_WORTH
    with changing(rnn, change), backend(by), torch.set_grad_enabled(case.gradients != "none"):
        x = leaf.transpose(0, 1) if batch_first else leaf
        y, final = call(case, rnn, x, state)
    found = {"output": y, **{f"state {i}": s for i, s in enumerate(tensors(final))}}
    return {**{name: t.detach() for name, t in found.items()}, **gradients(case, rnn, leaf, state, found)}


def lay_out(case: Case, x: Tensor) -> Tensor:
    """Return the same numbers [T, B, D] with another layout in memory."""
    if case.layout == "batch first":
        return x.transpose(0, 1).contiguous()
    if case.layout == "strided":
        return torch.stack([x, x], -1)[..., 0]
    if case.layout == "cut out":
        return torch.cat([x, x, x], -1)[..., case.input_size : 2 * case.input_size]
    return x


def given_state(case: Case, rnn: Recurrent, dtype: torch.dtype) -> Any:
    if not case.given_state:
        return None
    sizes = rnn.first_cell.states.items()
    rows = len(rnn.directions)
    drawn = {
        name: randn(case.number + i, rows, case.batch, size).to(dtype)
        for i, (name, size) in enumerate(sizes, start=1)
    }
    state = possible(rnn.first_cell.pack_state(drawn))
    for tensor in tensors(state):
        tensor.requires_grad_(case.gradients == "all")
    return state


def call(case: Case, rnn: Recurrent, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    flags: dict[str, Any] = flags_of(case, x)
    if case.flags == "resets to a state":
        start = given_state(replace(case, given_state=True, gradients="none"), rnn, x.dtype)
        flags["reset_state"] = start
    if case.flags != "packed":
        return rnn(x, state, **flags)
    packed, final = rnn(pack_padded_sequence(x, flags["lengths"], enforce_sorted=False), state)
    return packed.data, final


def flags_of(case: Case, x: Tensor) -> dict[str, Tensor]:
    """Return the lengths, mask or resets of a case, for x [T, B, D]."""
    chance = torch.Generator().manual_seed(case.number)
    if case.flags in ("lengths", "packed"):
        return {"lengths": torch.randint(1, case.steps + 1, (case.batch,), generator=chance)}
    flags = {
        "mask": torch.rand(x.shape[:2], generator=chance) < 0.7,
        "resets": torch.rand(x.shape[:2], generator=chance) < 0.2,
    }
    return {name: flag for name, flag in flags.items() if name in case.flags}


def tensors(state: Any) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def gradients(case: Case, rnn: Recurrent, x: Tensor, state: Any, found: Results) -> Results:
    """Return the gradients of a loss that weights each number at random, independently of rounding."""
    leaves = {
        "x": x,
        **{f"given state {i}": s for i, s in enumerate(tensors(state if state is not None else ()))},
    }
    if case.gradients in ("all", "parameters"):
        leaves |= dict(rnn.named_parameters())
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if case.gradients == "none":
        return {}
    made = [t for t in found.values() if t.requires_grad]
    above = [randn(case.number + i, *t.shape).to(t.dtype) for i, t in enumerate(made, start=9)]
    taken = torch.autograd.grad(made, list(leaves.values()), above, allow_unused=True, materialize_grads=True)
    return {f"gradient of {name}": gradient for name, gradient in zip(leaves, taken, strict=True)}


def compare(
    case: Case, found: Results, expected: Results, again: Callable[[Change], Results] | None = None
) -> None:
    """Compare with the loop in float64; in other dtypes, allow a multiple of the loop's own error.

    again   computes `expected` from a changed x and changed parameters; by default, with the loop
    """
    exact = expected if case.dtype == torch.float64 else results_exactly(case)
    if found.keys() != expected.keys():
        raise Wrong(f"{sorted(found)} instead of {sorted(expected)}")
    for name, right in exact.items():
        if not right.isfinite().all():
            continue  # it overflows in float64: nothing to compare with
        own = error(expected[name], right)
        if own > NO_DIGIT:
            continue
        allowed = max(TOLERANCES[case.dtype], AS_THE_LOOP * own)
        off = error(found[name], right)
        if not off <= allowed and not off <= AS_THE_LOOP * swing(expected, again or by_loop(case))[name]:
            raise Wrong(f"{name} has an error of {off:.2g} of its largest number; allowed is {allowed:.2g}")


def swing(expected: Results, again: Callable[[Change], Results]) -> dict[str, float]:
    """Return how much results change with the last bits of x and the parameters; long sequences amplify them.

    How much depends on the bits, so this is the largest of a few changes.
    """
    moved = [again(partial(nudged, seed=seed)) for seed in range(NUDGES)]
    return {name: max(error(each[name], right) for each in moved) for name, right in expected.items()}


def by_loop(case: Case) -> Callable[[Change], Results]:
    return partial(run, case, replace(case, built=[]).build(), "reference")


def results_exactly(case: Case) -> Results:
    """Return the results of the loop in float64, with weights rounded to the dtype of the case."""
    rnn = copy.deepcopy(replace(case, built=[]).build()).double()
    return run(case, rnn, "reference")


def error(found: Tensor, right: Tensor) -> float:
    if not right.numel():
        return 0.0
    off = (found.to(right.dtype) - right).abs().max().item()
    return off / max(0.1, right.abs().max().item())
