"""A graph of operators as ONNX has it, in values of Python and torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Node:
    """An operator with the names of what it reads and writes; "" is an input or output that is left out."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # The name of the layer of the module that computes a recurrent node; "" before it is made.
    layer: str = ""
    # Positions of inputs that are sizes, besides those that the operator always has.
    host: frozenset[int] = frozenset()

    @property
    def title(self) -> str:
        return f"node {self.name!r} ({self.operator})"

    @property
    def graphs(self) -> list[Graph]:
        """The subgraphs, each once: both branches of a condition that never changes are the same."""
        found = {id(each): each for each in self.attributes.values() if isinstance(each, Graph)}
        return list(found.values())

    def reads(self) -> set[str]:
        """The names of all values that the node may read, also in its subgraphs."""
        return {name for name in self.inputs if name}.union(*(graph.outside for graph in self.graphs))


@dataclass(frozen=True)
class Port:
    """An input of a graph; a dimension without a number is a name or None. No shape: any."""

    name: str
    dtype: torch.dtype | None
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which each reads what is there already.

    constants    tensors of the file
    parameters   of those that are parameters of the module now, the names that they have there
    titles       names that constants should have in the module, if these are not the same
    buffers      names of constants that are never trained
    """

    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Tensor]
    parameters: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    buffers: Set[str] = frozenset()

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this graph and of all its subgraphs."""
        for node in self.nodes:
            yield node
            for graph in node.graphs:
                yield from graph.all_nodes()

    @cached_property
    def outside(self) -> set[str]:
        """Names that this graph reads from the graphs around it."""
        known = {port.name for port in self.inputs} | set(self.constants) | set(self.parameters)
        outside: set[str] = set()
        for node in self.nodes:
            outside |= node.reads() - known
            known |= set(node.outputs)
        return outside | (set(self.outputs) - known)

    @cached_property
    def last_reads(self) -> list[list[str]]:
        """For each node the names that no later node reads, and that are not outputs."""
        later = set(self.outputs)
        released = []
        for node in reversed(self.nodes):
            names = node.reads() | {name for name in node.outputs if name}
            released.append(sorted(names - later))
            later |= names
        return released[::-1]
