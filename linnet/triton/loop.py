"""What both kernels share: operands with their strides, the signature, loads and stores.

All offsets have 64 bits, and each operand has its own strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from linnet.program.plan import Plan, Product
from linnet.program.trace import Pointwise, Traced
from linnet.triton.step import SCALARS, Names, Writer, head, step_function

FLAGS = ("mask", "resets")
# Settings of all kernels: the dtype of arithmetic, the channels of a program, the steps whose loads overlap.
SETTINGS = ("REAL", "BLOCK", "STAGES")
DIMENSIONS = {"t": "time", "b": "row", "c": "channel"}


class TensorArgument(NamedTuple):
    """An operand of a kernel, which is passed with its strides.

    key    its name on the host
    name   its name in the source
    dims   those of t, b and c (time, sequence, channel) along which it has a stride
    """

    key: str
    name: str
    dims: str

    @property
    def with_strides(self) -> list[str]:
        return [self.name, *self.strides]

    @property
    def strides(self) -> list[str]:
        return [self.stride(dim) for dim in self.dims]

    def stride(self, dim: str) -> str:
        return f"{self.name}_{DIMENSIONS[dim]}"


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel depends on except dtypes, which its pointers have."""

    traced: Traced
    extras: tuple[str, ...]
    products: tuple[Product, ...]
    wanted: tuple[str, ...] = ()  # the inputs and weights whose gradients are needed

    @classmethod
    def of(cls, plan: Plan, wanted: Sequence[str] = ()) -> Recipe:
        return cls(plan.traced, plan.extras, plan.products, tuple(wanted))

    @cached_property
    def projected(self) -> tuple[str, ...]:
        """The inputs that are parts of one projection."""
        parts = {part for product in self.products for part in product.parts}
        return tuple(name for name in self.traced.inputs if name not in parts and name not in self.extras)


class Emitted(NamedTuple):
    """The source of a kernel, its name, and its operands in order."""

    source: str
    name: str
    tensors: tuple[TensorArgument, ...]


