"""Everything that the steps of a model compute, by its names in the code.

    recording = linnet.record(model, x)
    recording[0]["f"]                 # [T, B, H]: the forget gates of the first layer
    recording.output                  # what model(x) returns

A unit's `step` uses the letters of its paper, so these are the names of the values: the local variables of
`step` when it returns. This works for any unit, and so for your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.program.local_values import Call, all_variables, watching
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.direction import Direction
from linnet.recurrent.modes import evaluating
from linnet.run.choose import backend
from linnet.run.kept_states import collecting


@dataclass(frozen=True, eq=False)
class StepValues(Mapping[str, Tensor]):
    """The values of one layer in one direction: a mapping from names to tensors [T, B, ...].

    The name of a state is its value after the step; `before` has the states before each step. Arguments of
    `step` that it does not assign to, such as the projections of the input, are among the values too. At
    padded steps all values are 0.
    """

    name: str  # the name of the `Direction` in the model
    direction: Direction
    tensors: Named  # see above
    before: Named
    arguments: Named  # the arguments of `step`, those that it assigns to as well
    input: Tensor  # [T, B, input_size]
    output: Tensor  # [T, B, output_size]

    @property
    def cell(self) -> Cell:
        return self.direction.cell

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise KeyError(
                f"the step of {self.cell.unit_name} has no value {name!r}; it has {', '.join(self.tensors)}"
            )
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {list(value.shape)}" for name, value in self.items())
        return f"{self.name} ({self.cell.unit_name}): {shapes}"


@dataclass(frozen=True, eq=False)
class Recording(Sequence[StepValues]):
    """The values of each layer and direction, in the order in which they ran, and the output of the model."""

    layers: tuple[StepValues, ...]
    output: Any

    def __getitem__(self, number: Any) -> Any:
        return self.layers[number]

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.layers))


def record(model: nn.Module, *inputs: Any, return_states: bool = False, **named_inputs: Any) -> Recording:
    """Call `model(*inputs, **named_inputs)` and return everything that the steps of its layers compute.

    model           a layer such as linnet.SRU, or any module that contains such layers
    return_states   return the states of all steps and nothing else, as the kernels compute them: fast,
                    and without a graph

    The model runs in evaluation mode and, without return_states, on the reference loop, which calls `step` at
    each time step.
    """
    directions = {name: module for name, module in model.named_modules() if isinstance(module, Direction)}
    if not directions:
        raise TypeError(
            f"record takes a layer such as linnet.SRU or a model that contains one; {type(model).__name__} "
            "contains none. For a cell of your own, define class MyUnit(linnet.Recurrent, cell=MyCell)"
        )
    if return_states:
        return record_states(model, directions, inputs, named_inputs)
    functions = {each for direction in directions.values() for each in functions_of(direction.cell)}
    layers: list[StepValues] = []
    calls: list[Call] = []
    append = partial(append_values, layers, calls)
    with evaluating(model), backend("reference"), watching(functions, calls), hooked(directions, append):
        output = model(*inputs, **named_inputs)
    return Recording(tuple(layers), output)


@torch.no_grad()
def record_states(
    model: nn.Module, directions: Mapping[str, Direction], inputs: Any, named_inputs: Any
) -> Recording:
    layers: list[StepValues] = []
    sequences: list[Named] = []
    append = partial(append_states, layers, sequences)
    with evaluating(model), collecting(sequences), hooked(directions, append):
        output = model(*inputs, **named_inputs)
    return Recording(tuple(layers), output)


def functions_of(cell: Cell) -> list[Callable[..., Any]]:
    """Return the functions that make a time step, and those of base classes, which they may call."""
    names = ["run_stages", *(stage.step for stage in cell.stages())]
    return [vars(base)[name] for base in type(cell).__mro__ for name in names if name in vars(base)]


class FinishedRun(NamedTuple):
    """A call of a direction that has just returned."""

    name: str
    direction: Direction
    x: Tensor
    start: Named
    mask: Tensor | None
    output: Tensor


@contextmanager
def hooked(directions: Mapping[str, Direction], report: Callable[[FinishedRun], None]) -> Iterator[None]:
    """Within this context, each call of a direction is reported."""

    def hook(name: str, direction: Any, inputs: tuple[Any, ...], outputs: tuple[Tensor, Named]) -> None:
        x, start, mask = inputs[:3]
        report(FinishedRun(name, direction, x, start, mask, outputs[0]))

    handles = [direction.register_forward_hook(partial(hook, name)) for name, direction in directions.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def append_values(layers: list[StepValues], calls: list[Call], run: FinishedRun) -> None:
    """Append the values of a direction; `calls` are those of its time steps."""
    steps = calls[::-1] if run.direction.reverse else list(calls)
    calls.clear()
    values = [{**variables_of(step), **step.result[1]} for step in steps]
    tensors, before, arguments = (
        stacked(each, run.x, run.mask)
        for each in (values, [states_before(step) for step in steps], [arguments_of(step) for step in steps])
    )
    layers.append(StepValues(run.name, run.direction, tensors, before, arguments, run.x, run.output))


def append_states(layers: list[StepValues], sequences: list[Named], run: FinishedRun) -> None:
    """Append the states of a direction; `sequences` are those of its stages."""
    cell, found = run.direction.cell, {name: each for stage in sequences for name, each in stage.items()}
    sequences.clear()
    if set(found) != set(cell.states):
        raise RuntimeError(
            f"the kernel of {cell.unit_name} ({run.name}) does not keep its states; "
            'call record without return_states, or within linnet.backend("reference")'
        )
    order = {state: found[state] for state in cell.states}
    before = {state: shifted(found[state], run.start[state], run.direction.reverse) for state in order}
    tensors, before = (zero_at_padding(each, run.mask) for each in (order, before))
    layers.append(StepValues(run.name, run.direction, tensors, before, {}, run.x, run.output))


def shifted(sequence: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """Return the states before each step."""
    return torch.cat([sequence[1:], start[None]] if reverse else [start[None], sequence[:-1]])


def variables_of(call: Call) -> dict[str, Any]:
    """Return the variables of the steps inside a call of `run_stages`."""
    if call.function != "run_stages":
        return all_variables(call)
    return {name: value for inner in call.inner for name, value in variables_of(inner).items()}


def arguments_of(call: Call) -> dict[str, Any]:
    """Return the arguments of the outermost steps inside a call of `run_stages`."""
    if call.function != "run_stages":
        return call.arguments
    return {name: value for inner in call.inner for name, value in arguments_of(inner).items()}


def states_before(call: Call) -> Named:
    """Return the second argument of `run_stages`."""
    return list(call.arguments.values())[2]


def stacked(steps: Sequence[Mapping[str, Any]], x: Tensor, mask: Tensor | None) -> Named:
    """Return the tensors of all steps that have a row for each sequence of x, [T, B, ...] by name."""
    rows = x.shape[1:2]
    values = {
        name: torch.stack([step[name] for step in steps])
        for name, first in steps[0].items()
        if isinstance(first, Tensor) and first.shape[:1] == rows
    }
    return zero_at_padding(values, mask)


def zero_at_padding(values: Named, mask: Tensor | None) -> Named:
    if mask is None:
        return values
    return {
        name: value.masked_fill(~mask.reshape(*mask.shape, *[1] * (value.dim() - 2)), 0)
        for name, value in values.items()
    }
