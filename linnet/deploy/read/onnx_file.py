"""An ONNX file as a graph: parsed, checked, and without anything of protobuf in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph, Node, Port
from linnet.deploy.read.limits import DEPTH, NODES, Account
from linnet.deploy.read.order import Scopes, check_known, check_names
from linnet.deploy.read.tensors import dtype_of, tensor_of, text_of
from linnet.deploy.read.wire import check_size
from linnet.runs.errors import missing

# The numbers of onnx.AttributeProto.AttributeType, and the field that has the value.
ATTRIBUTES = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings"}
STANDARD = ("", "ai.onnx")
OLDEST, NEWEST = 7, 26
"""Versions of the standard operators whose meaning Linnet knows."""


def read_graph(content: bytes, folder: Path | None, account: Account) -> tuple[Graph, int]:
    """Return the graph of an encoded ModelProto, and the version of its operators."""
    model = parse(content, account.limit)
    if model.functions:
        raise UnreadableModel(
            f"the file defines {len(model.functions)} functions of its own, which Linnet does not read; "
            "write it with onnx.inliner.inline_local_functions first"
        )
    version = version_of(model)
    reader = Reader(folder, account)
    return reader.graph(model.graph, 0, ()), version


def parse(content: bytes, limit: int) -> Any:
    try:
        from google.protobuf.message import DecodeError
        from onnx import ModelProto
    except ImportError:
        raise missing("linnet.read_onnx", "onnx") from None
    check_size(content, ModelProto.DESCRIPTOR, limit)
    try:
        model = ModelProto.FromString(content)
    except (DecodeError, RuntimeError) as error:
        raise UnreadableModel(f"the file is not an ONNX model ({error})") from None
    if not model.HasField("graph"):
        raise UnreadableModel("the file is not an ONNX model: it has no graph")
    return model


def version_of(model: Any) -> int:
    versions = [each.version for each in model.opset_import if each.domain in STANDARD]
    if len(versions) != 1 or not OLDEST <= versions[0] <= NEWEST:
        raise UnreadableModel(
            f"the file uses ONNX's operators of version {versions}; Linnet reads one version between "
            f"{OLDEST} and {NEWEST}, which onnx.version_converter can convert to"
        )
    return versions[0]


class Reader:
    """Turns messages into graphs, with one count of nodes and bytes for all of them."""

    def __init__(self, folder: Path | None, account: Account):
        self.folder, self.account = folder, account
        self.nodes = 0

    def graph(self, proto: Any, depth: int, around: Scopes) -> Graph:
        """Return a graph; `around` are the names in the graphs around it, which a subgraph may read."""
        if depth > DEPTH:
            raise UnreadableModel(f"the file has subgraphs nested more than {DEPTH} deep")
        if proto.sparse_initializer:
            raise UnreadableModel("the file has sparse initialisers, which Linnet does not read")
        constants = {
            text_of(each.name): tensor_of(each, self.folder, self.account) for each in proto.initializer
        }
        # Until version 3 of the format, initialisers were inputs too.
        inputs = tuple(port_of(each) for each in proto.input if text_of(each.name) not in constants)
        check_names("inputs", [port.name for port in inputs])
        here = {*constants, *(port.name for port in inputs)}
        known = (*around, here)
        nodes = []
        for each in proto.node:
            nodes.append(self.node(each, depth, known))
            check_known(nodes[-1].title, nodes[-1].inputs, known)
            here.update(nodes[-1].outputs)
        outputs = tuple(text_of(each.name) for each in proto.output)
        check_names("outputs", list(outputs))
        check_known("the graph's list of outputs", outputs, known)
        return Graph(inputs, outputs, tuple(nodes), constants)

    def node(self, proto: Any, depth: int, known: Scopes) -> Node:
        self.nodes += 1
        if self.nodes > NODES:
            raise UnreadableModel(f"the file has more than {NODES:,} nodes")
        attributes = {text_of(each.name): self.attribute(each, depth, known) for each in proto.attribute}
        inputs, outputs = (tuple(map(text_of, names)) for names in (proto.input, proto.output))
        domain = "" if proto.domain in STANDARD else f"{text_of(proto.domain)}."
        name = text_of(proto.name) or next(filter(None, outputs), "")
        return Node(domain + text_of(proto.op_type), name, inputs, outputs, attributes)

    def attribute(self, proto: Any, depth: int, known: Scopes) -> Any:
        if proto.type not in ATTRIBUTES or proto.ref_attr_name:
            raise UnreadableModel(
                f"the attribute {text_of(proto.name)!r} is of a kind that Linnet does not read"
            )
        value = getattr(proto, ATTRIBUTES[proto.type])
        if proto.type == 4:
            return tensor_of(value, self.folder, self.account)
        if proto.type == 5:
            return self.graph(value, depth + 1, known)
        if proto.type in (3, 8):
            return text_of(value) if proto.type == 3 else [text_of(each) for each in value]
        return list(value) if proto.type in (6, 7) else value


def port_of(proto: Any) -> Port:
    name = text_of(proto.name)
    kind = proto.type.WhichOneof("value")
    if kind is not None and kind != "tensor_type":
        raise UnreadableModel(f"the input {name!r} is a {kind}, and Linnet reads tensors")
    tensor = proto.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"the input {name!r}") if tensor.elem_type else None
    shape = tuple(map(dimension, tensor.shape.dim)) if tensor.HasField("shape") else None
    return Port(name, dtype, shape)


def dimension(proto: Any) -> int | str | None:
    # Some writers have -1 for a dimension without a number.
    if proto.HasField("dim_value") and proto.dim_value >= 0:
        return proto.dim_value
    return text_of(proto.dim_param) or None
