"""The table of operators, and what an operator knows of its node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

from torch import Tensor

from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Node


@dataclass(frozen=True)
class Call:
    """A node and the version of its operator: attributes of the type that is asked for."""

    node: Node
    version: int

    def get(self, name: str, kind: Any, usual: Any) -> Any:
        value = self.node.attributes.get(name, usual)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        raise self.wrong(f"has {name} = {str(value)[:40]}, which is not a value of that attribute")

    def integer(self, name: str, usual: Any = None) -> Any:
        return self.get(name, int, usual)

    def number(self, name: str, usual: float = 0.0) -> float:
        return self.get(name, float, usual)

    def text(self, name: str, usual: str = "") -> str:
        return self.get(name, str, usual)

    def integers(self, name: str, usual: Any = None, least: int | None = None) -> Any:
        values = self.get(name, list, usual)
        whole = all(isinstance(value, int) for value in values or ())
        if not whole or (least is not None and any(value < least for value in values or ())):
            raise self.wrong(f"has {name} = {str(values)[:40]}, which are not as expected there")
        return values

    def texts(self, name: str) -> list[str]:
        values = self.get(name, list, [])
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(f"has {name} = {str(values)[:40]}, which are not names")
        return values

    def wrong(self, reason: str) -> UnreadableModel:
        return UnreadableModel(f"{self.node.title} {reason}")

    def require(self, right: bool, reason: str) -> None:
        if not right:
            raise self.wrong(reason)

    def unless(self, name: str, usual: Any) -> None:
        """Raise if an attribute has another value than the one that Linnet knows."""
        value = self.node.attributes.get(name, usual)
        self.require(value == usual, f"has {name} = {str(value)[:40]}, and Linnet reads {usual!r} only")


@dataclass(frozen=True)
class Operator:
    """How to compute an operator: function(call, *inputs) -> a tensor or a tuple of tensors.

    host        positions of inputs that the function takes as lists of numbers, since shapes depend on them
    of_shapes   the result depends on the shapes of the inputs alone
    workspace   bytes that the function takes besides its result
    """

    function: Callable[..., Any]
    host: frozenset[int]
    of_shapes: bool
    workspace: Callable[..., int] | None

    def check(self, call: Call, layer: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Raise if inputs are missing or too many; by the signature, those with a default may be left out."""
        kinds = [p.kind for p in self.parameters]
        needed = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in self.parameters)
        needed -= 1 + len(layer)
        any_number = Parameter.VAR_POSITIONAL in kinds and not layer
        needed = len(inputs) if any_number else needed
        most = len(inputs) if any_number or layer else len(kinds) - 1
        missing = len(inputs) < needed or any(each is None for each in inputs[:needed])
        call.require(not missing, f"has not all of the {needed} inputs that it needs")
        call.require(len(inputs) <= most, f"has {len(inputs)} inputs, and at most {most} are possible")

    @cached_property
    def parameters(self) -> list[Parameter]:
        return list(signature(self.function).parameters.values())


OPERATORS: dict[str, Operator] = {}


def operator(
    *names: str,
    host: tuple[int, ...] = (),
    of_shapes: bool = False,
    workspace: Callable[..., int] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the table under the names of its operators."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        made = Operator(function, frozenset(host), of_shapes, workspace)
        OPERATORS.update(dict.fromkeys(names, made))
        return function

    return add


def axis_of(call: Call, axis: int, rank: int) -> int:
    """Return the axis counted from the first; negative axes count from the last."""
    call.require(-rank <= axis < max(rank, 1), f"has the axis {axis}, and its input has {rank} dimensions")
    return axis + rank if axis < 0 else axis


def scalar(values: list[Any] | Any) -> Any:
    """The number of an input that is a list of one, or of no dimension."""
    return values[0] if isinstance(values, list) and values else values


def present(*tensors: Tensor | None) -> list[Tensor]:
    return [each for each in tensors if each is not None]
