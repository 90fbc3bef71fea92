"""Random cases for the soak: a unit with options, sizes, flags and a dtype, all drawn from one number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from linnet.cpu import jit
from linnet.recurrent.recurrent import Recurrent
from linnet.run.choose import backend
from linnet.units import UNITS
from tools.variants import CHOICES, SHARED, YES_NO

STEPS = (1, 2, 3, 7, 16, 33, 63, 100, 257)
BATCHES = (1, 2, 3, 5, 8, 16, 33)
SIZES = (1, 2, 3, 5, 8, 16, 31, 32, 64, 100, 129)
MOST = 200_000  # numbers in a sequence of states: enough for every path, and fast
FLAGS = ("nothing", "lengths", "mask", "resets", "mask and resets", "resets to a state", "packed")
LAYOUTS = ("plain", "batch first", "strided", "cut out")
GRADIENTS = ("all", "x", "parameters", "none")
# The biases of modReLU, sign(z) ReLU(|z| + floor + b). It jumps at z = 0 unless floor + b <= 0, and rounding
# decides on which side of the jump a number is. No floor is higher than the one here.
JUMPS, FLOOR = {"eurnn": "b", "goru": "b_c"}, 0.01
# At most one at a time: the loop and the kernel may draw two kinds of noise in different orders.
NOISES: tuple[dict[str, Any], ...] = (
    *({}, {}, {}, {"zoneout": 0.2}, {"input_dropout": 0.3}, {"cell_dropout": 0.3}),
    *({"weight_drop": 0.3}, {"dropout": 0.3}, {"dropout": 0.3, "variational": True}),
)


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
    if unit in JUMPS and dtype != torch.float64:
        options["bias"] = True
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
    kinked = {options.get("nonlinearity"), options.get("activation")} & {"relu", "positive"}
    has_kinks = unit in ("nru", "eurnn", "goru", "sgu", "slstm") or bool(kinked)
    has_norm = any(options.get(name) for name in ("norm", "prenorm", "layer_norm", "group_norm"))
    return has_kinks or (has_norm and channels == 1)


@torch.no_grad()
def enliven(rnn: Recurrent, seed: int) -> Recurrent:
    """Draw all parameters such that matrix products are of size one, whatever the size of the matrix."""
    source = torch.Generator().manual_seed(seed)
    for parameter in rnn.parameters():
        fan = parameter.shape[1] if parameter.dim() > 1 else 4
        parameter.copy_(0.8 * torch.randn(parameter.shape, generator=source, dtype=torch.double) / fan**0.5)
    for cell in rnn.cells:
        bias = getattr(cell, JUMPS.get(cell.unit_name.lower(), ""), None)
        if bias is not None:
            bias.copy_(-bias.abs() - FLOOR)
    return rnn
