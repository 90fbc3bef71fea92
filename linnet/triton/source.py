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

This file does not need triton: it only generates text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from linnet.program.trace import Pointwise
from linnet.triton.loop import FLAGS, Emitted, Kernel, Recipe, TensorArgument
from linnet.triton.step import pruned


def forward_source(recipe: Recipe) -> Emitted:
    return Forward(recipe).emit()


def backward_source(recipe: Recipe) -> Emitted:
    return Backward(recipe).emit()


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
