"""Triton source for a traced step: one kernel forward and one backward, for any unit.

A program takes one sequence of the batch and a block of its channels along time, with the state in
registers: each channel of each sequence is independent, so programs share nothing and need no order.
The equations stand apart, in a function of their own that is written from the traced lines; around it
is the loop that brings them their numbers.

    forward     reads the inputs; writes the output, and the states of all steps or the last alone
    backward    reads the inputs and the states, recomputes the gates, writes the inputs' gradients;
                those of weights are summed over time in registers, one sum for each sequence
    ..._both    both directions of a layer in one launch; the second index of a program is its direction

Units with a recurrent matrix run these kernels for one step at a time, between the products.

All offsets are of 64 bits, and each operand has its own strides. Nothing here needs triton: what is made
is text.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from linnet.fuse.plan import Plan, Product
from linnet.fuse.trace import Line, Operand, Pointwise, Traced

# Of the operations that a trace knows, how each is written; what is not Triton's own is in triton_math.
ARITHMETIC = {
    **{"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}"},
    **{"gt": "{} > {}", "ge": "{} >= {}", "lt": "{} < {}", "le": "{} <= {}", "eq": "{} == {}", "ne": "{} != {}"},
    **{"logical_and": "{} & {}", "logical_or": "{} | {}", "logical_not": "~{}", "neg": "-{}"},
}
FUNCTIONS = {
    **{op: f"tl.{op}({{}})" for op in ("abs", "exp", "log", "sqrt", "sin", "cos", "floor", "sigmoid")},
    **{op: f"{op}({{}})" for op in ("sign", "tanh", "expm1", "log1p")},
    # As torch.maximum: NaN if either is NaN.
    "maximum": "tl.maximum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({}, {}, propagate_nan=tl.PropagateNan.ALL)",
    "pow": "power({}, {})",
    "where": "tl.where({}, {}, {})",
}
OWN_FUNCTIONS = {"expm1": "expm1", "log1p": "log1p", "pow": "power", "sign": "sign", "tanh": "tanh"}
SCALARS = ("first", "steps", "size")
# What a kernel calls its own; numbers of a unit that have such a name get another.
RESERVED = frozenset(
    (*keyword.kwlist, *OWN_FUNCTIONS.values(), *SCALARS, "tl", "triton", "row", "channels", "inside", "blocks")
    + ("number", "t", "real", "anew", "before", "after", "mask", "resets")
    + ("forward", "forward_step", "forward_both", "backward", "backward_step", "backward_both")
)


DIMENSIONS = {"t": "time", "b": "row", "c": "channel"}


class Place(NamedTuple):
    """An operand: what the host calls it, its argument in the source, and the strides it comes with.

    dims: of t, b and c, those along which it has a stride (time, sequence, channel).
    """

    key: str
    argument: str
    dims: str

    @property
    def arguments(self) -> list[str]:
        return [self.argument, *self.strides]

    @property
    def strides(self) -> list[str]:
        return [self.stride(dim) for dim in self.dims]

    def stride(self, dim: str) -> str:
        return f"{self.argument}_{DIMENSIONS[dim]}"


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel depends on, but for dtypes: pointers bring those along."""

    traced: Traced
    extras: tuple[str, ...]
    products: tuple[Product, ...]
    wanted: tuple[str, ...] = ()  # the inputs and weights whose gradients are asked for

    @classmethod
    def of(cls, plan: Plan, wanted: Sequence[str] = ()) -> Recipe:
        return cls(plan.traced, plan.extras, plan.products, tuple(wanted))

    @cached_property
    def projected(self) -> tuple[str, ...]:
        """The inputs that stand side by side in one projection."""
        parts = {part for product in self.products for part in product.parts}
        return tuple(name for name in self.traced.inputs if name not in parts and name not in self.extras)


class Emitted(NamedTuple):
    """A kernel's source, its name, and its operands in their order."""

    source: str
    name: str
    places: tuple[Place, ...]


def forward_source(recipe: Recipe) -> Emitted:
    return Forward(recipe).emit()


def backward_source(recipe: Recipe) -> Emitted:
    return Backward(recipe).emit()


class Names:
    """Names for a piece of source: each as wished for, or with a _ after it where that is taken."""

    def __init__(self) -> None:
        self.taken = set(RESERVED)

    def __call__(self, wish: str) -> str:
        name = re.sub(r"\W", "_", wish, flags=re.ASCII)
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


