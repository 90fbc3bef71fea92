"""Checks of names: each is a text, and what a node reads is there before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph

# The names of values in a graph and in those around it.
Scopes = tuple[set[str], ...]


def check_known(who: str, names: Iterable[str], known: Scopes) -> None:
    wrong = [name for name in names if name and not any(name in scope for scope in known)]
    if wrong:
        raise UnreadableModel(f"{who} reads {wrong[0]!r}, which nothing before it has written")


def check_names(what: str, names: Sequence[str]) -> None:
    if "" in names or len(set(names)) < len(names):
        raise UnreadableModel(f"the {what} {list(names[:20])} have no name or the same one")


def check_order(graph: Graph) -> None:
    """Raise unless each node of a graph without subgraphs reads what is there already."""
    check_names("inputs", [port.name for port in graph.inputs])
    check_names("outputs", graph.outputs)
    known = {*graph.constants, *(port.name for port in graph.inputs)}
    for node in graph.nodes:
        check_known(node.title, node.inputs, (known,))
        known.update(node.outputs)
    check_known("the list of outputs", graph.outputs, (known,))
