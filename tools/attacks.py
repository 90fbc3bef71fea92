"""Changes that users make to modules and that kernels must respect, applied to random cases of the soak.

    changed   a mask or resets change in place between forward and backward
    hooks     hooks, pruning, weight norm, parametrizations and replaced forwards of the inner modules
    watched   tracers, dispatch modes, fake tensors and a default device are active
    misfit    a parameter has another shape, dtype or device
    races     threads step one cell with different batches, and differentiate one graph
    stream    a stack steps in one native call, and its modules are changed between two steps

The default backend (a kernel, or its fallback) must give the result of the reference loop: the same numbers,
or an error from both.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from linnet.recurrent.cell import Cell
from linnet.recurrent.recurrent import Recurrent
from linnet.recurrent.stream import Stream, stream
from linnet.run.choose import FallbackWarning, backend
from tools.cases import Case
from tools.outcomes import (
    Change,
    Results,
    Wrong,
    changing,
    compare,
    flags_of,
    lay_out,
    randn,
    run,
    tensors,
    unchanged,
)

PATIENCE = 300  # seconds that a thread may take
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
Outcome = Results | str


def exactly(case: Case, **changes: Any) -> Case:
    """Return the case in float64, where results are compared with the loop directly, without a module."""
    return replace(case, dtype=torch.float64, built=[], **changes)


def outcome(job: Callable[[], Results]) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        try:
            return job()
        except ERRORS as error:
            return f"{type(error).__name__}: {error}"


def agree(
    case: Case, found: Outcome, expected: Outcome, what: str, again: Callable[[Change], Results]
) -> None:
    """Raise unless both are errors or the same numbers; see `compare` for `again`."""
    if isinstance(found, str) or isinstance(expected, str):
        if not (isinstance(found, str) and isinstance(expected, str)):
            raise Wrong(f"{what}: {described(found)}; the reference loop: {described(expected)}")
        return
    try:
        compare(case, found, expected, again)
    except Wrong as wrong:
        raise Wrong(f"{what}: {wrong}") from None


def described(result: Outcome) -> str:
    return result if isinstance(result, str) else "numbers and no error"


# -------------------------------------------------------------------------------------- changed


def check_changed(case: Case) -> None:
    chance = random.Random(case.number)
    flags = chance.choice(("mask", "resets", "mask and resets"))
    case = exactly(case, flags=flags, training=False)
    name = chance.choice(flags.split(" and "))
    by_loop = partial(changed_between, case, name, "reference")
    found, expected = outcome(partial(changed_between, case, name, None)), outcome(by_loop)
    # The backward pass of the loop may not need the changed tensor; that of a kernel may raise an error. A
    # kernel that has stored the real steps alone does not read the mask again, where the loop raises one.
    if isinstance(expected, str):
        by_loop = partial(changed_between, case, None, "reference")
        expected = outcome(by_loop)
    if not isinstance(found, str):
        agree(case, found, expected, f"{name} changed before backward", by_loop)


def changed_between(case: Case, name: str | None, by: str | None, change: Change = unchanged) -> Results:
    rnn = replace(case, built=[]).build()
    x = change(randn(case.number, case.steps, case.batch, case.input_size)).requires_grad_()
    flags = flags_of(case, x)
    with changing(rnn, change), backend(by):
        y, _ = rnn(x, **flags)
    if name is not None:
        flags[name].logical_not_()
    leaves = {"x": x, **dict(rnn.named_parameters())}
    found = torch.autograd.grad(
        y.sin().sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True))


# ---------------------------------------------------------------------------------------- hooks


def check_hooks(case: Case) -> None:
    chance = random.Random(case.number)
    case = exactly(case)
    rnn = case.build()
    module = chance.choice([m for cell in rnn.cells for m in cell.modules()])
    kind = chance.choice(list(MEDDLING))
    try:
        MEDDLING[kind](module, chance)
    except (IndexError, *ERRORS):
        return  # this cannot be done to this module
    agree_with_loop(case, rnn, f"{kind} on {type(module).__name__}")


def agree_with_loop(case: Case, rnn: Recurrent, what: str) -> None:
    by_loop = partial(run, case, rnn, "reference")
    agree(case, outcome(partial(run, case, rnn, None)), outcome(by_loop), what, by_loop)


def scaled(value: Any) -> Any:
    """Return the inputs or outputs of a module with the first tensors doubled."""
    if isinstance(value, Tensor):
        return 2 * value
    if isinstance(value, dict):
        return {name: 2 * tensor for name, tensor in value.items()}
    return (scaled(value[0]), *value[1:])


def replace_forward(module: nn.Module, chance: random.Random) -> None:
    forward = module.forward
    module.forward = lambda *arguments: scaled(forward(*arguments))


def some_parameter(module: nn.Module, chance: random.Random, least: int = 1) -> str:
    return chance.choice([n for n, p in module._parameters.items() if p is not None and p.dim() >= least])


def normed_by_hooks(module: nn.Module, chance: random.Random) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(module, some_parameter(module, chance, 2))


MEDDLING: dict[str, Callable[[nn.Module, random.Random], Any]] = {
    "a hook": lambda m, _: m.register_forward_hook(lambda module, inputs, output: scaled(output)),
    "a hook before": lambda m, _: m.register_forward_pre_hook(lambda module, inputs: scaled(inputs)),
    "another forward": replace_forward,
    "pruning": lambda m, chance: prune.l1_unstructured(m, some_parameter(m, chance), amount=0.5),
    "weight norm by hooks": normed_by_hooks,
    "weight norm": lambda m, chance: parametrizations.weight_norm(m, some_parameter(m, chance, 2)),
    "spectral norm": lambda m, chance: parametrizations.spectral_norm(m.eval(), some_parameter(m, chance, 2)),
}


# -------------------------------------------------------------------------------------- watched


class Watched(nn.Module):
    """A stack with its flags that returns a flat tuple, which every tracer supports."""

    def __init__(self, rnn: Recurrent, flags: dict[str, Tensor]):
        super().__init__()
        self.rnn, self.flags = rnn, flags

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y, state = self.rnn(x, **self.flags)
        return y, *tensors(state)


def check_watched(case: Case) -> None:
    chance = random.Random(case.number)
    flags = chance.choice(("nothing", "mask", "resets", "mask and resets"))
    case = exactly(case, training=False, flags=flags, layout="plain")
    x = randn(case.number, case.steps, case.batch, case.input_size)
    module, kind = Watched(case.build(), flags_of(case, x)), chance.choice(list(WATCHING))
    by_loop = partial(watched_by_loop, module, x)
    with torch.set_grad_enabled(chance.random() < 0.5), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = WATCHING[kind](module, x)
    agree(case, numbered(found), by_loop(), kind, by_loop)


def watched_by_loop(module: Watched, x: Tensor, change: Change = unchanged) -> Results:
    with changing(module, change), backend("reference"), torch.no_grad():
        return numbered(module(2 * change(x)))


def numbered(found: Sequence[Tensor]) -> Results:
    return {str(number): tensor.detach() for number, tensor in enumerate(found)}


def by_trace(module: Watched, x: Tensor) -> Any:
    return torch.jit.trace(module, x, check_trace=False)(2 * x)


def by_make_fx(module: Watched, x: Tensor) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(module)(x)(2 * x)


def by_mode(module: Watched, x: Tensor) -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        return module(2 * x)


def by_default_device(module: Watched, x: Tensor) -> Any:
    doubled = 2 * x
    with torch.device("meta"):
        return module(doubled)


def by_fake_tensors(module: Watched, x: Tensor) -> Any:
    """Compare shapes, then run again with real numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = module(2 * x)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = module(mode.from_tensor(x))
    if [t.shape for t in fake] != [t.shape for t in real]:
        raise Wrong(f"fake tensors have the shapes {[t.shape for t in fake]}")
    return module(2 * x)