class Writer:
    """Lines of source, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line if line else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self(head)
        self.depth += 1
        yield
        self.depth -= 1


# ------------------------------------------------------------------------------- the equations


def pruned(graph: Pointwise, outputs: Sequence[str]) -> Pointwise:
    """Of a graph, what some of its outputs need: those inputs, those lines."""
    values = dict(graph.outputs)
    needed: set[Operand] = {values[name] for name in outputs}
    lines: list[Line] = []
    for line in reversed(graph.lines):
        if line.result in needed:
            lines.append(line)
            needed.update(line.operands)
    inputs = tuple(name for name in graph.inputs if name in needed)
    return Pointwise(inputs, tuple(reversed(lines)), tuple((name, values[name]) for name in outputs))


def head(graph: Pointwise) -> list[str]:
    """What the source imports."""
    ops = {line.op for line in graph.lines}
    own = ", ".join(name for op, name in OWN_FUNCTIONS.items() if op in ops)
    lines = ["import triton", "import triton.language as tl"]
    return [*lines, "", f"from linnet.fuse.triton_math import {own}"] if own else lines


def step_function(name: str, graph: Pointwise) -> list[str]:
    """The equations as a function of numbers; `inputs` of the graph are its arguments."""
    called = Names()
    names = {operand: called(operand) for operand in graph.inputs}
    write = Writer()
    write("@triton.jit")
    with write.block(f"def {name}({', '.join(names.values())}):"):
        for line in graph.lines:
            text = formula(line, names)
            names[line.result] = called(line.result)
            write(f"{names[line.result]} = {text}")
        write(f"return {', '.join(written(value, names) for _, value in graph.outputs)}")
    return write.lines


def formula(line: Line, names: dict[str, str]) -> str:
    if line.op == "pow" and line.operands[1] in POWERS:
        base = written(line.operands[0], names)
        return POWERS[line.operands[1]].format(base=base)
    if line.op not in ARITHMETIC:
        return FUNCTIONS[line.op].format(*(written(operand, names) for operand in line.operands))
    # Between a number that is written out and one that is computed, the latter says of which kind both are.
    plain = any(isinstance(operand, str) for operand in line.operands)
    return ARITHMETIC[line.op].format(
        *(literal(o) if plain and not isinstance(o, str) else written(o, names) for o in line.operands)
    )


# Powers of small whole numbers are products, which are right for bases below 0 as well.
POWERS: dict[Operand, str] = {
    2.0: "{base} * {base}",
    3.0: "{base} * {base} * {base}",
    -1.0: "1.0 / {base}",
    0.5: "tl.sqrt({base})",
}


def written(operand: Operand, names: dict[str, str]) -> str:
    """A name; or a number as a block of numbers like the first argument, whose kind it takes exactly."""
    if isinstance(operand, str):
        return names[operand]
    like = next(iter(names.values()))
    return f"tl.full({like}.shape, {literal(operand)}, {like}.dtype)"


def literal(number: float) -> str:
    return repr(number) if math.isfinite(number) else f'float("{number}")'


# ------------------------------------------------------------------------------- the loop around


class Kernel:
    """A traced step along time, in a program for one sequence and a block of its channels."""

    name: str
    options: tuple[str, ...] = ()  # beside those that all kernels have

    def __init__(self, recipe: Recipe):
        self.recipe, self.traced = recipe, recipe.traced
        self.names, self.write = Names(), Writer()
        self.places: dict[str, Place] = {}
        # What the source calls the numbers that a step reads and makes.
        self.values: dict[str, str] = {}

    def emit(self) -> Emitted:
        self.operands()
        write = self.write
        self.signature(self.name, [place.arguments for place in self.places.values()])
        with write.block(""):
            write.lines.pop()
            self.body()
        if not self.recipe.products:
            self.both()
        source = "\n".join([*head(self.graph), "", "", *self.step(), "", "", *write.lines, ""])
        return Emitted(source, self.name, tuple(self.places.values()))

    def signature(self, name: str, groups: Sequence[Sequence[str]], scalars=SCALARS, options=None) -> None:
        """One line for each operand: where it lies and its strides."""
        write, options = self.write, (*(self.options if options is None else options), *COMMON)
        write('@triton.jit(do_not_specialize=["first", "steps"])' if "first" in scalars else DECORATOR)
        with write.block(f"def {name}("):
            for pointer, *strides in groups:
                write(" ".join([f"{pointer},", *(f"{stride}: tl.int64," for stride in strides)]))
            write(" ".join(f"{name}: tl.int64," for name in scalars))
            write(" ".join(f"{name}: tl.constexpr," for name in options))
        write("):")

    def both(self) -> None:
        """Two sets of operands: the first goes along time, the second against it."""
        write = self.write
        write("")
        write("")
        groups = [place.arguments for place in self.places.values()]
        doubled = [[f"{name}_{way}" for name in group] for way in ("ahead", "back") for group in groups]
        options = tuple(option for option in self.options if option != "REVERSE")
        self.signature(f"{self.name}_both", doubled, ("steps", "size"), options)
        starts = ("0", "steps - 1") if self.name == "forward" else ("steps - 1", "0")
        with write.block(""):
            write.lines.pop()
            for way, first, reverse, head in (
                ("ahead", starts[0], "False", "if tl.program_id(1) == 0:"),
                ("back", starts[1], "True", "else:"),
            ):
                with write.block(head), write.block(f"{self.name}("):
                    for group in groups:
                        write(" ".join(f"{name}_{way}," for name in group))
                    write(f"tl.cast({first}, tl.int64), steps, size,")
                    settings = [reverse if name == "REVERSE" else name for name in (*self.options, *COMMON)]
                    write(f"{', '.join(settings)},")
                    write.depth -= 1
                    write(")")
                    write.depth += 1

    def place(self, key: str, wish: str, dims: str) -> None:
        place = self.places[key] = Place(key, self.names(wish), dims)
        self.names.taken |= set(place.strides)

    def read_operands(self) -> None:
        """What both kernels read, as far as they need it."""
        if any(name in self.used for name in self.recipe.projected):
            self.place("joint", "joint", "tbc")
        for name in self.recipe.extras:
            if name in self.used:
                self.place(f"extra.{name}", f"extra_{name}", "tbc")
        for i, product in enumerate(self.recipe.products):
            if any(part in self.used for part in product.parts):
                self.place(f"product.{i}", f"product_{i}", "tbc")
        for name in self.traced.weights:
            if name in self.used:
                self.place(f"weight.{name}", f"weight_{name}", "c")

    def name_values(self, *more: str) -> None:
        for name in (*self.traced.inputs, *self.traced.weights, *self.traced.states, *more):
            self.values[name] = self.names(name)

    @property
    def used(self) -> set[str]:
        return set(self.graph.inputs)

    @cached_property
    def graph(self) -> Pointwise:
        raise NotImplementedError

    def operands(self) -> None:
        raise NotImplementedError

    def body(self) -> None:
        raise NotImplementedError

    def step(self) -> list[str]:
        return step_function(f"{self.name}_step", self.graph)

    def open(self) -> None:
        """Which sequence and which channels; and where this program finds each operand."""
        write = self.write
        write("blocks = tl.cdiv(size, BLOCK)")
        write("row = tl.program_id(0) // blocks")
        write("channels = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)")
        write("inside = channels < size")
        for place in self.places.values():
            if place.key not in FLAGS:
                self.go_there(place)
        for name in self.traced.weights:
            if name in self.used:
                self.load(self.values[name], f"weight.{name}")

    def go_there(self, place: Place) -> None:
        ways = [("b", "row"), ("c", "channels")]
        along = [f"{index} * {place.stride(dim)}" for dim, index in ways if dim in place.dims]
        self.write(f"{place.argument} += {' + '.join(along)}")

    def load(self, value: str, key: str, t: str = "", part: int = 0) -> None:
        self.write(f"{value} = tl.load({self.at(key, t, part)}, mask=inside, other=0.0).to(REAL)")

    def store(self, key: str, value: str, t: str = "", part: int = 0) -> None:
        self.write(f"tl.store({self.at(key, t, part)}, {value}, mask=inside)")

    def at(self, key: str, t: str, part: int) -> str:
        """Where an operand lies at time t; `part` counts those that stand side by side."""
        place = self.places[key]
        terms = [place.argument]
        terms += [f"{t} * {place.stride('t')}"] if t else []
        terms += [f"{part} * size * {place.stride('c')}"] if part else []
        return " + ".join(terms)

    def load_inputs(self) -> None:
        for column, name in enumerate(self.recipe.projected):
            if name in self.used:
                self.load(self.values[name], "joint", "t", column)
        for name in self.recipe.extras:
            if name in self.used:
                self.load(self.values[name], f"extra.{name}", "t")
        for i, product in enumerate(self.recipe.products):
            for column, part in enumerate(product.parts):
                if part in self.used:
                    self.load(self.values[part], f"product.{i}", "t", column)

    def start_anew(self, names: Sequence[str]) -> None:
        """Where a sequence starts anew, states are zeros, and so are their products."""
        with self.write.block("if resets is not None:"):
            self.write("anew = tl.load(resets + t * resets_time + row * resets_row)")
            for name in names:
                self.write(f"{name} = tl.where(anew, 0.0, {name})")

    def product_parts(self) -> list[str]:
        parts = [part for product in self.recipe.products for part in product.parts]
        return [self.values[part] for part in parts if part in self.used]

    def run_step(self, results: Sequence[str]) -> None:
        arguments = ", ".join(self.values[name] for name in self.graph.inputs)
        self.write(f"{', '.join(results)} = {self.name}_step({arguments})")


COMMON = ("REAL", "BLOCK", "STAGES")
FLAGS = ("mask", "resets")
DECORATOR = '@triton.jit(do_not_specialize=["steps"])'


class Forward(Kernel):
    """`states` of all steps, [T + 1, B, H] with KEEP: step t reads slot t and makes slot t + 1 (REVERSE: the
    other way round); without, the last state alone."""

    name = "forward"
    options = ("REVERSE", "KEEP")

    @cached_property
    def graph(self) -> Pointwise:
        return pruned(self.traced.forward, [name for name, _ in self.traced.forward.outputs])

    def operands(self) -> None:
        self.read_operands()
        for name in self.traced.states:
            self.place(f"start.{name}", f"start_{name}", "bc")
            self.place(f"states.{name}", f"states_{name}", "tbc")
        self.place("y", "y", "tbc")
        for flag in FLAGS:
            self.places[flag] = Place(flag, flag, "tb")
        self.name_values()

    def go_there(self, place: Place) -> None:
        if place.key != "y":
            return super().go_there(place)
        # The output may be a state, which is kept anyway.
        with self.write.block(f"if {place.argument} is not None:"):
            return super().go_there(place)

    def body(self) -> None:
        write, states = self.write, self.traced.states
        held = [self.values[name] for name in states]
        self.open()
        for name in states:
            self.load(self.values[name], f"start.{name}")
        with write.block("if KEEP:"):
            write("before = first + 1 if REVERSE else first")
            for name in states:
                self.store(f"states.{name}", self.values[name], "before")
        with write.block("for number in tl.range(0, steps, num_stages=STAGES):"):
            write("t = first - number if REVERSE else first + number")
            self.load_inputs()
            self.start_anew([*held, *self.product_parts()])
            output, new = self.names("output"), [self.names(f"new_{name}") for name in states]
            self.run_step([output, *new])
            with write.block("if mask is not None:"):
                write("real = tl.load(mask + t * mask_time + row * mask_row)")
                write(f"{output} = tl.where(real, {output}, 0.0)")
                for name, value in zip(held, new, strict=True):
                    write(f"{value} = tl.where(real, {value}, {name})")
            for name, value in zip(held, new, strict=True):
                write(f"{name} = {value}")
            self.keep(output)
        with write.block("if not KEEP:"):
            for name in states:
                self.store(f"states.{name}", self.values[name])

    def keep(self, output: str) -> None:
        write = self.write
        with write.block("if KEEP:"):
            write("after = t if REVERSE else t + 1")
            for name in self.traced.states:
                self.store(f"states.{name}", self.values[name], "after")
        with write.block(f"if {self.places['y'].argument} is not None:"):
            self.store("y", output, "t")


class Backward(Kernel):
    """`above` are the gradients of the states after the last step taken here, `carry` those before the first;
    `since` what the sums of weights' gradients start from (None: nothing)."""

    name = "backward"
    options = ("REVERSE",)

    @cached_property
    def graph(self) -> Pointwise:
        return pruned(self.traced.backward, [f"d.{name}" for name in self.results])

    @cached_property
    def results(self) -> tuple[str, ...]:
        return (*self.recipe.wanted, *self.traced.states)

    def wants(self, names: Sequence[str]) -> bool:
        return any(name in self.recipe.wanted for name in names)

    def operands(self) -> None:
        self.read_operands()
        for name in self.traced.states:
            if name in self.used:
                self.place(f"states.{name}", f"states_{name}", "tbc")
            self.place(f"above.{name}", f"above_{name}", "bc")
            self.place(f"carry.{name}", f"carry_{name}", "bc")
        self.place("dy", "dy", "tbc")
        self.gradient_operands()
        for flag in FLAGS:
            self.places[flag] = Place(flag, flag, "tb")
        self.name_values(*(f"d_new_{name}" for name in self.traced.states))
        self.values |= {f"dnew.{name}": self.values[f"d_new_{name}"] for name in self.traced.states}
        self.values["dy"] = self.names("d_output")
        self.values |= {f"d.{name}": self.names(f"d_{name}") for name in self.results}
        self.values |= {f"sum.{name}": self.names(f"sum_of_{name}") for name in self.summed}

    def gradient_operands(self) -> None:
        if self.wants(self.recipe.projected):
            self.place("d.joint", "d_joint", "tbc")
        for name in self.recipe.extras:
            if name in self.recipe.wanted:
                self.place(f"d.extra.{name}", f"d_extra_{name}", "tbc")
        for i, product in enumerate(self.recipe.products):
            if self.wants(product.parts):
                self.place(f"d.product.{i}", f"d_product_{i}", "tbc")
        for name in self.summed:
            self.place(f"since.{name}", f"since_{name}", "bc")
            self.place(f"sum.{name}", f"sum_{name}", "bc")

    @property
    def summed(self) -> list[str]:
        return [name for name in self.recipe.wanted if name in self.traced.weights]

    def body(self) -> None:
        write, states = self.write, self.traced.states
        self.open()
        for name in states:
            self.load(self.values[f"dnew.{name}"], f"above.{name}")
        for name in self.summed:
            self.load(self.values[f"sum.{name}"], f"since.{name}")
        with write.block("for number in tl.range(0, steps, num_stages=STAGES):"):
            write("t = first + number if REVERSE else first - number")
            self.load_inputs()
            write("before = t + 1 if REVERSE else t")
            for name in states:
                if name in self.used:
                    self.load(self.values[name], f"states.{name}", "before")
            self.load(self.values["dy"], "dy", "t")
            self.start_anew(
                [*(self.values[name] for name in states if name in self.used), *self.product_parts()]
            )
            self.run_step([self.values[f"d.{name}"] for name in self.results])
            self.stop_gradients()
            self.store_gradients()
            for name in states:
                write(f"{self.values[f'dnew.{name}']} = {self.values[f'd.{name}']}")
        for name in states:
            self.store(f"carry.{name}", self.values[f"dnew.{name}"])
        for name in self.summed:
            self.store(f"sum.{name}", self.values[f"sum.{name}"])

    def stop_gradients(self) -> None:
        """At a padded step, which hands on what comes from above; and beyond a start anew, also by products."""
        write, values = self.write, self.values
        with write.block("if mask is not None:"):
            write("real = tl.load(mask + t * mask_time + row * mask_row)")
            for name in self.recipe.wanted:
                gradient = values[f"d.{name}"]
                write(f"{gradient} = tl.where(real, {gradient}, 0.0)")
            for name in self.traced.states:
                gradient = values[f"d.{name}"]
                write(f"{gradient} = tl.where(real, {gradient}, {values[f'dnew.{name}']})")
        with write.block("if resets is not None:"):
            made = [part for product in self.recipe.products for part in product.parts]
            for name in self.results:
                if name in made or name in self.traced.states:
                    gradient = values[f"d.{name}"]
                    write(f"{gradient} = tl.where(anew, 0.0, {gradient})")

    def store_gradients(self) -> None:
        groups = [("d.joint", self.recipe.projected)]
        groups += [(f"d.extra.{name}", (name,)) for name in self.recipe.extras]
        groups += [(f"d.product.{i}", product.parts) for i, product in enumerate(self.recipe.products)]
        for key, names in groups:
            for column, name in enumerate(names):
                if name in self.recipe.wanted:
                    self.store(key, self.values[f"d.{name}"], "t", column)
        for name in self.summed:
            self.write(f"{self.values[f'sum.{name}']} += {self.values[f'd.{name}']}")
