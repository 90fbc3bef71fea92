"""A picture of a unit's cell as a graph of operations, drawn from the unit's own code.

    python docs/_extensions/cell_picture.py sru > sru.svg

The cell runs once, and torch records its operations. Operations that only move numbers (transposes, splits,
views) become part of the lines between the others.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import linnet

STEP_X, STEP_Y, MARGIN, RADIUS = 74, 46, 44, 15
SIGNS = {
    "add": "+",
    "mul": "×",
    "sub": "−",
    "rsub": "1−",
    "neg": "−",
    "div": "÷",
    "sigmoid": "σ",
    "mm": "W",
    "addmm": "W",
    "cat": "[;]",
    "linalg_vector_norm": "norm",
    "abs": "|·|",
}
KINDS = {"sigmoid": "gate", "mm": "W", "addmm": "W"}
MOVES = {
    *(
        "t",
        "detach",
        "view",
        "unsqueeze",
        "squeeze",
        "split",
        "split_with_sizes",
        "getitem",
        "expand",
        "flip",
    ),
    *("lift_fresh_copy", "transpose", "permute", "slice", "select", "clone", "_to_copy", "reshape", "unbind"),
    *("lift_fresh", "_unsafe_view", "alias", "scalar_tensor", "copy"),
    # These keep a norm within the range of the numbers; they are not part of the equations.
    *("ge", "gt", "le", "lt", "bitwise_and", "clamp", "clamp_min", "masked_fill", "where"),
}


@dataclass
class Node:
    label: str
    kind: str  # "end" for inputs and outputs, "W" for products, "gate" for sigmoids, "" for other operations
    sources: list[Node] = field(default_factory=list)
    column: int = 0
    row: float = 0.0


def draw(rnn: linnet.Recurrent) -> str:
    """Return the SVG of the first cell of a stack."""
    return as_svg(arrange(nodes_of(rnn.cells[0])))


# ------------------------------------------------------------------------------------------ the graph


def nodes_of(cell: linnet.Cell) -> list[Node]:
    """Return the operations of one step, from the inputs to the outputs."""
    x = torch.randn(1, cell.input_size)
    state = {name: torch.randn(1, size) for name, size in cell.states.items()}

    def step(x: torch.Tensor, *states: torch.Tensor) -> tuple[Any, ...]:
        y, new = cell.run_step(x, cell.pack_state(dict(zip(state, states, strict=True))))
        return (y, *((new,) if isinstance(new, torch.Tensor) else new))

    with torch.no_grad(), linnet.backend("reference"):
        graph = make_fx(step)(x, *state.values()).graph
    before = [f"{name}ₜ₋₁" for name in state]
    return connected(graph, ["xₜ", *before], ["yₜ", *(f"{name}ₜ" for name in state)])


def connected(graph: fx.Graph, inputs: list[str], outputs: list[str]) -> list[Node]:
    made: dict[fx.Node, Node] = {}  # a node that only moves numbers is that of its source
    names = iter(inputs)
    for each in graph.nodes:
        sources = [made[source] for source in each.all_input_nodes if source in made]
        if each.op == "placeholder":
            made[each] = Node(next(names), "end")
        elif each.op == "call_function" and sources:
            made[each] = sources[0] if name_of(each) in MOVES else operation(each, sources)
    (results,) = next(each for each in graph.nodes if each.op == "output").args
    ends = merged({name: made[result] for name, result in zip(outputs, results, strict=True)})
    return reaching(ends)


def name_of(node: fx.Node) -> str:
    return getattr(node.target, "__name__", str(node.target)).split(".")[0]


def operation(node: fx.Node, sources: list[Node]) -> Node:
    name = name_of(node)
    return Node(SIGNS.get(name, name), KINDS.get(name, ""), unique(sources))


def unique(nodes: list[Node]) -> list[Node]:
    return [node for number, node in enumerate(nodes) if not any(node is other for other in nodes[:number])]


def merged(ends: dict[str, Node]) -> list[Node]:
    """Return the outputs; names of the same value share a node."""
    names: dict[int, list[str]] = defaultdict(list)
    sources = {id(node): node for node in ends.values()}
    for name, node in ends.items():
        names[id(node)].append(name)
    return [Node(" = ".join(same), "end", [sources[key]]) for key, same in names.items()]


def reaching(ends: list[Node]) -> list[Node]:
    """Return the nodes that the outputs depend on, each after its sources."""
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) not in found:
            for source in node.sources:
                visit(source)
            found[id(node)] = node

    for end in ends:
        visit(end)
    return list(found.values())


# ----------------------------------------------------------------------------------------- the layout


def arrange(nodes: list[Node], sweeps: int = 16) -> list[Node]:
    """Return the nodes with their columns and rows, and further nodes where lines pass through a column."""
    for node in nodes:
        node.column = 1 + max((source.column for source in node.sources), default=-1)
    last = max(node.column for node in nodes)
    for node in nodes:
        if node.kind == "end" and node.sources:
            node.column = last
    nodes = [each for node in nodes for each in (*routed(node), node)]
    columns, readers = by_column(nodes), by_source(nodes)
    for sweep in range(sweeps):
        for column in sorted(columns, reverse=bool(sweep % 2)):
            settle(columns[column], readers)
    return nodes


def routed(node: Node) -> list[Node]:
    """Replace lines to a node that pass through columns by pieces, and return the nodes between them."""
    between = []
    for number, source in enumerate(node.sources):
        for column in range(source.column + 1, node.column):
            source = Node("", "", [source], column)
            between.append(source)
        node.sources[number] = source
    return between


def by_column(nodes: list[Node]) -> dict[int, list[Node]]:
    columns: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        columns[node.column].append(node)
    return columns


def by_source(nodes: list[Node]) -> dict[int, list[Node]]:
    readers: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        for source in node.sources:
            readers[id(source)].append(node)
    return readers


def settle(column: list[Node], readers: dict[int, list[Node]]) -> None:
    """Place the nodes of a column near their neighbours, one row apart (half a row for lines)."""
    wanted = {id(node): centre([*node.sources, *readers[id(node)]], node.row) for node in column}
    column.sort(key=lambda node: wanted[id(node)])
    heights = [1.0 if node.label else 0.6 for node in column]
    row = sum(wanted.values()) / len(wanted) - sum(heights) / 2
    for node, height in zip(column, heights, strict=True):
        node.row = row + height / 2
        row += height


def centre(neighbours: list[Node], default: float) -> float:
    return sum(node.row for node in neighbours) / len(neighbours) if neighbours else default


# -------------------------------------------------------------------------------------------- the SVG


def as_svg(nodes: list[Node]) -> str:
    top = min(node.row for node in nodes)
    width = 2 * MARGIN + STEP_X * max(node.column for node in nodes)
    height = MARGIN + STEP_Y * (max(node.row for node in nodes) - top)

    def at(node: Node) -> tuple[float, float]:
        return MARGIN + STEP_X * node.column, MARGIN / 2 + STEP_Y * (node.row - top)

    lines = [
        line(*at(source), half(source), *at(node), half(node)) for node in nodes for source in node.sources
    ]
    shapes = [shape(node, *at(node)) for node in nodes if node.label]
    # Smaller than three quarters of its size its letters cannot be read: then the picture scrolls.
    size = (
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" style="min-width: {0.75 * width:.0f}px"'
    )
    head = f'<div class="scrolls"><svg class="cell" {size} role="img">'
    return "\n".join([head, *lines, *shapes, "</svg></div>"])


def half(node: Node) -> float:
    """Return half the width of a node."""
    return max(RADIUS, 4.2 * len(node.label) + 4) if node.label else 0.0


def line(x0: float, y0: float, half0: float, x1: float, y1: float, half1: float) -> str:
    start, end = x0 + half0, x1 - half1
    bend = (end - start) / 2
    return (
        f'<path d="M{start:.0f},{y0:.0f} C{start + bend:.0f},{y0:.0f} {end - bend:.0f},{y1:.0f} '
        f'{end:.0f},{y1:.0f}"/>'
    )


def shape(node: Node, x: float, y: float) -> str:
    wide = half(node)
    return (
        f'<rect class="{node.kind}" x="{x - wide:.0f}" y="{y - RADIUS:.0f}" width="{2 * wide:.0f}" '
        f'height="{2 * RADIUS}" rx="{RADIUS}"/><text x="{x:.0f}" y="{y:.0f}">{node.label}</text>'
    )


if __name__ == "__main__":
    print(draw(linnet.UNITS[sys.argv[1]](4, 4)))
