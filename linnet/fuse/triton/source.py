"""Triton source for a traced step: one kernel forward and one backward, for any unit.

A program runs one sequence of the batch and a block of its channels over time, with the state in
registers: the channels of all sequences are independent, so programs share nothing and need no order.
The equations are in a separate function, which is generated from the traced lines; the kernel is the loop
around it that loads and stores the values.

    forward     reads the inputs; writes the output, and the states of all steps or only the last one
    backward    reads the inputs and the states, recomputes the gates, writes the gradients of the inputs;
                those of weights are summed over time in registers, one sum for each sequence
    ..._both    both directions of a layer in one launch; the second index of a program is its direction

Units with a recurrent matrix run these kernels for one step at a time, between the products.

All offsets have 64 bits, and each operand has its own strides. This file does not need triton: it only
generates text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from linnet.fuse.plan import Plan, Product
from linnet.fuse.trace import Pointwise, Traced
from linnet.fuse.triton.step import SCALARS, Names, Writer, head, pruned, step_function

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


def forward_source(recipe: Recipe) -> Emitted:
    return Forward(recipe).emit()


def backward_source(recipe: Recipe) -> Emitted:
    return Backward(recipe).emit()


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


class Forward(Kernel):
    """With KEEP, `states` are those of all steps, [T + 1, B, H]: step t reads slot t and writes slot t + 1
    (with REVERSE vice versa). Without it, `states` is the last state."""

    name = "forward"
    options = ("REVERSE", "KEEP")

    @cached_property
    def graph(self) -> Pointwise:
        return pruned(self.traced.forward, [name for name, _ in self.traced.forward.outputs])

    def operands(self) -> None:
        self.read_operands()
        for name in self.traced.states:
            self.add_tensor(f"start.{name}", f"start_{name}", "bc")
            self.add_tensor(f"states.{name}", f"states_{name}", "tbc")
        self.add_tensor("y", "y", "tbc")
        for flag in FLAGS:
            self.tensors[flag] = TensorArgument(flag, flag, "tb")
        self.name_values()

    def add_offsets(self, tensor: TensorArgument) -> None:
        if tensor.key != "y":
            return super().add_offsets(tensor)
        # The output may be a state, which is stored anyway.
        with self.write.block(f"if {tensor.name} is not None:"):
            return super().add_offsets(tensor)

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
            self.apply_resets([*held, *self.product_parts()])
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
        with write.block(f"if {self.tensors['y'].name} is not None:"):
            self.store("y", output, "t")


class Backward(Kernel):
    """`above` are the gradients of the states after the last step of this launch, `carry` those before its
    first; the sums of the gradients of weights start from `initial_sum`."""

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
                self.add_tensor(f"states.{name}", f"states_{name}", "tbc")
            self.add_tensor(f"above.{name}", f"above_{name}", "bc")
            self.add_tensor(f"carry.{name}", f"carry_{name}", "bc")
        self.add_tensor("dy", "dy", "tbc")
        self.gradient_operands()
        for flag in FLAGS:
            self.tensors[flag] = TensorArgument(flag, flag, "tb")
        self.name_values(*(f"d_new_{name}" for name in self.traced.states))
        self.values |= {f"dnew.{name}": self.values[f"d_new_{name}"] for name in self.traced.states}
        self.values["dy"] = self.names("d_output")
        self.values |= {f"d.{name}": self.names(f"d_{name}") for name in self.results}
        self.values |= {f"sum.{name}": self.names(f"sum_of_{name}") for name in self.summed}

    def gradient_operands(self) -> None:
        if self.wants(self.recipe.projected):
            self.add_tensor("d.joint", "d_joint", "tbc")
        for name in self.recipe.extras:
            if name in self.recipe.wanted:
                self.add_tensor(f"d.extra.{name}", f"d_extra_{name}", "tbc")
        for i, product in enumerate(self.recipe.products):
            if self.wants(product.parts):
                self.add_tensor(f"d.product.{i}", f"d_product_{i}", "tbc")
        for name in self.summed:
            self.add_tensor(f"initial_sum.{name}", f"initial_sum_{name}", "bc")
            self.add_tensor(f"sum.{name}", f"sum_{name}", "bc")

    @property
    def summed(self) -> list[str]:
        return [name for name in self.recipe.wanted if name in self.traced.weights]

    def body(self) -> None:
        write, states = self.write, self.traced.states
        self.open()
        for name in states:
            self.load(self.values[f"dnew.{name}"], f"above.{name}")
        for name in self.summed:
            self.load(self.values[f"sum.{name}"], f"initial_sum.{name}")
        with write.block("for number in tl.range(0, steps, num_stages=STAGES):"):
            write("t = first + number if REVERSE else first - number")
            self.load_inputs()
            write("before = t + 1 if REVERSE else t")
            for name in states:
                if name in self.used:
                    self.load(self.values[name], f"states.{name}", "before")
            self.load(self.values["dy"], "dy", "t")
            self.apply_resets(
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
        """Set gradients to 0 at a padded step, which passes on those of the states, and before a reset."""
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
                    write(f"{gradient} = tl.where(is_reset, 0.0, {gradient})")

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
