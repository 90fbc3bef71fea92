"""What several test files need: lively weights, states tensor by tensor, runs with all gradients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import linnet
from linnet.data.files import File, find
from linnet.runs.config import RunConfig
from linnet.tasks import TASKS
from tools.variants import possible

# Tests are many small products, in several processes: threads within each cost more than they bring.
torch.set_num_threads(1)


# Units for whose steps there is no native program: their weights are computed from others (rotations) or are
# one number for all channels, they compute more after their scan, or their input has a channel of time or a
# norm that such a program lacks.
WITHOUT_NATIVE_STEPS = ["eurnn", "goru", "ligru", "fastrnn", "fastgrnn"] + [
    name
    for name, unit in linnet.UNITS.items()
    if unit(4, 4).first_cell.reads_out or unit.cell_class.reads_time
]


def make_task(config: RunConfig) -> Any:
    return TASKS[config.task](config.data, config.model, config.loop.seed)


def data_folder(name: str, files: Sequence[Sequence[File]], folders: Sequence[str]) -> Path:
    """LINNET_DATA. A test whose files are not there is skipped: no test downloads anything."""
    place = os.environ.get("LINNET_DATA")
    if not place:
        pytest.skip("LINNET_DATA is not set")
    if any(find(choices, folders, [Path(place)]) is None for choices in files):
        pytest.skip(f"LINNET_DATA={place} has no {name}")
    return Path(place)


def tensors(state: Any) -> tuple[Tensor, ...]:
    """The tensors of a state, whether it is one of them or a named tuple."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def each(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """A state of the same kind with `function` applied to each of its tensors."""
    return function(state) if isinstance(state, Tensor) else type(state)(*map(function, state))


def liven(module: torch.nn.Module, seed: int = 0) -> Any:
    """Float64 weights and biases that are all at work: no gate starts at 0 and no product near it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.double))
    return module


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def random_state(rnn: linnet.Recurrent, batch: int, seed: int = 0) -> Any:
    """A state of the shape that `rnn` takes, other than zeros."""
    _, like = rnn(
        torch.zeros(1, batch, rnn.input_size, dtype=torch.double).transpose(0, int(rnn.batch_first))
    )
    generator = torch.Generator().manual_seed(seed)
    return possible(each(lambda s: torch.randn(s.shape, generator=generator, dtype=torch.double), like))


class Ran(NamedTuple):
    """A run: what came out, and the gradients of a loss that reads all of it."""

    y: Tensor
    state: tuple[Tensor, ...]
    grad_x: Tensor
    grad_state: tuple[Tensor, ...]
    grad_parameters: dict[str, Tensor]


def run(rnn: linnet.Recurrent, x: Tensor, state: Any, **how: Any) -> Ran:
    """The sine is a loss that steps of no output leave alone, though it has a gradient there."""
    x = x.detach().clone().requires_grad_()
    state = each(lambda s: s.detach().clone().requires_grad_(), state)
    y, final = rnn(x, state, **how)
    loss = y.sin().sum() + sum(s.sin().sum() for s in tensors(final))
    names = [name for name, _ in rnn.named_parameters()]
    leaves = [x, *tensors(state), *rnn.parameters()]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
    count = 1 + len(tensors(state))
    return Ran(
        y.detach(),
        tuple(s.detach() for s in tensors(final)),
        grads[0],
        tuple(grads[1:count]),
        dict(zip(names, grads[count:], strict=True)),
    )


def same(ours: Any, theirs: Any, atol: float = 1e-12, rtol: float = 1e-12) -> None:
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


def same_run(ours: Ran, theirs: Ran) -> None:
    """Gradients are sums in another order: what is lost is a share of their greatest term, not of each."""
    same(ours[:2], theirs[:2])
    pairs = zip(gradients(ours), gradients(theirs), strict=True)
    for mine, other in pairs:
        same(mine, other, atol=1e-10 * max(1.0, other.abs().max().item()), rtol=0)


def gradients(ran: Ran) -> tuple[Tensor, ...]:
    return (ran.grad_x, *ran.grad_state, *(g for g in ran.grad_parameters.values() if g.numel()))


def identical(ours: Any, theirs: Any) -> None:
    """To the last bit; NaN equals nothing."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def at_once(*jobs: Callable[[], Any], times: int = 1) -> list[list[Any]]:
    """What each job returns, `times` over; all of them start at the same moment."""
    gate = threading.Barrier(len(jobs))
    found: list[list[Any]] = [[] for _ in jobs]

    def work(job: Callable[[], Any], results: list[Any]) -> None:
        gate.wait()
        for _ in range(times):
            try:
                results.append(job())
            except Exception as error:  # compared with what was expected
                results.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(jobs, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found
