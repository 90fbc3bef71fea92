"""What is in a model of a file: a table of the layers with weights."""

from __future__ import annotations

from linnet.base.tables import text_table
from linnet.deploy.read.graph import Graph, Node
from linnet.deploy.read.module import FileModel
from linnet.runs.untrusted import harmless

HEAD = ["layer", "operator", "became", "weights"]
LONGEST = 60


def layer_table(model: FileModel) -> str:
    """One line for each node that has weights, and one for all others."""
    rows, others = [], 0
    for node, weights in nodes_with_weights(model.graph, {}):
        if node.layer:
            layer = model.get_submodule(node.layer)
            count = sum(each.numel() for each in layer.parameters())
            became = f"linnet.{type(layer).__name__}({layer.extra_repr()})"
            rows.append(row(node, became, count))
        elif weights:
            count = sum(numbers_of(model, path) for path in weights)
            rows.append(row(node, "torch", count))
        else:
            others += 1
    total = sum(each.numel() for each in model.state_dict().values())
    rows.append([f"{others} nodes without weights", "", "", ""])
    rows.append(["all", "", "", f"{total:,}"])
    return text_table([HEAD, *rows], left=(0, 1, 2))


def numbers_of(model: FileModel, path: str) -> int:
    owner, _, leaf = path.rpartition(".")
    return getattr(model.get_submodule(owner), leaf).numel()


def row(node: Node, became: str, count: int) -> list[str]:
    name = harmless(node.name)
    return [name[:LONGEST], harmless(node.operator)[:LONGEST], became, f"{count:,}"]


def nodes_with_weights(graph: Graph, around: dict[str, str]) -> list[tuple[Node, list[str]]]:
    """Every node of a graph and its subgraphs, with the names of the parameters that it reads itself."""
    known = {**around, **graph.parameters}
    found = []
    for node in graph.nodes:
        found.append((node, [known[name] for name in node.inputs if name in known]))
        for inner in node.graphs:
            found += nodes_with_weights(inner, known)
    return found
