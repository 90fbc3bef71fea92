"""What a kernel is compiled from: everything that its code depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from linnet.program.loops import Lowered, lowered_backward, lowered_forward, scratch_size
from linnet.program.phases import phases_of, subject
from linnet.program.plan import Product
from linnet.program.trace import Traced


@dataclass(frozen=True)
class Recipe:
    """Everything a kernel depends on; two equal recipes are the same code."""

    traced: Traced
    products: tuple[Product, ...]
    storage: str  # the dtype of inputs and outputs: float32, float64 or bfloat16
    width: int  # of a vector, in numbers
    wanted: tuple[str, ...] = ()  # the inputs and weights whose gradients are needed
    keeps_output: bool = True  # False: the output is a state, whose sequence is kept anyway
    projected: tuple[str, ...] = ()  # the inputs that the kernel computes itself, in the dtype of arithmetic
    projects: bool = False  # the forward kernel computes those inputs, step by step
    drops: bool = False  # products read the state times a mask, the same at all steps
    unpacked: bool = False  # matrices are not packed; with products, there is only one step
    shared: bool = False  # threads share the channels of each step; see Kernel.emit_shared
    numbers: int = 0  # how many numbers of the step are arguments; see program/pattern.py
    input_heads: int = 1  # those of the matrix by which the kernel projects
    phase: int | None = None  # the only phase that a forward kernel computes, without any product

    @property
    def bits(self) -> int:
        return 64 if self.storage == "float64" else 32

    @property
    def product_parts(self) -> tuple[str, ...]:
        return tuple(name for product in self.products for name in product.parts)

    @property
    def inner_parts(self) -> tuple[str, ...]:
        return tuple(name for product in self.traced.inner for name in product.parts)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The parts and the heads of each matrix."""
        inner = [(len(product.parts), product.heads) for product in self.traced.inner]
        return [(len(product.parts), product.heads) for product in self.products] + inner

    @property
    def inner_names(self) -> tuple[str, ...]:
        """What inner products read."""
        return tuple(f"inner.{i}" for i in range(len(self.traced.inner)))

    def lowered(self, name: str) -> Lowered:
        """The loops of the "forward" or "backward" kernel of a step that is not elementwise."""
        return (
            lowered_forward(self.traced) if name == "forward" else lowered_backward(self.traced, self.wanted)
        )

    def has_scratch(self, name: str) -> bool:
        """Whether a kernel needs memory of its own."""
        return bool(self.traced.sizes) and scratch_size(self.lowered(name)) > 0

    def scratch_operands(self, name: str) -> tuple[str, ...]:
        return ("scratch",) if self.has_scratch(name) else ()

    def size_of(self, output: str) -> int:
        """The number of channels of an output of a step that is not elementwise."""
        return dict(self.traced.sizes)[subject(output)]

    @property
    def group_names(self) -> tuple[str, ...]:
        """The sizes of the groups, if there can be different ones."""
        if self.traced.sizes:
            return ()
        groups = set(phases_of(self.traced).groups.values()) if self.traced.inner else ()
        return tuple(f"group.{i}" for i in groups)

    def matrix_operands(self, kinds: Sequence[str], of_products: Sequence[str]) -> list[str]:
        """For each matrix its operands: of `kinds`, and for products with states also `of_products`."""
        count = len(self.products)
        names = [f"{kind}.{i}" for i in range(count) for kind in (*kinds, *of_products)]
        return names + [f"{kind}.{count + i}" for i in range(len(self.traced.inner)) for kind in kinds]

    def forward_operands(self) -> tuple[str, ...]:
        states = [f"state.{name}" for name in self.traced.states]
        output = ("y",) if self.keeps_output else ()
        drops = ("drop_mask", "visible") if self.drops else ()
        matrices = self.matrix_operands(("matrix", "product"), drops) if self.phase is None else []
        source = ("x", "matrix.input") if self.projects else ()
        claims = ("claims",) if self.shared else ()
        known = (*self.traced.inputs, *self.traced.weights, *states, "zeros", *self.number_operands)
        scratch = self.scratch_operands("forward")
        return (*known, *output, *matrices, *self.inner_names, *self.group_names, *source, *claims, *scratch)

    def backward_operands(self) -> tuple[str, ...]:
        states = [f"state.{name}" for name in self.traced.states]
        carries = [f"carry.{name}" for name in self.traced.states]
        gradients = [f"d.{name}" for name in self.wanted]
        drops = ("drop_mask",) if self.drops else ()
        matrices = self.matrix_operands(("matrix", "dproduct", "state_gradient"), drops)
        known = (*self.traced.inputs, *self.traced.weights, *states, "zeros", *self.number_operands, "dy")
        claims = ("claims",) if self.shared else ()
        scratch = self.scratch_operands("backward")
        return (*known, *carries, *gradients, *matrices, *self.group_names, *claims, *scratch)

    @property
    def number_operands(self) -> tuple[str, ...]:
        return ("numbers",) if self.numbers else ()

    def is_stored(self, operand: str) -> bool:
        """In the dtype of storage; all else is in the dtype of arithmetic."""
        made = {*self.product_parts, *self.inner_parts}
        flows = set(self.traced.inputs) - made - set(self.projected)
        return operand in flows or operand.removeprefix("d.") in flows or operand in ("y", "dy")
