"""A plan as text, for saved graphs: from it, another process can compile the kernels again.

    {"linnet": 1, "inputs": [...], "states": [...], "weights": [...], "extras": [...],
     "products": [[state, [parts]], ...], "inner": [[projection, [parts]], ...],
     "forward":  {"lines": [[result, operation, operands...], ...], "outputs": [...]},
     "backward": {...}}

It is JSON. A step without inner products has no "inner", and a block-diagonal matrix has its number of heads
as the third item of its product. An operand is a name (of an input or of an earlier
result) or a number. The outputs are those of `Traced`, in its order: y, the new states, what inner products
read; the gradients of inputs, states and weights.

A file may come from anywhere, and kernels read and write by address. So names, operations, counts and
kinds of values are checked, and an invalid text raises a ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from linnet.program.graph import Graph
from linnet.program.graph_text import read_shaped, read_sizes, shaped_value
from linnet.program.loops import lowered_backward, lowered_forward
from linnet.program.malformed import MalformedError, check_kinds, fields, need
from linnet.program.phases import phases_of, subject
from linnet.program.trace import COMPARISONS, COUNTS, LOGICAL, Inner, Line, Operand, Pointwise, Traced

VERSION = 1
# Far more than any unit needs: the text of LSTM has 3,000 characters.
LONGEST = 1 << 20
# What a product reads, or its matrix, the parts that it makes, and its heads.
Products = Sequence[tuple[str, tuple[str, ...], int]]


def written(traced: Traced, extras: Sequence[str], products: Products) -> str:
    """Return the text of a plan, which is the same in every process."""
    value: dict[str, Any] = {
        "linnet": VERSION,
        "inputs": traced.inputs,
        "states": traced.states,
        "weights": traced.weights,
        "extras": extras,
        "products": [product_value(*product) for product in products],
        "forward": graph_value(traced.forward),
        "backward": graph_value(traced.backward),
    }
    if traced.inner:
        value["inner"] = [product_value(*product) for product in traced.inner]
    if traced.sizes:
        value["sizes"] = dict(traced.sizes)
    return json.dumps(value, separators=(",", ":"))


def product_value(source: str, parts: Sequence[str], heads: int) -> list[Any]:
    return [source, parts, heads] if heads > 1 else [source, parts]


def graph_value(graph: Any) -> dict[str, Any]:
    if isinstance(graph, Graph):
        return shaped_value(graph)
    lines = [[line.result, line.op, *line.operands] for line in graph.lines]
    return {"lines": lines, "outputs": [value for _, value in graph.outputs]}


# --------------------------------------------------------------------------------------- reading


def read(text: str) -> tuple[Traced, tuple[str, ...], Products]:
    """Return the traced step, its extras and its products with states."""
    value = parsed(text)
    optional = [name for name in ("inner", "sizes") if isinstance(value, dict) and name in value]
    value = fields(value, ["linnet", "inputs", "states", "weights", "extras", "products", *GRAPHS, *optional])
    version = value["linnet"]
    need(version == VERSION, f"its version is {version!r}, and this is version {VERSION}")
    inputs, states, weights = (names(value[group], group) for group in ("inputs", "states", "weights"))
    known = [*inputs, *states, *weights]
    need(len(states) > 0, "it has no states")
    need(len(set(known)) == len(known), "two of its inputs, states and weights have the same name")
    extras = names(value["extras"], "extras")
    products = read_products(value["products"], states)
    inner = tuple(Inner(*product) for product in read_all(value.get("inner", []), "an inner product"))
    check_order(inputs, extras, [*products, *inner])
    sources = [f"inner.{i}" for i in range(len(inner))]
    need(set(sources).isdisjoint(known), "one of its names is that of an inner product")
    outputs = ["y", *(f"new.{name}" for name in states), *sources]
    above, gradients = [f"d{name}" for name in outputs], [f"d.{name}" for name in known]
    need(set(above).isdisjoint(known), "one of its names is that of a gradient")
    if "sizes" in value:
        need(not products, "a step that is not elementwise has inner products only")
        sizes = read_sizes(value["sizes"], [*known, "y", *sources])
        graphs = read_shaped_graphs(value, sizes, known, outputs)
        traced = Traced(inputs, states, weights, *graphs, inner, tuple(sizes.items()))
    else:
        forward = read_graph(value["forward"], known, outputs)
        backward = read_graph(value["backward"], [*known, *above], gradients)
        traced = Traced(inputs, states, weights, forward, backward, inner)
    check_phases(traced)
    return traced, extras, products


def read_shaped_graphs(
    value: Any, sizes: Mapping[str, int], known: Sequence[str], outputs: Sequence[str]
) -> tuple[Any, Any]:
    """Both graphs of a step that is not elementwise."""
    given, made = {name: sizes[name] for name in known}, {name: sizes[subject(name)] for name in outputs}
    plain = all(len(product) == 2 and len(product[1]) == 1 for product in value.get("inner", []))
    need(plain, "an inner product has several parts or heads")
    forward = read_shaped(value["forward"], given, made)
    above = {f"d{name}": size for name, size in made.items()}
    backward = read_shaped(value["backward"], given | above, {f"d.{n}": size for n, size in given.items()})
    return forward, backward


def check_phases(traced: Traced) -> None:
    try:
        phases_of(traced)
        if traced.sizes:
            lowered_forward(traced)
            lowered_backward(traced, (*traced.inputs, *traced.weights))
    except ValueError as error:
        raise MalformedError(str(error)) from error


GRAPHS = ("forward", "backward")


def parsed(text: str) -> Any:
    need(len(text) <= LONGEST, f"it has {len(text)} characters, and {LONGEST} is the limit")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"it is not JSON ({error})") from error


def names(value: Any, what: str) -> tuple[str, ...]:
    whole = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    need(whole, f"{what} must be a list of names; got {value!r}")
    need(len(set(value)) == len(value), f"{what} has a name twice: {value}")
    return tuple(value)


def read_products(value: Any, states: Sequence[str]) -> Products:
    products = list(read_all(value, "a product"))
    for state, _, _ in products:
        need(state in states, f"a product reads the state {state!r}; there are {list(states)}")
    return products


def read_all(value: Any, what: str) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Of each product what it reads, or its matrix, its parts, and its heads."""
    need(isinstance(value, list), f"{what} must be in a list; got {value!r}")
    for product in value:
        named = isinstance(product, list) and len(product) in (2, 3) and isinstance(product[0], str)
        need(named, f"{what} must be a name, its parts and perhaps its heads; got {product!r}")
        parts = names(product[1], f"the parts of {what}")
        need(len(parts) > 0, f"{what}, {product[0]!r}, has no parts")
        heads = product[2] if len(product) == 3 else 1
        whole = isinstance(heads, int) and not isinstance(heads, bool) and heads > 0
        need(whole, f"the heads of {what} must be a number from 1 on; got {heads!r}")
        yield product[0], parts, heads