class Kernel:
    """The loop over time around a traced step, for one sequence and a block of its channels."""

    name: str
    options: tuple[str, ...] = ()  # in addition to SETTINGS

    def __init__(self, recipe: Recipe):
        self.recipe, self.traced = recipe, recipe.traced
        self.names, self.write = Names(), Writer()
        self.tensors: dict[str, TensorArgument] = {}
        # The names in the source of the values that a step reads and computes.
        self.values: dict[str, str] = {}

    def emit(self) -> Emitted:
        self.operands()
        self.signature(self.name, self.arguments(), SCALARS, self.options)
        with self.write.indented():
            self.body()
        if not self.recipe.products:
            self.both()
        step = step_function(f"{self.name}_step", self.graph)
        source = "\n".join([*head(self.graph), "", "", *step, "", "", *self.write.lines, ""])
        return Emitted(source, self.name, tuple(self.tensors.values()))

    def arguments(self, way: str = "") -> list[list[str]]:
        """Each operand with its strides; `way` is appended to their names."""
        return [[f"{name}{way}" for name in tensor.with_strides] for tensor in self.tensors.values()]

    def signature(
        self, name: str, groups: Sequence[Sequence[str]], scalars: Sequence[str], options: Sequence[str]
    ) -> None:
        """Write the head of a kernel, with one line for each operand."""
        # Triton must not compile again when a number that changes between calls is 1 or a multiple of 16.
        changing = ", ".join(f'"{scalar}"' for scalar in scalars if scalar != "size")
        self.write(f"@triton.jit(do_not_specialize=[{changing}])")
        with self.write.block(f"def {name}(", "):"):
            for pointer, *strides in groups:
                self.write(" ".join([f"{pointer},", *map(stride_argument, strides)]))
            self.write(" ".join(f"{scalar}: tl.int64," for scalar in scalars))
            self.write(" ".join(f"{option}: tl.constexpr," for option in (*options, *SETTINGS)))

    def both(self) -> None:
        """Write the kernel for both directions, with two sets of operands: forward, then backward in time."""
        groups = [*self.arguments("_ahead"), *self.arguments("_back")]
        options = [option for option in self.options if option != "REVERSE"]
        self.write.lines += ["", ""]
        self.signature(f"{self.name}_both", groups, ("steps", "size"), options)
        with self.write.indented():
            with self.write.block("if tl.program_id(1) == 0:"):
                self.call("_ahead", reverse=False)
            with self.write.block("else:"):
                self.call("_back", reverse=True)

    def call(self, way: str, reverse: bool) -> None:
        """Call the kernel for one direction, with the operands whose names end in `way`."""
        first = "0" if reverse == (self.name == "backward") else "steps - 1"
        settings = [str(reverse) if name == "REVERSE" else name for name in (*self.options, *SETTINGS)]
        with self.write.block(f"{self.name}(", ")"):
            for group in self.arguments(way):
                self.write(f"{', '.join(group)},")
            self.write(f"tl.cast({first}, tl.int64), steps, size,")
            self.write(f"{', '.join(settings)},")

    def add_tensor(self, key: str, wish: str, dims: str) -> None:
        name = self.names(wish)
        while not self.names.taken.isdisjoint(TensorArgument(key, name, dims).strides):
            name = self.names(f"{name}_")
        self.tensors[key] = TensorArgument(key, name, dims)
        self.names.taken |= set(self.tensors[key].strides)

    def read_operands(self) -> None:
        """Add the operands that both kernels read, if the graph uses them."""
        if any(name in self.used for name in self.recipe.projected):
            self.add_tensor("joint", "joint", "tbc")
        for name in self.recipe.extras:
            if name in self.used:
                self.add_tensor(f"extra.{name}", f"extra_{name}", "tbc")
        for i, product in enumerate(self.recipe.products):
            if any(part in self.used for part in product.parts):
                self.add_tensor(f"product.{i}", f"product_{i}", "tbc")
        for name in self.traced.weights:
            if name in self.used:
                self.add_tensor(f"weight.{name}", f"weight_{name}", "c")

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

    def open(self) -> None:
        """Compute the sequence and the channels of this program, and the address of each operand."""
        write = self.write
        write("blocks = tl.cdiv(size, BLOCK)")
        write("row = tl.program_id(0) // blocks")
        write("channels = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)")
        write("inside = channels < size")
        for tensor in self.tensors.values():
            if tensor.key not in FLAGS:
                self.add_offsets(tensor)
        for name in self.traced.weights:
            if name in self.used:
                self.load(self.values[name], f"weight.{name}")

    def add_offsets(self, tensor: TensorArgument) -> None:
        ways = [("b", "row"), ("c", "channels")]
        along = [f"{index} * {tensor.stride(dim)}" for dim, index in ways if dim in tensor.dims]
        self.write(f"{tensor.name} += {' + '.join(along)}")

    def load(self, value: str, key: str, t: str = "", part: int = 0) -> None:
        self.write(f"{value} = tl.load({self.at(key, t, part)}, mask=inside, other=0.0).to(REAL)")

    def store(self, key: str, value: str, t: str = "", part: int = 0) -> None:
        self.write(f"tl.store({self.at(key, t, part)}, {value}, mask=inside)")

    def at(self, key: str, t: str, part: int) -> str:
        """The address of an operand at time t; `part` is its index in a joint tensor."""
        tensor = self.tensors[key]
        terms = [tensor.name]
        terms += [f"{t} * {tensor.stride('t')}"] if t else []
        terms += [f"{part} * size * {tensor.stride('c')}"] if part else []
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

    def apply_resets(self, names: Sequence[str]) -> None:
        """At a reset, set states and their products to zeros."""
        with self.write.block("if resets is not None:"):
            self.write("is_reset = tl.load(resets + t * resets_time + row * resets_row)")
            for name in names:
                self.write(f"{name} = tl.where(is_reset, 0.0, {name})")

    def product_parts(self) -> list[str]:
        parts = [part for product in self.recipe.products for part in product.parts]
        return [self.values[part] for part in parts if part in self.used]

    def run_step(self, results: Sequence[str]) -> None:
        arguments = ", ".join(self.values[name] for name in self.graph.inputs)
        self.write(f"{', '.join(results)} = {self.name}_step({arguments})")


def stride_argument(name: str) -> str:
    """A stride of 64 bits; that of channels is left to Triton, which uses vector loads if it is 1."""
    return f"{name}," if f"_{DIMENSIONS['c']}" in name else f"{name}: tl.int64,"
