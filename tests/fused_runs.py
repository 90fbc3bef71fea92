"""What the tests of kernels share: the units that fuse, and runs by either backend with all gradients."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from helpers import each, tensors
from torch import Tensor

import linnet
from linnet.program.plan import Fusible
from linnet.program.planning import one_step
from tools import variants


class Variant(variants.Variant):
    """A unit with options, built with weights that are all at work."""

    def build(self, size: int, dtype: torch.dtype = torch.double, input_size: int = 7, **more: Any) -> Any:
        size = self.size(size)
        width = size if self.square else input_size
        return enliven(self.unit(width, size, dtype=dtype, **{**self.options, **more}))


def plans_of(rnn: linnet.Recurrent, training: bool = False) -> Any:
    """The plans for kernels of the first direction with their steps, or why there are none."""
    direction: Any = rnn.directions[0].train(training)
    example = torch.empty(1, 1, rnn.input_size, device="meta")
    plans = direction.plans_for((*direction.cell.extra_inputs(example), *direction.state_noise(example)))
    if isinstance(plans, str):
        return plans
    steps = [partial(one_step, direction.cell, stage, direction.after) for stage in direction.cell.stages()]
    return [Fusible(plan, step) for plan, step in zip(plans, steps, strict=False)]


def fuses(variant: variants.Variant) -> bool:
    return not isinstance(plans_of(variant.unit(4, 4, **variant.options)), str)


def is_of_any_size(variant: variants.Variant) -> bool:
    return not any(fusible.plan.traced.sizes for fusible in plans_of(variant.unit(4, 4, **variant.options)))


def has_inner_products(variant: variants.Variant) -> bool:
    return any(fusible.plan.traced.inner for fusible in plans_of(variant.unit(4, 4, **variant.options)))


FUSED = [Variant(*each) for each in variants.PLAIN if fuses(each)]
# One unit for each form of kernel, for tests of what does not depend on the equations.
FORMS = [each for each in FUSED if each.unit not in variants.ALIKE]
# Without those whose modReLU, or the gradient of whose ReLU or maximum, jumps: in bfloat16, a number near 0
# may have either sign. And without LRU, whose exponentials of exponentials torch rounds to 8 bits.
JUMPING = (linnet.EURNN, linnet.GORU, linnet.LiGRU, linnet.NRU, linnet.StatisticalRU, linnet.SLSTM)


def jumps(variant: variants.Variant) -> bool:
    """So does the gradient of a piecewise linear function, at its ends."""
    piecewise = any(str(value).startswith(("quant", "relu")) for value in variant.options.values())
    return variant.unit in JUMPING or piecewise


CONTINUOUS = [variant for variant in FORMS if not jumps(variant) and variant.unit is not linnet.LRU]
# Those whose channels depend on each other by matrix products only: kernels of any size. Those without a
# product within the step have kernels on a GPU, too.
OF_ANY_SIZE = [variant for variant in FUSED if is_of_any_size(variant)]
ON_GPU = [variant for variant in OF_ANY_SIZE if not has_inner_products(variant)]
ALL_STEPS = [Variant(*each) for each in variants.STEPS if fuses(each)]
STEPS_OF_ANY_SIZE = [variant for variant in ALL_STEPS if is_of_any_size(variant)]
OTHER_STEPS = [variant for variant in STEPS_OF_ANY_SIZE if not has_inner_products(variant)]
# For which there are kernels on the CPU only; and those that are not elementwise.
WITH_INNER_PRODUCTS = [v for v in (*FUSED, *ALL_STEPS) if is_of_any_size(v) and has_inner_products(v)]
NOT_ELEMENTWISE = [variant for variant in ALL_STEPS if variant not in STEPS_OF_ANY_SIZE]


def variant(unit: type[linnet.Recurrent], square: bool = False, **options: Any) -> Variant:
    return Variant(*variants.variant(unit, square, **options))


@torch.no_grad()
def enliven(module: Any, seed: int = 0) -> Any:
    """All parameters at work, with products of the size of one however wide the matrix."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        fan = parameter.shape[1] if parameter.dim() > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.double) / fan**0.5)
    return module


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.double) -> Tensor:
    """Random numbers that are the same in each dtype, to its rounding."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double).to(dtype)


def draw_state(rnn: linnet.Recurrent, batch: int, seed: int = 1) -> Any:
    """An initial state other than zeros."""
    cell = rnn.first_cell
    rows, dtype = len(rnn.directions), cell.example.dtype
    states = {
        name: draw(rows, batch, size, seed=seed + i, dtype=dtype)
        for i, (name, size) in enumerate(cell.states.items())
    }
    return variants.possible(cell.pack_state(states))


FLAGS = ("nothing", "lengths", "mask", "resets", "mask and resets")


def flags(kind: str, steps: int, batch: int, batch_first: bool = False) -> dict[str, Tensor]:
    """Which steps are real and where sequences start anew."""
    generator = torch.Generator().manual_seed(steps + batch)
    if kind == "lengths":
        return {"lengths": torch.randint(1, steps + 1, (batch,), generator=generator)}
    shape = (batch, steps) if batch_first else (steps, batch)
    drawn = {
        "mask": torch.rand(shape, generator=generator) < 0.7,
        "resets": torch.rand(shape, generator=generator) < 0.2,
    }
    return {name: flag for name, flag in drawn.items() if name in kind}


Results = dict[str, Tensor]


def run(backend: str, rnn: Any, x: Tensor, state: Any = None, **how: Any) -> Results:
    """The output, the final states and the gradient of all that takes one, by name.

    The loss weighs each number of the output and the final state by a random one, so that gradients
    do not depend on how the output was rounded.
    """
    x = x.detach().requires_grad_(x.requires_grad)
    state = each(
        lambda s: s.detach().requires_grad_(), draw_state(rnn, batch_of(rnn, x)) if state is None else state
    )
    starts = each(lambda s: s.detach().requires_grad_(), how.pop("reset_state", ()))
    with linnet.backend(backend):
        y, final = rnn(x, state, **how, **({"reset_state": starts} if tensors(starts) else {}))
    results = {"output": y, **{f"final state {i}": s for i, s in enumerate(tensors(final))}}
    leaves = {
        "x": x,
        **{f"state {i}": s for i, s in enumerate(tensors(state))},
        **{f"reset state {i}": s for i, s in enumerate(tensors(starts))},
        **dict(rnn.named_parameters()),
    }
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    weights = [draw(*r.shape, seed=9 + i, dtype=r.dtype) for i, r in enumerate(results.values())]
    # A state that is a constant has no gradient.
    varying = [(r, weight) for r, weight in zip(results.values(), weights, strict=True) if r.requires_grad]
    outputs, above = zip(*varying, strict=True)
    gradients = torch.autograd.grad(
        outputs, list(leaves.values()), above, allow_unused=True, materialize_grads=True
    )
    named = {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}
    return {name: tensor.detach() for name, tensor in (results | named).items()}


def batch_of(rnn: linnet.Recurrent, x: Tensor) -> int:
    return x.shape[0 if rnn.batch_first else 1]


def agree(ours: Results, theirs: Results, tolerance: float) -> None:
    """To `tolerance` of the largest number in each tensor; `theirs` may be in a wider dtype."""
    assert ours.keys() == theirs.keys()
    largest_of_all = max(map(largest_in, theirs.values()))
    for name, right in theirs.items():
        # A parameter of one number has a gradient whose terms, one for each channel and step, cancel.
        largest = largest_of_all if right.shape == (1,) else largest_in(right)
        atol = tolerance * max(0.1, largest)
        torch.testing.assert_close(
            ours[name].to(right.dtype),
            right,
            rtol=0,
            atol=atol,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def largest_in(tensor: Tensor) -> float:
    return tensor.nan_to_num(0).abs().max().item() if tensor.numel() else 0.0


def identical(ours: Results, theirs: Results) -> None:
    """To the last bit."""
    assert ours.keys() == theirs.keys()
    for name, right in theirs.items():
        assert torch.equal(ours[name], right), name


# By how much results may differ, of the largest number of a tensor, and the dtype of the reference.
# float32 loses digits where states are sums over many steps; bfloat16 has eight bits.
TOLERANCES = {
    torch.float64: (1e-12, torch.float64),
    torch.float32: (1e-5, torch.float64),
    torch.bfloat16: (3e-2, torch.float32),
}


class Size(NamedTuple):
    """Steps, sequences, channels, and which of the flags are given."""

    steps: int
    batch: int
    hidden: int
    kind: str

    def __str__(self) -> str:
        return f"T={self.steps} B={self.batch} H={self.hidden} {self.kind}"


def over(name: str, values: Any) -> Any:
    return pytest.mark.parametrize(name, values, ids=str)


def check(variant: Variant, size: Size, dtype: torch.dtype = torch.double, **more: Any) -> None:
    """By the kernel in `dtype`, against the reference in a wider one."""
    # The reduced RAN reads x as it is, and one of two directions would read x of another width.
    both = {} if "reduced" in variant.options else {"bidirectional": True}
    rnn = variant.build(size.hidden, dtype, **both, **more)
    x = draw(size.steps, size.batch, rnn.input_size, seed=5, dtype=dtype).requires_grad_()
    compare(rnn, x, **flags(size.kind, *size[:2]))


def compare(rnn: Any, x: Tensor, state: Any = None, **how: Any) -> Results:
    tolerance, wide = TOLERANCES[x.dtype]
    state = draw_state(rnn, x.shape[0 if rnn.batch_first else 1]) if state is None else state
    ours = run("cpu", rnn, x, state, **how)
    wider = copy.deepcopy(rnn).to(wide)
    if "reset_state" in how:
        how["reset_state"] = each(lambda s: s.to(wide), how["reset_state"])
    theirs = run("reference", wider, x.to(wide), each(lambda s: s.to(wide), state), **how)
    agree(ours, theirs, tolerance)
    return ours


def works_or_says(call: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """An error of torch's own speaks of the inside of Linnet; ours says how to go on."""
    found, problem = expected, 'backend("reference")'
    try:
        found = call()
    except RuntimeError as error:
        problem = str(error)
    assert 'backend("reference")' in problem
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def start(*command: str) -> subprocess.Popen:
    """A Python process with this Linnet: start("-c", code) or start(file, argument)."""
    root = str(Path(linnet.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-W", "error", *command], env=environment, **pipes)


def finish(process: subprocess.Popen, seconds: int = 300) -> str:
    """What it printed; it must end, and end well."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == 0, f"{out[-500:]}{err[-1000:]}"
    return out
