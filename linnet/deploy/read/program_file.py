"""A program of torch.export (.pt2) as a graph, without torch.export.load.

That function unpickles what the file marks as pickled, evaluates expressions of the file, and looks up any
name in torch. Here the file is JSON and arrays of numbers; every name is one of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from linnet.deploy.read.archive import Archive
from linnet.deploy.read.aten import ARGUMENTS, DROPPED, OPTIONS, Slot
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph, Node, Port
from linnet.deploy.read.limits import NODES, Account, bytes_of, checked_shape
from linnet.deploy.read.order import check_order
from linnet.deploy.read.tensors import from_bytes
from linnet.runs.errors import Damaged
from linnet.runs.untrusted import parse_json

MODEL = "models/model.json"
PARSED = 32
"""Bytes that a byte of JSON takes at most when it is parsed."""
# torch.export's numbers of dtypes.
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
# Kinds of arguments that are values as they are, and those that say where a tensor is and are left out.
PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string")
PLACES = ("as_device", "as_layout", "as_memory_format")
KEYWORD = 2


def read_program(archive: Archive, account: Account) -> Graph:
    """Return the graph of the program in an archive."""
    archive.check_stored()
    try:
        return Program(archive, account).graph()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, UnreadableModel):
            raise
        # Whatever is missing or of another type in the JSON.
        raise UnreadableModel(
            f"{archive.path} is no program of torch.export that Linnet knows ({error!r:.100})"
        ) from None


class Program:
    def __init__(self, archive: Archive, account: Account):
        self.archive, self.account = archive, account
        self.module = self.json(MODEL)["graph_module"]
        self.values = self.module["graph"]["tensor_values"]
        self.titles: dict[str, str] = {}
        self.buffers: set[str] = set()

    def json(self, name: str) -> Any:
        content = self.archive.read(name)
        self.account.check(PARSED * len(content), name)
        try:
            return parse_json(name, content)
        except Damaged as error:
            raise UnreadableModel(str(error)) from None

    def graph(self) -> Graph:
        inputs, constants = [], {}
        kinds = ("weights", "constants")
        weights = {kind: self.json(f"data/{kind}/model_{kind}_config.json")["config"] for kind in kinds}
        for spec in self.module["signature"]["input_specs"]:
            kind, given = only(spec)
            if kind == "user_input":
                inputs += (
                    [self.port(text(given["arg"]["as_tensor"]["name"]))]
                    if "as_tensor" in given["arg"]
                    else []
                )
            else:
                name = text(given["arg"]["name"])
                self.titles[name] = text(given[f"{kind}_name"])
                if kind != "parameter":
                    self.buffers.add(name)
                constants[name] = self.tensor(weights, self.titles[name])
        made = Graph(
            tuple(inputs), self.outputs(), self.nodes(), constants, titles=self.titles, buffers=self.buffers
        )
        check_order(made)
        return made

    def outputs(self) -> tuple[str, ...]:
        found = []
        for spec in self.module["signature"]["output_specs"]:
            kind, given = only(spec)
            if kind != "user_output":
                raise UnreadableModel(f"the program writes to its inputs or buffers ({kind})")
            found += [text(given["arg"]["as_tensor"]["name"])] if "as_tensor" in given["arg"] else []
        return tuple(found)

    def port(self, name: str) -> Port:
        meta = self.values[name]
        return Port(name, DTYPES[meta["dtype"]], tuple(each.get("as_int") for each in meta["sizes"]))

    def tensor(self, weights: Mapping[str, Any], title: str) -> Tensor:
        """Return a weight; its file has the numbers, the JSON the shape."""
        folder = next((kind for kind in weights if title in weights[kind]), None)
        if folder is None:
            raise UnreadableModel(f"the file has no numbers of {title!r}")
        entry = weights[folder][title]
        what = f"the weight {title!r}"
        if entry["use_pickle"]:
            raise UnreadableModel(f"{what} is a pickle, which runs code when it is loaded")
        meta = entry["tensor_meta"]
        sizes, strides = ([each["as_int"] for each in meta[name]] for name in ("sizes", "strides"))
        shape, dtype = checked_shape(sizes, what), DTYPES[meta["dtype"]]
        self.account.take(bytes_of(shape, dtype, what), what)
        flat = from_bytes(self.archive.read(f"data/{folder}/{entry['path_name']}"), dtype, [-1])
        return strided(flat, shape, strides, meta["storage_offset"]["as_int"], what)

    # ------------------------------------------------------------------------------------- nodes

    def nodes(self) -> tuple[Node, ...]:
        given = self.module["graph"]["nodes"]
        if len(given) > NODES:
            raise UnreadableModel(f"the program has more than {NODES:,} nodes")
        return tuple(self.node(each) for each in given if each["target"] not in DROPPED)

    def node(self, given: Mapping[str, Any]) -> Node:
        inputs: list[str] = []
        host: set[int] = set()
        arguments, options = [], {}
        for each in given["inputs"]:
            kind, value = only(each["arg"])
            if kind in PLACES or each["name"] in ("pin_memory", "device", "layout", "memory_format"):
                continue
            read = self.argument(kind, value, inputs, host)
            if each.get("kind") == KEYWORD:
                options[str(each["name"])] = read
            else:
                arguments.append(read)
        outputs = [name for each in given["outputs"] for name in names_of(each)]
        attributes = {ARGUMENTS: arguments, OPTIONS: options}
        return Node(
            operator_of(given["target"]),
            self.name_of(given, inputs),
            tuple(inputs),
            tuple(outputs),
            attributes,
            host=frozenset(host),
        )

    def name_of(self, given: Mapping[str, Any], inputs: list[str]) -> str:
        """Return the name of the module whose weights a node reads, or else its own."""
        owners = {self.titles[name].rpartition(".")[0] for name in inputs if name in self.titles}
        return owners.pop() if len(owners) == 1 else str(given.get("name") or given["target"])

    def argument(self, kind: str, value: Any, inputs: list[str], host: set[int]) -> Any:
        if kind == "as_none":
            return None
        if kind in PLAIN:
            return value
        if kind == "as_scalar_type":
            return DTYPES[value]
        if kind in ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_nested_tensors"):
            inner = "as_tensor" if kind == "as_tensors" else "as_sym_int"
            pairs = [only(each) if kind == "as_optional_tensors" else (inner, each) for each in value]
            return [self.argument(*pair, inputs, host) for pair in pairs]
        if kind == "as_sym_int" and "as_int" in value:
            return value["as_int"]
        if kind not in ("as_tensor", "as_sym_int"):
            raise UnreadableModel(f"the program has an argument of the unknown kind {kind[:40]!r}")
        if kind == "as_sym_int":
            host.add(len(inputs))
        inputs.append(text(value["name" if kind == "as_tensor" else "as_name"]))
        return Slot(len(inputs) - 1)


def only(given: Mapping[str, Any]) -> tuple[str, Any]:
    """The one name of a union, and its value."""
    (pair,) = given.items()
    return pair


def names_of(output: Mapping[str, Any]) -> list[str]:
    kind, value = only(output)
    if kind == "as_tensors":
        return [text(each["name"]) for each in value]
    return [text(value["name"] if kind == "as_tensor" else value["as_name"])]


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UnreadableModel(f"the program has {value!r:.40} where a name is expected")
    return value


def operator_of(target: str) -> str:
    """Return the name of an operator in the table: aten.linear.default, size.mul."""
    if target.startswith("torch.ops."):
        return target.removeprefix("torch.ops.")
    return target.replace("_operator.", "size.", 1)


def strided(flat: Tensor, shape: list[int], strides: list[int], offset: int, what: str) -> Tensor:
    """Return a view of the numbers of a file, if all of it is within the file."""
    right = len(strides) == len(shape) and all(each >= 0 for each in strides) and offset >= 0
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=right)) if right else 0
    if not right or (0 not in shape and last >= len(flat)):
        raise UnreadableModel(f"{what} of the shape {shape} has {len(flat):,} numbers, which are too few")
    return flat.as_strided(shape, strides, offset).contiguous()