WATCHING: dict[str, Callable[[Watched, Tensor], Any]] = {
    "torch.jit.trace": by_trace,
    "make_fx": by_make_fx,
    "a dispatch mode": by_mode,
    "a default device": by_default_device,
    "fake tensors": by_fake_tensors,
}


# --------------------------------------------------------------------------------------- misfit


def check_misfit(case: Case) -> None:
    chance = random.Random(case.number)
    case = exactly(case, training=False)
    rnn = case.build()
    outcome(partial(run, case, rnn, None))
    name = chance.choice([name for name, _ in rnn.named_parameters()])
    kind = chance.choice(list(MISFITS))
    owner, _, last = name.rpartition(".")
    data = MISFITS[kind](rnn.get_parameter(name).detach())
    wrong = nn.Parameter(data, requires_grad=data.is_floating_point())
    rnn.get_submodule(owner)._parameters[last] = wrong
    agree_with_loop(case, rnn, f"{name} with {kind}")


MISFITS: dict[str, Callable[[Tensor], Tensor]] = {
    "fewer rows": lambda data: data[: len(data) // 2].clone(),
    "more rows": lambda data: torch.cat([data, data]),
    "fewer columns": lambda data: data[..., : data.shape[-1] // 2].clone(),
    "more columns": lambda data: torch.cat([data, data], -1),
    "one number": lambda data: data.flatten()[:1].clone(),
    "nothing": lambda data: data[:0].clone(),
    "one dimension more": lambda data: data[None].clone(),
    "strides": lambda data: torch.stack([data, data], -1)[..., 0],
    "float32": lambda data: data.float(),
    "whole numbers": lambda data: data.long(),
    "meta": lambda data: data.to("meta"),
}


# --------------------------------------------------------------------------------------- stream


def check_stream(case: Case) -> None:
    """A few steps, a change as by `check_hooks` or `check_misfit`, and a few more."""
    case = one_way(exactly(case, training=False, steps=min(case.steps, 6)))
    chance, rnn = random.Random(case.number), case.build()
    x = randn(case.number, case.steps, case.batch, case.input_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        session = stream(rnn, case.batch)
    by_loop = partial(by_the_loop, rnn, x, None)
    agree(case, outcome(partial(by_stream, session, x)), outcome(by_loop), "a stream", by_loop)
    state, what = session.state, "nothing"
    try:
        what = change_something(rnn, chance)
    except (IndexError, *ERRORS):
        return  # this cannot be done to this module
    by_loop = partial(by_the_loop, rnn, x, state)
    found, expected = outcome(partial(by_stream, session, x)), outcome(by_loop)
    # A stream says at once that its weights have another dtype; the loop promotes some of them.
    if not isinstance(found, str) or isinstance(expected, str):
        agree(case, found, expected, f"a stream after {what}", by_loop)


def one_way(case: Case) -> Case:
    """Return the case with one direction, as streams have."""
    # A residual connection that fits two directions may fit no layer of one direction.
    residual = case.options.get("residual", False) and not case.options.get("bidirectional")
    # The output of both directions can be cut in two halves, that of one may have an odd size.
    heads = 1 if case.options.get("proj_size") else case.options.get("input_heads", 1)
    changed = {"bidirectional": False, "residual": residual, "input_heads": heads}
    return replace(case, options={**case.options, **changed}, built=[])


def change_something(rnn: Recurrent, chance: random.Random) -> str:
    module = chance.choice([m for cell in rnn.cells for m in cell.modules()])
    if chance.random() < 0.5:
        kind = chance.choice(list(MEDDLING))
        MEDDLING[kind](module, chance)
        return f"{kind} on {type(module).__name__}"
    name, kind = some_parameter(module, chance), chance.choice(list(MISFITS))
    data = MISFITS[kind](module._parameters[name].detach())
    module._parameters[name] = nn.Parameter(data, requires_grad=data.is_floating_point())
    return f"{name} with {kind}"


def by_stream(session: Stream, x: Tensor) -> Results:
    return named_results(torch.stack([session(row) for row in x]), session.state)


def by_the_loop(rnn: Recurrent, x: Tensor, state: Any, change: Change = unchanged) -> Results:
    with changing(rnn, change), torch.no_grad(), backend("reference"):
        return named_results(*rnn(change(x), state))


def named_results(y: Tensor, state: Any) -> Results:
    return {"output": y, **{f"state {i}": s for i, s in enumerate(tensors(state))}}


# ---------------------------------------------------------------------------------------- races


def check_races(case: Case) -> None:
    case = exactly(case, training=False)
    rnn = case.build()
    cell, chance = rnn.first_cell, random.Random(case.number)
    inputs = [randn(case.number, chance.randint(1, 70), case.input_size) for _ in range(3)]
    same_as_alone(case, [partial(stepped, cell, x) for x in inputs], times=20)
    x = lay_out(case, randn(case.number, case.steps, case.batch, case.input_size))
    x = x.transpose(0, 1) if case.layout == "batch first" else x
    same_as_alone(case, [Differentiated(rnn, x)] * 3)


def stepped(cell: Cell, x: Tensor, change: Change = unchanged) -> Results:
    with changing(cell, change), torch.no_grad():
        return named_results(*cell.run_step(change(x)))


class Differentiated:
    """Gradients of the parameters; each call differentiates the same graph, unless x changes."""

    def __init__(self, rnn: Recurrent, x: Tensor):
        self.rnn, self.x = rnn, x
        self.y, _ = rnn(x)

    def __call__(self, change: Change = unchanged) -> Results:
        with changing(self.rnn, change):
            y = self.y if change is unchanged else self.rnn(change(self.x))[0]
        named = dict(self.rnn.named_parameters())
        found = torch.autograd.grad(y.sum(), list(named.values()), retain_graph=True, allow_unused=True)
        return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def same_as_alone(case: Case, jobs: Sequence[Callable[..., Results]], times: int = 1) -> None:
    expected = [job() for job in jobs]
    for job, made, right in zip(jobs, together(jobs, times), expected, strict=True):
        for each in made:
            agree(case, each, right, "threads at once", job)


def together(jobs: Sequence[Callable[..., Results]], times: int = 1) -> list[list[Outcome]]:
    """What each job returns, `times` over; all of them start at the same moment, in threads."""
    found: list[list[Outcome]] = [[] for _ in jobs]
    gate = threading.Barrier(len(jobs))

    def work(job: Callable[[], Results], made: list[Outcome]) -> None:
        gate.wait(PATIENCE)
        made.extend(outcome(job) for _ in range(times))

    threads = [
        threading.Thread(target=work, args=pair, daemon=True) for pair in zip(jobs, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if any(len(made) < times for made in found):
        raise Wrong("a thread hangs")
    return found
