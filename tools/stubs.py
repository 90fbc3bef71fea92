"""Write linnet/units/__init__.pyi: the units as type checkers and editors see them.

python -m tools.stubs
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from linnet.recurrent.cell import Cell
from linnet.recurrent.recurrent import Recurrent
from linnet.units import UNITS
from tools.unit_types import Kind, Overload

STUB = Path(__file__).parents[1] / "linnet" / "units" / "__init__.pyi"
WIDTH = 110
# Arguments of calls that packed sequences do not have, those that hold sequences, and those that hold states.
OF_PADDED = ("lengths", "mask", "resets", "reset_state")
SEQUENCES = ("x", "input", "timespans")
STATES = ("state", "hx", "reset_state")

HEAD = '''"""The units as type checkers and editors see them.

Written by `python -m tools.stubs`; a test compares it with the units. The subscript of a stack is the type
of its state: linnet.SRU is linnet.SRU[Tensor], and linnet.SRU[tuple[Tensor, Tensor]] with as_lstm=True. That
of a cell is the type of what it returns.
"""

# fmt: off
# ruff: noqa

from collections.abc import Sequence
from typing import Generic, Literal, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.types import Device
from typing_extensions import TypeVar

from linnet.recurrent.cell import Cell
from linnet.recurrent.recurrent import Recurrent
from linnet.units.ltc import Matrix
'''
VARIABLES = """
_State = TypeVar("_State", default=Tensor)
_Given = TypeVar("_Given", default=Tensor)
_Returned = TypeVar("_Returned", default=tuple[Tensor, Tensor])
_ReturnedState = TypeVar("_ReturnedState", default=Tensor)
"""


def text() -> str:
    stacks = [Kind(stack) for stack in UNITS.values()]
    cells = [Kind(stack.cell_class) for stack in UNITS.values()]
    pairs = list(zip(stacks, cells, strict=True))
    names = ", ".join(f'"{each.name}"' for pair in pairs for each in pair)
    listed = textwrap.indent(textwrap.fill(f'"UNITS", {names},', WIDTH - 4), " " * 4)
    head = f"{HEAD}{imports([*stacks, *cells])}\n__all__ = [\n{listed}\n]\n{VARIABLES}"
    classes = [part for stack, cell in pairs for part in (class_of_cell(cell), class_of_stack(stack))]
    parts = [head, "UNITS: dict[str, type[Recurrent]]", shared(), *classes]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def imports(kinds: Sequence[Kind]) -> str:
    """Each stack and cell under a name of its own, and the types of their states."""
    names: dict[str, list[str]] = {}
    states = {state for kind in kinds for state in kind.states - {Tensor, tuple}}
    for state in sorted(states, key=lambda state: state.__name__):
        names.setdefault(state.__module__, []).append(state.__name__)
    for kind in kinds:
        names.setdefault(kind.made.__module__, []).append(f"{kind.name} as _{kind.name}")
    return "".join(f"from {module} import {', '.join(names[module])}\n" for module in sorted(names))


def shared() -> str:
    """The classes that say what calls of stacks and cells take and return."""
    padded = call(Recurrent.forward, "Tensor", (), "tuple[Tensor, _State]", True)
    packed = call(Recurrent.forward, "PackedSequence", OF_PADDED, "tuple[PackedSequence, _State]", True)
    step = call(Cell.forward, "Tensor", ("run_sequence",), "_Returned", False)
    return (
        f"class _Stack(Recurrent, Generic[_State, _Given]):\n{padded}{packed}\n"
        f"class _Cell(Cell, Generic[_Returned, _Given]):\n{step}"
    )


def class_of_stack(kind: Kind) -> str:
    own, *_ = (kind.made.__doc__ or "").partition("\n\n")
    options = inspect.cleandoc(kind.made.cell_class.__doc__ or "")
    documented = textwrap.indent(f'"""{own}\n\n{options}\n"""\n', " " * 4)
    given = " | ".join(["_State", *tuples(kind)]) if kind.is_generic else states_given(kind)
    return class_of(kind, f"_Stack[{'_State' if kind.is_generic else subscript(kind)}, {given}]", documented)


def class_of_cell(kind: Kind) -> str:
    """Its docstring is that of the class in its file, which checkers find there."""
    variable = "_ReturnedState" if subscript(kind) == "Tensor" else "_Returned"
    returned = variable if kind.is_generic else subscript(kind)
    return class_of(kind, f"_Cell[{returned}, {states_given(kind)}]", "")


def subscript(kind: Kind) -> str:
    """The subscript of a unit with the default options."""
    return kind.overloads[0].subscript


def states_given(kind: Kind) -> str:
    return " | ".join([*(["Tensor"] if Tensor in kind.states else []), *tuples(kind)])


def tuples(kind: Kind) -> list[str]:
    """Where a call takes a named tuple, it takes a tuple or a list, too."""
    return ["Sequence[Tensor]"] if kind.states - {Tensor, tuple} else []


def class_of(kind: Kind, base: str, documented: str) -> str:
    methods = []
    for overload in kind.overloads:
        itself = f"self: {kind.name}[{overload.subscript}]" if kind.is_generic else "self"
        texts = [argument(parameter, kind, overload) for parameter in kind.parameters]
        methods.append(method("__init__", itself, kind.parameters, texts, "None", kind.is_generic))
    return f"class {kind.name}({base}, _{kind.name}):\n{documented}{''.join(methods)}"


def argument(parameter: inspect.Parameter, kind: Kind, overload: Overload) -> str:
    annotation, values = parameter.annotation, overload.values.get(parameter.name)
    needed = parameter.default is parameter.empty or (values is not None and parameter.default not in values)
    if values is None and annotation != "bool":
        values = kind.choices.get(parameter.name)
    typed = f"{parameter.name}: {annotation if values is None else literal(values)}"
    return typed if needed else f"{typed} = {parameter.default!r}"


def literal(values: Sequence[object]) -> str:
    named = ", ".join(repr(value) for value in values if value is not None)
    return f"Literal[{named}]{' | None' if None in values else ''}"


def call(
    forward: Callable[..., Any], data: str, without: Sequence[str], returned: str, overloaded: bool
) -> str:
    """`__call__`, with the arguments of `forward` for one kind of data."""
    known = {**dict.fromkeys(SEQUENCES, f"{data} | None"), **dict.fromkeys(STATES, "_Given | None")}
    _, *every = inspect.signature(forward).parameters.values()
    parameters = [p for p in every if p.name not in without]
    texts = [f"{p.name}: {known.get(p.name, p.annotation)} = None" for p in parameters]
    return method("__call__", "self", parameters, texts, returned, overloaded)


def method(
    name: str,
    itself: str,
    parameters: Sequence[inspect.Parameter],
    texts: Sequence[str],
    returned: str,
    overloaded: bool,
) -> str:
    """A method in lines of full length: one line for each argument would be six times as many."""
    by_name = [p.kind is p.KEYWORD_ONLY for p in parameters]
    star = by_name.index(True) if True in by_name else len(texts)
    listed = [itself, *texts[:star], *(["*"] if True in by_name else []), *texts[star:]]
    # Lines break between arguments only.
    joined = " ".join(text.replace(" ", "\0") + "," for text in listed)
    lines = textwrap.wrap(joined, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    filled = textwrap.indent("\n".join(lines).replace("\0", " "), " " * 8)
    decorator = "    @overload\n" if overloaded else ""
    return f"{decorator}    def {name}(\n{filled}\n    ) -> {returned}: ...\n"


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
