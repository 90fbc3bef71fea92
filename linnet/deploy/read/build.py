"""From a graph of a file to layers and parameters: Linnet's layers for recurrent nodes, names of the file."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from linnet.deploy.read.call import Call
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph, Node
from linnet.deploy.read.limits import Account, size_of
from linnet.deploy.read.operators.recurrent import RECURRENT_OPERATORS, make_layer, weight_positions
from linnet.deploy.read.operators.table import CONTROL, ELSE, IF, OPERATORS, THEN
from linnet.deploy.read.operators.torch_recurrent import GATES, make_torch_layer, parameter_slots
from linnet.deploy.read.run import checked_results, constant_mode, truth, with_lists

# Longer names, or names with more dots, would be modules nested without end.
LONGEST, MOST_DOTS = 200, 16

# The names of torch's operators, and the version of a graph that has them.
OF_TORCH, PROGRAM = ("aten.", "size."), 0

Constants = ChainMap[str, Tensor]


def check_operators(graph: Graph, version: int) -> None:
    """Raise if there are operators that Linnet does not read, and name all of them."""
    unknown = Counter(node.operator for node in graph.all_nodes())
    for known in (*OPERATORS, *CONTROL):
        # A file has operators of ONNX or of torch, and an operator of the other kind has other attributes.
        if known.startswith(OF_TORCH) == (version == PROGRAM):
            del unknown[known]
    if unknown:
        names = ", ".join(f"{name[:60]} ({count})" for name, count in sorted(unknown.items())[:20])
        raise UnreadableModel(
            f"the file has operators that Linnet does not read: {names}; see docs/convert.md"
        )


@dataclass
class Builder:
    """Gives a module the layers and parameters of a graph, and returns graphs that refer to them."""

    module: nn.Module
    version: int
    account: Account

    def build(self, graph: Graph, around: Constants | None = None) -> Graph:
        """Return the graph with its recurrent nodes and float constants as members of the module."""
        constants = (around if around is not None else ChainMap()).new_child(dict(graph.constants))
        wanted = wanted_early(graph)
        nodes = []
        for node in graph.nodes:
            if node.operator == "Constant":
                right = not node.inputs and len(node.outputs) == 1
                Call(node, self.version).require(right, "is no constant: it has inputs, or not one output")
                constants[node.outputs[0]] = self.compute(node, constants)[0]
                continue
            if wanted.intersection(node.outputs) and can_compute(node, constants):
                constants.update(zip(node.outputs, self.compute(node, constants), strict=False))
            nodes.append(self.node(node, constants))
        lifted = {n.outputs[0]: constants[n.outputs[0]] for n in graph.nodes if n.operator == "Constant"}
        read = read_nodes(graph.outputs, nodes)
        return self.with_parameters(replace(graph, nodes=read, constants={**graph.constants, **lifted}))

    def compute(self, node: Node, constants: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        call = Call(node, self.version)
        call.require(len(node.outputs) > 0, "has no output")
        kind = OPERATORS[node.operator]
        given = [constants[name] if name else None for name in node.inputs]
        with constant_mode():
            results = checked_results(self.account, kind, call, (), with_lists(kind.host | node.host, given))
        self.account.take(size_of(results), node.title)
        return results

    def node(self, node: Node, constants: Constants) -> Node:
        if is_recurrent(node):
            return self.recurrent(node, constants)
        if node.operator == IF and node.inputs[:1] and node.inputs[0] in constants:
            return self.decided(node, constants)
        if is_square(node, constants):
            # torch computes powers by a tensor of exponents many times slower than a product.
            return replace(node, operator="Mul", inputs=(node.inputs[0],) * 2)
        inner = {
            name: self.build(value, constants) if isinstance(value, Graph) else value
            for name, value in node.attributes.items()
        }
        return replace(node, attributes=inner)

    def decided(self, node: Node, constants: Constants) -> Node:
        """Leave out the branch that never runs, with its weights."""
        call = Call(node, self.version)
        chosen = THEN if truth(call, constants[node.inputs[0]]) else ELSE
        graph = call.get(chosen, Graph, None)
        call.require(graph is not None, f"has no {chosen}")
        return replace(node, attributes=dict.fromkeys((THEN, ELSE), self.build(graph, constants)))

    def recurrent(self, node: Node, constants: Constants) -> Node:
        """Make the layer of a node, which then reads its weights no more."""
        call, given = Call(node, self.version), [constants.get(name) for name in node.inputs]
        positions = weights_of(node)
        computed = any(given[i] is None and node.inputs[i] for i in positions)
        call.require(not computed, "has weights that the model computes from its input")
        self.account.check(2 * size_of(given), node.title)
        layer = make_torch_layer(call, given) if node.operator in GATES else make_layer(call, given)
        self.account.take(size_of(layer.parameters()), node.title)
        name = free_name(self.module, node.name.replace(".", "_") or node.operator.lower())
        self.module.add_module(name, layer)
        inputs = tuple("" if i in positions else name for i, name in enumerate(node.inputs))
        return replace(node, inputs=inputs, layer=name)

    def with_parameters(self, graph: Graph) -> Graph:
        """Register the float tensors that are still read; single numbers and integers stay constants."""
        read = set(graph.outputs).union(*(node.reads() for node in graph.nodes))
        sizes, buffers = read_as_numbers(graph), graph.buffers | read_as_statistics(graph)
        constants, parameters = {}, {}
        for name, tensor in graph.constants.items():
            if name not in read:
                self.account.free(size_of([tensor]))
            elif tensor.is_floating_point() and tensor.numel() > 1 and name not in sizes:
                parameters[name] = register(
                    self.module, graph.titles.get(name, name), tensor, name in buffers
                )
            else:
                constants[name] = tensor
        return replace(graph, constants=constants, parameters=parameters)


def can_compute(node: Node, constants: Mapping[str, Tensor]) -> bool:
    """Whether a node has a result before the model runs."""
    is_plain = not is_recurrent(node) and node.operator not in CONTROL
    return is_plain and all(name in constants for name in node.inputs if name)


def is_square(node: Node, constants: Mapping[str, Tensor]) -> bool:
    """Whether a node raises a tensor to the power of 2, a number that does not change the shape."""
    if node.operator != "Pow" or len(node.inputs) != 2:
        return False
    exponent = constants.get(node.inputs[1])
    return exponent is not None and exponent.dim() == 0 and bool(exponent == 2)


def is_recurrent(node: Node) -> bool:
    return node.operator in RECURRENT_OPERATORS or node.operator in GATES


def weights_of(node: Node) -> list[int]:
    """Positions of the inputs of a recurrent node that become parameters of its layer."""
    return parameter_slots(node) if node.operator in GATES else weight_positions(node)


def wanted_early(graph: Graph) -> set[str]:
    """The names of all values from which weights of recurrent nodes and conditions are computed."""
    wanted: set[str] = set()
    for node in reversed(graph.nodes):
        for each in (node, *(inner for sub in node.graphs for inner in sub.all_nodes())):
            if each.operator == IF:
                wanted.update(each.inputs[:1])
            if is_recurrent(each):
                wanted.update(each.inputs[i] for i in weights_of(each))
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
    return wanted - {""}


def read_nodes(outputs: Sequence[str], nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes whose results somebody reads; layers have the results of others in their weights."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.outputs):
            kept.append(node)
            read |= node.reads()
    return tuple(kept[::-1])


def read_as_numbers(graph: Graph) -> set[str]:
    """Names of values on which shapes depend, such as the scales of a Resize."""
    return {
        name
        for node in graph.all_nodes()
        if node.operator in OPERATORS
        for position, name in enumerate(node.inputs)
        if position in OPERATORS[node.operator].host | node.host
    }


def read_as_statistics(graph: Graph) -> set[str]:
    """Names of means and variances, which have no gradients."""
    norms = [node for node in graph.all_nodes() if node.operator == "BatchNormalization"]
    return {name for node in norms for name in node.inputs[3:]}


def register(module: nn.Module, name: str, tensor: Tensor, is_buffer: bool) -> str:
    """Make a tensor a parameter or a buffer, by the name that it has in the file, and return its name."""
    is_long = len(name) > LONGEST or name.count(".") > MOST_DOTS
    parts = [name[:LONGEST].replace(".", "_")] if is_long else name.split(".")
    *folders, leaf = [part or "_" for part in parts]
    owner, path = module, []
    for folder in folders:
        inner = owner._modules.get(folder)
        if type(inner) is not nn.Module:
            folder, inner = free_name(owner, folder), nn.Module()
            owner.add_module(folder, inner)
        path.append(folder)
        owner = inner
    leaf = free_name(owner, leaf)
    if is_buffer:
        owner.register_buffer(leaf, tensor)
    else:
        owner.register_parameter(leaf, nn.Parameter(tensor))
    return ".".join([*path, leaf])


def free_name(module: nn.Module, name: str) -> str:
    """Return a name that the module has no attribute of."""
    name = name[:LONGEST]
    number, free = 1, name
    while hasattr(module, free):
        number += 1
        free = f"{name}_{number}"
    return free
