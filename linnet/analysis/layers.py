"""The layers of a model: the variances of their inputs, states and outputs, and the gates of LRN over time.

`layer_variances` is Figure 6 of the SRU paper, `read_gates` and `Gates.weights` Figure 1 of the LRN paper.
`linnet plot --what variance decay` draws them for recorded runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.analysis.sums import decaying
from linnet.models.encoder import Encoder
from linnet.recurrent.modes import evaluating
from linnet.recurrent.recorded_values import record
from linnet.recurrent.recurrent import Recurrent
from linnet.tasks.base import Task
from linnet.units import LRN

MOST_BATCHES = 30
"""Batches of validation data over which variances are averaged."""


class Variances(NamedTuple):
    """Unbiased variances over all sequences and channels of the last step."""

    x: float  # the input of the layer
    c: float  # its state
    h: float  # its output

    @property
    def c_ratio(self) -> float:
        return self.c / self.x

    @property
    def h_ratio(self) -> float:
        return self.h / self.x


@torch.no_grad()
def layer_variances(layers: Sequence[Recurrent], x: Tensor) -> list[Variances]:
    """Return the variances in each layer, such as those of `model.stack`, for x [T, B, input_size].

    The state is c, or h for a unit without c. All sequences have the same length.
    """
    variances = []
    for layer in layers:
        y, state = layer(x)
        c = state if isinstance(state, Tensor) else getattr(state, "c", state[0])
        variances.append(Variances(*(float(each.var()) for each in (x[-1], c, y[-1]))))
        x = y
    return variances


def start_variances(task: Task, seed: int, inputs: Sequence[Tensor]) -> list[Variances]:
    """Return the variances in each layer of a new model, means over these inputs of its first layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = task.build()
    by_input = [layer_variances(model.eval().stack, x) for x in inputs]
    return [Variances(*map(fmean, zip(*layer, strict=True))) for layer in zip(*by_input, strict=True)]


def first_layer_inputs(task: Task, model: Encoder) -> Iterator[Tensor]:
    """Yield the input of the first layer for each validation batch, cut to its shortest sequence."""
    for batch in islice(task.batches("valid"), MOST_BATCHES):
        x, mask = reads_of_first_layer(model, partial(task.step, model, batch, None))
        if mask is not None:
            x = x[: int(mask.all(1).sum())]
        if len(x):
            yield x


@torch.no_grad()
def reads_of_first_layer(model: Encoder, use: Callable[[], Any]) -> tuple[Tensor, Tensor | None]:
    """Return the input [T, B, input_size] and the mask of the first layer when `use` calls the model."""
    calls: list[tuple[Tensor, Tensor | None]] = []

    def record(layer: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append((given[0], named.get("mask")))

    hook = model.stack[0].register_forward_pre_hook(record, with_kwargs=True)
    try:
        with evaluating(model):
            use()
    finally:
        hook.remove()
    return calls[0]


class Gates(NamedTuple):
    """The gates, values and states of a layer of LRN at each step, [T, B, H]."""

    i: Tensor  # input gate
    f: Tensor  # forget gate
    v: Tensor  # value
    h: Tensor  # state
    slope: Tensor  # the derivative of the activation, g'

    def weights(self) -> Tensor:
        """[T, T, B, H]: at [t, k] the weight of step k in the state of step t, i_k f_{k+1} ... f_t.

        With the identity as activation, h_t is the sum over k of this weight times v_k. Figure 1 shows its
        mean over channels.
        """
        return decaying(self.i, self.f)[0]

    def jacobian(self) -> Tensor:
        """[T, B, H]: d h_t / d h_{t-1}, which is diagonal (equation 10)."""
        through_gates = self.i * (1 - self.i) * self.v - self.f * (1 - self.f) * before(self.h)
        return (through_gates + self.f) * self.slope


def read_gates(rnn: LRN, x: Tensor) -> Gates:
    """Return the gates of an LRN of one layer and one direction for x [T, B, input_size]."""
    if not isinstance(rnn, LRN) or len(rnn.directions) != 1:
        raise ValueError(f"read_gates takes an LRN of one layer and one direction; got {rnn}")
    (values,) = record(rnn, x)
    i, f, v, h = (values[name] for name in ("i", "f", "v", "h"))
    inside = (i * v + f * before(h)).detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(values.cell.g(inside).sum(), inside)  # type: ignore[operator]
    return Gates(i, f, v, h, slope)


def before(h: Tensor) -> Tensor:
    """Return the state before each step; the first is zero."""
    return torch.cat([torch.zeros_like(h[:1]), h[:-1]])