def check_order(inputs: Sequence[str], extras: Sequence[str], products: Products) -> None:
    """The inputs must be projections, then extras, then parts of products."""
    last = [*extras, *(part for _, parts, _ in products for part in parts)]
    start = len(inputs) - len(last)
    fits = start > 0 and list(inputs[start:]) == last
    need(fits, f"its inputs {list(inputs)} must be projections and then {last}")


def read_graph(value: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Pointwise:
    graph = fields(value, ("lines", "outputs"))
    need(isinstance(graph["lines"], list), f"lines must be a list; got {graph['lines']!r}")
    # For each name, whether it is a truth value.
    known = dict.fromkeys(inputs, False)
    lines = tuple(read_line(line, known) for line in graph["lines"])
    results = graph["outputs"]
    whole = isinstance(results, list) and len(results) == len(outputs)
    need(whole, f"a graph needs the {len(outputs)} outputs {list(outputs)}; got {results!r}")
    operands = [read_operand(result, known) for result in results]
    need(not any(is_truth(operand, known) for operand in operands), "an output is a truth value")
    return Pointwise(tuple(inputs), lines, tuple(zip(outputs, operands, strict=True)))


def read_line(value: Any, known: dict[str, bool]) -> Line:
    """Read a line and add its result to `known`."""
    whole = isinstance(value, list) and len(value) > 2 and all(isinstance(item, str) for item in value[:2])
    need(whole, f"a line must be a result, an operation and operands; got {value!r}")
    result, op, *rest = value
    need(op in COUNTS, f"there is no operation {op!r}")
    need(len(rest) == COUNTS[op], f"{op} takes {COUNTS[op]} operands; got {rest}")
    need(bool(result) and result not in known, f"the name {result!r} is taken or empty")
    operands = tuple(read_operand(operand, known) for operand in rest)
    check_kinds(op, [is_truth(operand, known) for operand in operands])
    known[result] = op in COMPARISONS or op in LOGICAL
    return Line(result, op, operands)


def read_operand(value: Any, known: dict[str, bool]) -> Operand:
    if isinstance(value, str):
        need(value in known, f"{value!r} is read before it is computed")
        return value
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    need(number, f"an operand must be a name or a number; got {value!r}")
    try:
        return float(value)
    except OverflowError as error:
        raise MalformedError(f"the number {str(value)[:20]}... is too large") from error


def is_truth(operand: Operand, known: dict[str, bool]) -> bool:
    return isinstance(operand, str) and known[operand]
