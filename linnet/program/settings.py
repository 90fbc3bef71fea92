"""The attributes and variables that a step reads besides its arguments, to detect when they change.

A plan is traced once and used until something that the step reads changes its value. While a step is
traced, `Reading` records the attributes of the cell that it reads; at each call their values are part of the
key by which a plan is looked up. Numbers, strings, functions, NumPy scalars and small arrays, enums, and
lists, tuples, dicts, sets, dataclasses and modules of these can be described by a value. A change of any
other object cannot be detected, so a step that reads one is not fused.

The code of a unit's own functions is searched for global variables and closures that hold such values.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from linnet.program.unit import Unit

# Values that describe themselves.
SIMPLE = frozenset({int, bool, str, bytes, complex, type(None), types.BuiltinFunctionType, type})
SIMPLE |= {torch.dtype, torch.device, type(...), range}
# Arrays with more numbers than this are too large to compare at each call.
LARGEST = 1024
# Functions of these packages do not depend on variables that change.
LIBRARIES = ("torch", "linnet", "numpy", "math")


class Opaque(NamedTuple):
    """Stands for an object that cannot be described."""

    kind: type


class Reading:
    """Mixed into a copy of a cell: records which attributes are read."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Replaces that of a unit, which may require arguments."""

    def __getattribute__(self, name: str) -> Any:
        noted = object.__getattribute__(self, "__dict__").get("attributes read")
        if noted is not None and not name.startswith("__"):
            noted.add(name)
        return super().__getattribute__(name)


def note_reads(cell: Any, names: set[str]) -> None:
    """From now on, add the names of the attributes of `cell` that are read to `names`."""
    kind = type(cell)
    cell.__dict__["attributes read"] = names
    cell.__class__ = type(kind.__name__, (Reading, kind), {"__module__": kind.__module__})


# Attributes that every cell has and that no option changes.
COMMON = frozenset({*dir(nn.Module), *dir(Unit)}) - {"step"}
MACHINERY = frozenset(
    {"_parameters", "_buffers", "_modules", "training", "plan_cache", "states", "arguments"}
)


# What another module holds for a projection; see linnet/program/owned.py.
PARAMETERS_OF_OWNER = ("owned", "owner")


