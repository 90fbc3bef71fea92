"""The types of units, found by building them: their options' values, and the state that a call returns.

A stack passes `**options` to its cell, and which state it has is decided when it is built: neither can be
read from its source. Here the arguments come from signatures, the values of an option from the calls of
`choose` while a unit is built, and the types of states from units that are built with each value.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations, product
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from linnet.base import options as checks
from linnet.recurrent.cell import Cell
from linnet.recurrent.projection import Projection
from linnet.recurrent.recurrent import Recurrent

SIZES = {"input_size": 8, "hidden_size": 8, "device": "meta"}
# The arguments of its projection that every cell passes on.
OF_PROJECTION = ("norm", "prenorm", "input_heads", "input_dropout")
PAIR = "tuple[Tensor, Tensor]"


class Types(NamedTuple):
    """The type of the state of a unit (tuple: the pair of as_lstm), and the subscript of its class."""

    state: type
    subscript: str


@dataclass(frozen=True)
class Overload:
    """The values of some options, and the subscript of a unit that has them."""

    values: Mapping[str, Sequence[object]]
    subscript: str


@dataclass
class Kind:
    """A stack or a cell, with the types of its arguments and results."""

    made: Any
    known: dict[str, Types | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.made.__name__

    @property
    def is_stack(self) -> bool:
        return issubclass(self.made, Recurrent)

    @cached_property
    def parameters(self) -> list[inspect.Parameter]:
        """The arguments of the constructor; those that a cell passes on to its projection are named."""
        *own, last = inspect.signature(self.made).parameters.values()
        if last.kind is not last.VAR_KEYWORD:
            return [*own, last]
        passed_on = inspect.signature(Projection).parameters
        return [*own, *(passed_on[name] for name in OF_PROJECTION)]

    @cached_property
    def choices(self) -> dict[str, list[object]]:
        """The values of the options that have few, by name."""
        with recorded_choices() as found:
            self.made(**SIZES)
        choices = {}
        for p in self.parameters:
            # None, where it is the default, stands for one of the others.
            values = [*found.get(p.name, ()), *([None] if p.default is None else [])]
            choices[p.name] = [False, True] if p.annotation == "bool" else list(dict.fromkeys(values))
        return {name: values for name, values in choices.items() if len(values) > 1}

    def types(self, options: Mapping[str, object]) -> Types | None:
        """Those of a unit with these options; None if there is no such unit."""
        key = repr(sorted(options.items()))
        if key not in self.known:
            try:
                self.known[key] = types_of(self.made(**SIZES, **options))
            except ValueError:
                self.known[key] = None
        return self.known[key]

    @cached_property
    def switches(self) -> list[str]:
        """The options that decide about the types, alone or after another."""
        first = self.deciding({})
        after = [self.deciding({name: value}) for name in first for value in self.choices[name]]
        return list(dict.fromkeys([*first, *(name for names in after for name in names)]))

    def deciding(self, fixed: Mapping[str, object]) -> list[str]:
        """The options on which, after these, the types depend."""
        if self.types(fixed) is None:
            return []
        others = {name: values for name, values in self.choices.items() if name not in fixed}
        kinds = {name: {self.types({**fixed, name: v}) for v in values} for name, values in others.items()}
        # A value that is an error alone may only need another option; as_lstm does not.
        kinds = {name: found if name == "as_lstm" else found - {None} for name, found in kinds.items()}
        return [name for name, found in kinds.items() if len(found) > 1]

    @cached_property
    def overloads(self) -> list[Overload]:
        """The shortest list that says which options make which types."""
        found = min((self.split({}, order) for order in permutations(self.switches)), key=len)
        if len(found) == 1:
            return found
        # For a value that a checker does not know, such as `as_lstm=flag`.
        unions = " | ".join(dict.fromkeys(overload.subscript for overload in found))
        return [*found, Overload({}, unions)]

    def split(self, fixed: Mapping[str, object], order: Sequence[str]) -> list[Overload]:
        """The overloads of units with these options, told apart by those in `order`."""
        combinations = product(*(self.choices[name] for name in order))
        kinds = {self.types({**fixed, **dict(zip(order, each, strict=True))}) for each in combinations}
        if len(kinds) == 1:
            return [Overload({}, only.subscript) for only in kinds if only is not None]
        name, *rest = order
        alike: dict[str, tuple[list[object], list[Overload]]] = {}
        for value in self.choices[name]:
            overloads = self.split({**fixed, name: value}, rest)
            alike.setdefault(repr(overloads), ([], overloads))[0].append(value)
        return [
            Overload({name: values, **overload.values}, overload.subscript)
            for values, overloads in alike.values()
            for overload in overloads
        ]

    @property
    def is_generic(self) -> bool:
        return len(self.overloads) > 1

    @cached_property
    def states(self) -> set[type]:
        """The types of its states, over all options."""
        self.overloads  # noqa: B018, builds units with each of them
        return {types.state for types in self.known.values() if types is not None}


@contextmanager
def recorded_choices() -> Iterator[dict[str, list[object]]]:
    """Yield the values that each option may have, by name, of what is built in the block."""
    found: dict[str, list[object]] = {}
    original = checks.choose

    def choose(option: str, value: object, allowed: Any) -> None:
        found.setdefault(option, list(allowed))
        original(option, value, found[option])

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("linnet.") and vars(module).get("choose") is original:
                stack.enter_context(patch.object(module, "choose", choose))
        yield found


def types_of(module: Recurrent | Cell) -> Types:
    cell = module if isinstance(module, Cell) else module.first_cell
    state = cell.State or Tensor
    if isinstance(module, Recurrent):
        return Types(tuple, PAIR) if module.as_lstm else Types(state, state.__name__)
    returns_both = cell.returned(torch.empty(0), None) is not None
    return Types(state, f"tuple[Tensor, {state.__name__}]" if returns_both else state.__name__)
