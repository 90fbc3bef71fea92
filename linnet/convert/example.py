"""A model on an example: what its layers get and return, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from linnet.base.torch_private import tree_leaves, tree_map_only
from linnet.bench.timing import race
from linnet.convert.report import Measured

ROUNDS, SECONDS = 9, 1.0  # of a race between the original and what has taken its place
MOST_CALLS = 1024  # of one layer that are recorded


@dataclass
class Call:
    """One call of a layer."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    returned: Any
    # Where the tensors of its arguments and of its result were, to see which of them were passed on.
    given_at: list[int]
    returned_at: list[int]

    def again(self, layer: nn.Module) -> Any:
        """The result of another layer. Hooks, which are not a part of it, are not called."""
        return layer.forward(*self.arguments, **self.named)


class Example:
    """The arguments of a call of a model: a tensor, a tuple of arguments, or a dict of named ones."""

    def __init__(self, example: Any):
        self.arguments: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}
        if isinstance(example, Mapping):
            self.named = dict(example)
        elif isinstance(example, (Tensor, PackedSequence)):
            self.arguments = (example,)
        elif isinstance(example, tuple):
            self.arguments = example
        else:
            raise TypeError(
                "example is a tensor, a tuple of the model's arguments or a dict of its named arguments; "
                f"got {type(example).__name__}"
            )

    def call(self, model: nn.Module) -> Any:
        return model(*self.arguments, **self.named)

    def run(self, model: nn.Module) -> Any:
        """Call the model, each time with the same random numbers."""
        torch.manual_seed(0)
        return self.call(model)


@contextmanager
def undisturbed(*models: nn.Module) -> Iterator[None]:
    """Within this context, models are in evaluation mode and without gradients; later, as they were."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    buffers = [(each, each.clone()) for model in models for each in model.buffers() if not each.is_meta]
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            for model in models:
                model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training
            for buffer, before in buffers:
                buffer.copy_(before)


def recorded(run: Callable[[], Any], layers: Sequence[nn.Module]) -> tuple[Any, dict[nn.Module, list[Call]]]:
    """Return what `run` returns, and the calls of each layer meanwhile."""
    calls: dict[nn.Module, list[Call]] = {layer: [] for layer in layers}

    def record(layer: nn.Module, arguments: tuple, named: dict[str, Any], returned: Any) -> None:
        if len(calls[layer]) < MOST_CALLS:
            kept = copied(arguments), copied(named), copied(returned)
            calls[layer].append(Call(*kept, places((arguments, named)), places(returned)))

    handles = [layer.register_forward_hook(record, with_kwargs=True) for layer in layers]
    try:
        return copied(run()), calls
    finally:
        for handle in handles:
            handle.remove()


def copied(values: Any) -> Any:
    """Copies of tensors, since a program may overwrite them later."""
    return tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), values)


def places(values: Any) -> list[int]:
    return [each.data_ptr() for each in tree_leaves(values) if isinstance(each, Tensor)]


def difference(one: Any, other: Any) -> float | None:
    """The largest difference of the tensors in two results; None if they cannot be compared."""
    pairs = list(zip(numbers_of(one), numbers_of(other), strict=False))
    same = len(numbers_of(one)) == len(numbers_of(other)) and all(a.shape == b.shape for a, b in pairs)
    if not pairs or not same:
        return None
    return max(float((a.double() - b.double()).abs().max()) if a.numel() else 0.0 for a, b in pairs)


def numbers_of(result: Any) -> list[Tensor]:
    return [each for each in tree_leaves(result) if isinstance(each, Tensor) and not each.is_complex()]


def timed(before: Callable[[], Any], after: Callable[[], Any], apart: float | None) -> Measured:
    """Time two calls in turn."""
    problems: list[str] = []
    times = race(
        {"before": lambda: before, "after": lambda: after},
        ROUNDS,
        torch.get_num_threads(),
        SECONDS,
        problems.append,
    )
    if problems:
        raise RuntimeError(f"the example cannot be timed: {'; '.join(problems)}")
    return Measured(apart, times["before"].p50, times["after"].p50)