class Settings:
    """The attributes that steps of a cell read, and their values as a key."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        # Of the names, methods of Linnet's own cells: these change only if an attribute replaces them.
        self.methods: frozenset[str] = frozenset()
        # Of the names, attributes of the object itself and modules, which a compiler can guard.
        self.shown: tuple[str, ...] = ()
        # Global variables: the namespaces they are in, and their names there.
        self.variables: tuple[tuple[dict[str, Any], str], ...] = ()

    def add(self, cell: Unit, names: set[str]) -> None:
        """Names are only ever added: an option that changes back must still find what was read with it."""
        self.names += tuple(name for name in sorted(names) if counts(cell, name) and name not in self.names)
        self.shown = tuple(name for name in self.names if name in cell.__dict__ or name in cell._modules)
        functions = {name: function for name in self.names for function in code(cell, name)}
        self.methods = frozenset(name for name in functions if is_own_method(cell, name))
        known = {(id(space), name) for space, name in self.variables}
        found = [(space, name) for space, name in global_variables(functions.values())]
        self.variables += tuple((space, name) for space, name in found if (id(space), name) not in known)

    def key(self, cell: Unit) -> tuple[Hashable, ...]:
        own, methods = cell.__dict__, self.methods
        values = [
            described(own[name]) if name in own else None if name in methods else elsewhere(cell, name)
            for name in self.names
        ]
        if self.variables:
            values += [described(space.get(name)) for space, name in self.variables]
        return tuple(values)

    def can_change_inside(self, cell: Unit) -> bool:
        """Whether a value can change while the attributes of the cell stay the same objects."""
        names = [n for n in self.names if n not in self.methods and n not in cell._parameters]
        values = [cell.__dict__.get(name, cell._modules.get(name, cell)) for name in names]
        return bool(self.variables) or not all(map(is_fixed, values))

    def show(self, cell: Unit) -> None:
        """Read all names, so that a compiler compiles again when one of them changes."""
        for name in self.shown:
            getattr(cell, name) is None  # noqa: B015, reading it is enough

    def unguarded(self, cell: Unit) -> str | None:
        """Why a compiler would not detect a change of something that the steps read, or None."""
        values = {f"self.{name}": cell.__dict__.get(name, cell._modules.get(name)) for name in self.names}
        values |= {name: space.get(name) for space, name in self.variables}
        # Global variables are never guarded: they are not arguments of the compiled function.
        found = [n for n, value in values.items() if not n.startswith("self.") or not is_guarded(value)]
        return f"a compiler would not see a change of {found[0]}, which its step reads" if found else None

    def opaque(self, cell: Unit, names: set[str]) -> str | None:
        """Why a step that reads these attributes cannot be fused, or None if all can be described."""
        for name, value in zip(self.names, self.key(cell), strict=False):
            kind = find_opaque(value)
            if name in names and kind is not None:
                return (
                    f"its step reads self.{name}, which holds a {kind.__name__}, and a change of that cannot "
                    "be detected; keep numbers, strings, functions, or lists, dicts, dataclasses of these"
                )
        return None


def is_fixed(value: Any) -> bool:
    """Whether an object cannot change its value, but by attributes that become other objects."""
    if isinstance(value, nn.Module):
        return all(type(module).__module__.split(".")[0] in LIBRARIES for module in value.modules())
    if type(value) is tuple:
        return all(map(is_fixed, value))
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and is_of_library(value)
    return type(value) in SIMPLE or type(value) is float


def is_guarded(value: Any) -> bool:
    """Whether torch.compile detects a change of an attribute that is only read."""
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None or is_of_library(value)
    if isinstance(value, nn.Module):
        # The numbers of these are compared while a compiler traces; see plan_cache.numbers_in.
        if type(value).__module__.split(".")[0] in LIBRARIES:
            return True
        return all(name[0] == "_" or name == "training" for name in vars(value)) and not value._modules
    return type(value) in SIMPLE or type(value) is float


def counts(cell: Unit, name: str) -> bool:
    """Whether a step could compute something else if the attribute `name` changed."""
    return name not in MACHINERY and (name in cell.__dict__ or name not in COMMON)


def elsewhere(cell: Unit, name: str) -> Hashable:
    """The value of an attribute that is not in the dictionary of the object itself."""
    if name in cell._parameters:
        # Parameters are operands of kernels, so their values may change.
        return cell._parameters[name] is None
    if name in cell._modules:
        return described(cell._modules[name])
    if name in cell.constant_buffers:
        return cell._buffers[name] is None
    if name in cell._buffers:
        # A trace rejects buffers, unless the step has read their numbers without torch.
        return described(cell._buffers[name])
    return described(getattr(type(cell), name, None))


# -------------------------------------------------------------------------------------- by value


def described(value: Any) -> Hashable:
    """Return a description that is equal for two values if and only if a step cannot tell them apart."""
    kind = type(value)
    if kind in SIMPLE:
        return kind, value
    if kind is float:
        # 0.0 == -0.0, but a step can tell them apart.
        return kind, (value if value else str(value))
    if kind is types.FunctionType:
        return described_function(value)
    return described_object(value)


def described_function(function: types.FunctionType) -> Hashable:
    cells = function.__closure__
    if cells is None or is_of_library(function):
        return function
    return function, *(described(content(cell)) for cell in cells)


def content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def described_object(value: Any) -> Hashable:
    kind = type(value)
    if isinstance(value, (tuple, list)):
        return kind, *map(described, value)
    if isinstance(value, dict):
        return kind, *((described(key), described(item)) for key, item in value.items())
    if isinstance(value, (set, frozenset)):
        return kind, frozenset(map(described, value))
    if isinstance(value, (enum.Enum, type, property, classmethod, staticmethod, types.ModuleType)):
        return value
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.size <= LARGEST):
        return kind, value.dtype, value.shape, value.tobytes()
    if isinstance(value, partial) and any(isinstance(given, nn.Module) for given in value.args):
        return Opaque(kind)  # as accelerate puts in place of a module's own `forward`
    if isinstance(value, partial):
        return kind, described(value.func), described(value.args), described(value.keywords)
    if isinstance(value, nn.Module):
        return described_module(value)
    if dataclasses.is_dataclass(value) or isinstance(value, types.SimpleNamespace):
        return kind, *((name, described(item)) for name, item in vars(value).items())
    return Opaque(kind)


def described_module(module: nn.Module) -> Hashable:
    """Its attributes and those of its children, without parameters: a trace rejects these anyway."""
    if type(module) is nn.Identity:  # for speed: a unit without a norm has one
        return nn.Identity
    own = {name: value for name, value in vars(module).items() if name not in PARAMETERS_OF_OWNER}
    public = [(name, described(value)) for name, value in own.items() if name[0] != "_"]
    children = [(name, described(child)) for name, child in module._modules.items()]
    return type(module), *public, *children


def find_opaque(description: Hashable) -> type | None:
    if isinstance(description, Opaque):
        return description.kind
    if not isinstance(description, (tuple, frozenset)):
        return None
    return next((kind for item in description if (kind := find_opaque(item)) is not None), None)


# ------------------------------------------------------------------------------------ variables


def code(cell: Unit, name: str) -> Iterator[types.FunctionType]:
    """The functions that reading an attribute of this name may run."""
    value = cell.__dict__.get(name, getattr(type(cell), name, None))
    found = value.fget if isinstance(value, property) else value
    if isinstance(found, types.FunctionType):
        yield found


def is_own_method(cell: Unit, name: str) -> bool:
    """Whether it is a method of one of Linnet's own units."""
    method = name not in cell.__dict__ and isinstance(getattr(type(cell), name), types.FunctionType)
    return method and type(cell).__module__.startswith("linnet.")


def is_of_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in LIBRARIES


def global_variables(functions: Iterable[types.FunctionType]) -> Iterator[tuple[dict[str, Any], str]]:
    """The namespaces and names of the global variables that these functions, and those they call, read."""
    waiting, visited = list(functions), set()
    while waiting:
        function = waiting.pop()
        if function in visited or is_of_library(function):
            continue
        visited.add(function)
        for space, name in names_in(function):
            value = space[name]
            if isinstance(value, types.FunctionType):
                waiting.append(value)
            elif is_data(value):
                yield space, name


def names_in(function: types.FunctionType) -> Iterator[tuple[dict[str, Any], str]]:
    """Global names of a function, and names in the modules that it names: `config.SCALE`."""
    space, names = function.__globals__, function.__code__.co_names
    for name in names:
        if name in space:
            yield space, name
            module = space[name]
            if isinstance(module, types.ModuleType) and module.__name__.split(".")[0] not in LIBRARIES:
                yield from ((module.__dict__, each) for each in names if each in module.__dict__)


def is_data(value: Any) -> bool:
    """A value that can be described and is neither code nor a module."""
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, nn.Module)):
        return False
    return find_opaque(described(value)) is None
