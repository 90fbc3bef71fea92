"""Random cases for the soak: a unit with options, sizes, flags and a dtype, all drawn from one number."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from linnet.fuse.backend import backend
from linnet.fuse.cpu import jit, threads
from linnet.layers.recurrent import Recurrent
from linnet.units import UNITS

Results = dict[str, Tensor]
Change = Callable[[Tensor], Tensor]

STEPS = (1, 2, 3, 7, 16, 33, 63, 100, 257)
BATCHES = (1, 2, 3, 5, 8, 16, 33)
SIZES = (1, 2, 3, 5, 8, 16, 31, 32, 64, 100, 129)
MOST = 200_000  # numbers in a sequence of states: enough for every path, and fast
FLAGS = ("nothing", "lengths", "mask", "resets", "mask and resets", "packed")
LAYOUTS = ("plain", "batch first", "strided", "cut out")
GRADIENTS = ("all", "x", "parameters", "none")
YES_NO = (True, False)
# The options of each paper that change the equations. Options of the initialisation do not matter here.
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "sru": {
        "activation": ("identity", "tanh"),
        "recurrent_gates": YES_NO,
        "rescale": YES_NO,
        "highway": YES_NO,
        "highway_bias": (0.0, -1.0),
        "skip": ("auto", "matrix"),
        "rank": (0, 0, 2),
        "cell_dropout_on": ("state", "gate"),
        "full_bias": YES_NO,
    },
    "lrn": {"activation": ("tanh", "identity")},
    "olrn": {"activation": ("tanh", "identity")},
    "ran": {"activation": ("tanh", "identity"), "reduced": (False, False, True)},
    "nru": {
        "memory_size": (64, 16, 36),
        "num_heads": (4, 1),
        "head_activation": ("identity", "relu"),
        "head_reduction": ("mean", "sum"),
        "layer_norm": (False, False, True),
    },
    "scrn": {
        "context_size": (None, 3),
        "context_in_output": YES_NO,
        "hidden_reads": ("new", "previous"),
    },
    "atr": {"activation": ("tanh", "identity")},
    "qrnn": {"window": (1, 2), "pooling": ("f", "fo", "ifo"), "highway": YES_NO},
    "janet": {"beta": (0.0, 1.0)},
    "lstm": {
        "peepholes": YES_NO,
        "output_gate": YES_NO,
        "content": ("recurrent", "linear"),
        "activation": ("tanh", "identity"),
    },
    "gru": {"form": ("after", "before", "ran")},
    "rnn": {"nonlinearity": ("tanh", "relu", "sigmoid"), "layer_norm": (False, False, True)},
}
SHARED: dict[str, tuple[Any, ...]] = {
    "num_layers": (1, 1, 2),
    "bidirectional": (False, False, True),
    "bias": (True, True, False),
    "norm": (None, None, None, "layer", "rms"),
    "prenorm": (None, None, None, "layer", "rms"),
    "proj_size": (0, 0, 0, 3),
    "residual": (False, False, True),
}
# At most one at a time: the loop and the kernel may draw two kinds of noise in different orders.
NOISES: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"zoneout": 0.2}, {"input_dropout": 0.3}, {"cell_dropout": 0.3}),
    *({"weight_drop": 0.3}, {"dropout": 0.3}, {"dropout": 0.3, "variational": True}),
)
USUAL_WORTH = threads.WORTH
# The largest error of a kernel, relative to the largest number of a tensor.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2}
# The error of a kernel may also be this multiple of the loop's own error in the same dtype.
AS_THE_LOOP = 8.0
# If the loop's own error is larger than this, it has no correct digit, and there is nothing to compare with:
# for example, a layer norm over two nearly equal numbers in bfloat16.
NO_DIGIT = 1.0


NUDGES = 4


class Wrong(AssertionError):  # noqa: N818, it is what the result is
    """A result that is wrong."""


@dataclass(frozen=True)
class Case:
    number: int
    unit: str
    options: dict[str, Any]
    steps: int
    batch: int
    input_size: int
    size: int
    dtype: torch.dtype
    flags: str
    layout: str
    gradients: str
    training: bool
    given_state: bool
    threads: int
    eager: bool  # use threads for any work, however small
    built: list[Recurrent] = field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        sizes = f"T={self.steps} B={self.batch} D={self.input_size} H={self.size}"
        more = f"{self.dtype}, {self.flags}, {self.layout}, gradients of {self.gradients}"
        mode = "training" if self.training else "eval"
        state = "a state" if self.given_state else "no state"
        threads = f"{self.threads} {'eager ' if self.eager else ''}threads"
        return f"{self.unit}({options}) {sizes}, {more}, {mode}, {state}, {threads}"

    def alone(self) -> Case:
        return replace(self, threads=1, built=[])

    def build(self) -> Recurrent:
        """Return the module, which is built once: threads share it."""
        if not self.built:
            rnn = UNITS[self.unit](self.input_size, self.size, dtype=torch.float64, **self.options)
            self.built.append(enliven(rnn, self.number).to(self.dtype).train(self.training))
        return self.built[0]


# ------------------------------------------------------------------------------------------ drawing


class Reached(Exception):  # noqa: N818, it is no error
    """Raised when a kernel would be compiled."""


def stop(*arguments: Any) -> None:
    raise Reached


@cache
def fusing() -> tuple[str, ...]:
    """Return the units that have a kernel."""
    return tuple(name for name in UNITS if can_fuse(UNITS[name](16, 16), torch.zeros(1, 1, 16)))


def can_fuse(rnn: Recurrent, x: Tensor) -> bool:
    """Return whether a kernel would be compiled, without compiling it."""
    try:
        # Everything that is compiled goes through this function, the packing of matrices too.
        with patch.object(jit, "compiled", stop), backend("cpu"), torch.no_grad():
            rnn(x)
    except Reached:
        return True
    except RuntimeError as error:
        if "cannot run on it" not in str(error):
            raise
        return False
    return True


def draw(number: int) -> Case:
    """Return the case of this number; options that cannot be combined, or have no kernel, are drawn again."""
    chance = random.Random(number)
    while True:
        case = propose(chance, number)
        try:
            rnn = case.build()
        except (TypeError, ValueError):
            continue
        if can_fuse(rnn, torch.zeros(1, 1, case.input_size, dtype=case.dtype)):
            return replace(case, built=[])


def propose(chance: random.Random, number: int) -> Case:
    unit, pick = chance.choice(fusing()), chance.choice
    chosen = {**SHARED, **CHOICES.get(unit, {})}
    options = {name: pick(values) for name, values in chosen.items()}
    noise = {n: v for n, v in pick(NOISES).items() if n != "cell_dropout" or "cell_dropout_on" in options}
    steps, batch, size = pick(STEPS), pick(BATCHES), pick(SIZES)
    while steps * batch * size > MOST:
        steps, batch, size = pick(STEPS), pick(BATCHES), pick(SIZES)
    dtype = chance.choices([torch.float32, torch.float64, torch.bfloat16], [5, 4, 1])[0]
    input_size = pick((1, 4, 7, 16, size, size))
    unstable = is_unstable(unit, options, min(size, input_size))
    gradients = "none" if unstable and dtype != torch.float64 else pick(GRADIENTS)
    return Case(
        number=number,
        unit=unit,
        options={**options, **noise},
        steps=steps,
        batch=batch,
        input_size=input_size,
        size=size,
        dtype=dtype,
        flags=pick(FLAGS),
        layout=pick(LAYOUTS),
        gradients=gradients,
        training=pick(YES_NO),
        given_state=pick(YES_NO),
        threads=pick((1, 2, 3)),
        eager=pick(YES_NO),
    )


def is_unstable(unit: str, options: dict[str, Any], channels: int) -> bool:
    """Return whether gradients may consist of rounding only, so that there is nothing to compare.

    At a kink, rounding may change the side of a number and therefore its gradient. A norm over one channel
    has a gradient of 0; its backward pass computes rounding times 1 / sqrt(eps).
    """
    has_kinks = unit in ("nru", "eurnn", "goru") or options.get("nonlinearity") == "relu"
    has_norm = any(options.get(name) for name in ("norm", "prenorm", "layer_norm"))
    return has_kinks or (has_norm and channels == 1)


@torch.no_grad()
def enliven(rnn: Recurrent, seed: int) -> Recurrent:
    """Draw all parameters such that matrix products are of size one, whatever the size of the matrix."""
    source = torch.Generator().manual_seed(seed)
    for parameter in rnn.parameters():
        fan = parameter.shape[1] if parameter.dim() > 1 else 4
        parameter.copy_(0.8 * torch.randn(parameter.shape, generator=source, dtype=torch.double) / fan**0.5)
    return rnn


def randn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


# ------------------------------------------------------------------------------------------ running


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
    wants = case.gradients == "all"
    return rnn.first_cell.pack_state(
        {
            name: randn(case.number + i, rows, case.batch, size).to(dtype).requires_grad_(wants)
            for i, (name, size) in enumerate(sizes, start=1)
        }
    )


def call(case: Case, rnn: Recurrent, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    flags = flags_of(case, x)
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


# ---------------------------------------------------------------------------------------- comparing


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
