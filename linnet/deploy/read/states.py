"""Models of files as steps: which inputs are states, and which outputs are these states afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.suggest import no_such
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Port
from linnet.deploy.read.limits import Account, bytes_of
from linnet.deploy.read.module import FileModel

# Words that tell an input from an output, and say nothing of what is in it.
WORDS = {"in", "out", "input", "output", "state", "states", "hidden", "prev", "previous", "old", "new"}
WORDS |= {"past", "present", "before", "after", "initial", "final", "last", "next", "updated", "current"}


class StatefulStep(nn.Module):
    """A model of a file as forward(x, state) -> (y, state), the form that exports take.

    A single tensor stands for itself, several are a tuple in the order of the file. `states` maps the names
    of state inputs to those of the outputs that are the states afterwards.
    """

    def __init__(self, model: FileModel, states: Mapping[str, str]):
        super().__init__()
        self.model = model
        self.states = dict(states)
        self.x_names = [name for name in model.input_names if name not in self.states]
        self.y_names = [name for name in model.output_names if name not in self.states.values()]
        if not self.x_names or not self.y_names:
            kind = "output" if self.x_names else "input"
            raise ValueError(f"every {kind} of the model is a state; a step also needs another {kind}")

    def forward(self, x: Any, state: Any) -> tuple[Any, Any]:
        given = dict(zip(self.x_names, as_tuple(x), strict=True))
        given |= dict(zip(self.states, as_tuple(state), strict=True))
        outputs = as_tuple(self.model(*(given[name] for name in self.model.input_names)))
        named = dict(zip(self.model.output_names, outputs, strict=True))
        return together(named[n] for n in self.y_names), together(named[n] for n in self.states.values())

    def arguments(self, example: Mapping[str, Tensor]) -> tuple[Any, Any]:
        """Return x and the state of an example by names."""
        return together(example[n] for n in self.x_names), together(example[n] for n in self.states)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def together(values: Any) -> Any:
    made = tuple(values)
    return made[0] if len(made) == 1 else made


# ---------------------------------------------------------------------------------------- examples


def example_of(model: FileModel, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return an input of zeros for each name; a dimension that neither file nor `shapes` gives is 1."""
    for name in shapes:
        if name not in model.input_names:
            raise ValueError(no_such("input", name, model.input_names))
    account = Account(model.limit)
    return {port.name: zeros(port, shapes.get(port.name), account) for port in model.inputs}


def zeros(port: Port, given: Sequence[int] | None, account: Account) -> Tensor:
    if given is None and port.shape is None:
        raise UnreadableModel(f"the file does not say which shape {port.name!r} has; give it one")
    shape = given if given is not None else [n if isinstance(n, int) else 1 for n in port.shape or ()]
    dtype = port.dtype or torch.float32
    account.take(bytes_of(shape, dtype, f"the input {port.name!r}"), f"the input {port.name!r}")
    return torch.zeros(tuple(shape), dtype=dtype)


# ------------------------------------------------------------------------------------------ states


def find_states(
    model: FileModel, example: Mapping[str, Tensor], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return which outputs are the states of which inputs.

    given   these pairs; without it, an input and an output are a pair if their names differ in words such as
            "in" and "out" only (h and hn, state and stateN, h_in and h_out) and their shapes do not differ
    """
    with torch.no_grad():
        outputs = as_tuple(model(*(example[name] for name in model.input_names)))
    named = dict(zip(model.output_names, outputs, strict=True))
    if given is not None:
        return check_states(example, named, given)
    found: dict[str, str] = {}
    for name, tensor in example.items():
        same = [out for out, y in named.items() if stem(out) == stem(name) and alike(tensor, y)]
        if len(same) > 1:
            raise UnreadableModel(f"{name} could become {' or '.join(same)}; name the pair: {name}={same[0]}")
        if same and same[0] not in found.values():
            found[name] = same[0]
    return found


def check_states(
    example: Mapping[str, Tensor], named: Mapping[str, Tensor], given: Mapping[str, str]
) -> dict[str, str]:
    for name, out in given.items():
        if name not in example:
            raise ValueError(no_such("input", name, example))
        if out not in named:
            raise ValueError(no_such("output", out, named))
        if not alike(example[name], named[out]):
            shapes = tuple(example[name].shape), tuple(named[out].shape)
            raise ValueError(
                f"{name} has the shape {shapes[0]} and {out} {shapes[1]}; a state keeps its shape"
            )
    return dict(given)


def alike(before: Tensor, after: Tensor) -> bool:
    return before.shape == after.shape and before.dtype == after.dtype


def stem(name: str) -> str:
    """Return what a name is about: "h" of h_in, hn, h0, state_h and final_h."""
    words = re.findall(r"[a-z0-9]+", name.lower()) or [name]
    if words[-1] not in WORDS:
        words[-1] = re.sub(r"(?<=.)[n0]$", "", words[-1])
    return "_".join(word for word in words if word not in WORDS) or words[-1]
