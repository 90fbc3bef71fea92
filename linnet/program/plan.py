"""The plan of a fused scan: a traced step and the products with the state that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from linnet.base.pools import Pools
from linnet.program import plan_text as text
from linnet.program.pattern import Pattern, pattern_of
from linnet.program.phases import Shapes, group_sizes, phases_of, shared_phases
from linnet.program.record_step import Derived
from linnet.program.trace import Pointwise, Step, Traced


@dataclass(frozen=True)
class Product:
    """A recurrent matrix: the state it reads, and the inputs of the step that it computes, side by side.

    heads   how many blocks the matrix has for each part; see program/blocks.py
    """

    state: str
    parts: tuple[str, ...]
    heads: int = 1


@dataclass
class Plan:
    """A traced step and its products.

    The inputs of the step come in this order: the projections, the extra inputs (`extras`), the products,
    the inner products. Graphs, which hold no Python objects, hold a plan as its `text`: another process can
    read it. A plan holds neither the step it was traced from nor the cell.
    """

    traced: Traced
    extras: tuple[str, ...]
    products: tuple[Product, ...]
    # Where the weights and matrices of a step that is not elementwise come from. A plan that was read from
    # its text gets them as arguments.
    derived: Derived | None = field(default=None, repr=False, compare=False)
    # Computes those weights that are not weights of the unit; see program/hoist.py.
    before: Pointwise | None = field(default=None, repr=False, compare=False)
    text: str = field(init=False, repr=False)
    # Kernels are compiled from the pattern, which is the same for all plans that differ only in numbers.
    pattern: Pattern = field(init=False, repr=False, compare=False)
    # Kernels by their options, so that a call need not hash the whole recipe: {options: (kernel, operands)}.
    kernels: dict[tuple, tuple] = field(default_factory=dict, repr=False, compare=False)

    # Scans with their arguments, by the kind of call, and memory that they use while they run.
    bindings: Pools = field(default_factory=Pools, repr=False, compare=False)
    scratch: Pools = field(default_factory=Pools, repr=False, compare=False)
    # The plan for what later stages read, if zoneout changes the output afterwards; see program/planning.py.
    raw: Plan | None = field(default=None, repr=False, compare=False)
    # The plan of a scan, if something of the step can be computed before it.
    hoisted: Plan | None = field(default=None, repr=False, compare=False)
    # The kinds of the operands that were last found to fit; see run/scan.py.
    fits: tuple | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.text = text.written(self.traced, self.extras, self.of_states())
        self.pattern = pattern_of(self.traced)
        # The group of each operand: those of one group have the same number of channels.
        self.groups = phases_of(self.traced).groups
        # By kernel; not computed at each call, since comparing the traced step with a cached one takes long.
        self.shared_phases = {name: shared_phases(self.traced, name) for name in ("forward", "backward")}
        # What each matrix reads, and the inputs of the step that it makes.
        self.matrices: list[tuple[str, tuple[str, ...]]] = [
            *((product.state, product.parts) for product in self.products),
            *((f"inner.{i}", inner.parts) for i, inner in enumerate(self.traced.inner)),
        ]
        # How many heads each matrix has.
        self.heads = [*(p.heads for p in self.products), *(inner.heads for inner in self.traced.inner)]
        made = sum(len(parts) for _, parts in self.matrices)
        # Where the extras, the weights and the states end in the list of a scan's operands; matrices follow.
        weights = len(self.extras) + len(self.traced.weights)
        self.ends = len(self.extras), weights, weights + len(self.traced.states)
        self.projected = self.traced.inputs[: len(self.traced.inputs) - len(self.extras) - made]
        # Whether all projections are of one size, so that a kernel can compute them.
        self.is_even = len({self.width_of(name) for name in self.projected}) == 1
        # The projections that compute the inner products, by their names in the cell.
        self.inner = [product.attribute for product in self.traced.inner]
        # The offsets of the last call, by sizes.
        self.starts: dict[tuple[int, ...], dict[str, int]] = {}
        self.numbers: dict[torch.dtype, Tensor] = {}

    def of_states(self) -> list[tuple[str, tuple[str, ...], int]]:
        return [(product.state, product.parts, product.heads) for product in self.products]

    def width_of(self, name: str) -> int:
        """Two operands with the same width have the same number of channels."""
        return dict(self.traced.sizes)[name] if self.traced.sizes else self.groups[name]

    @classmethod
    def read(cls, written: str) -> Plan:
        """Create a plan from its text; raise ValueError if that is not the text of a plan."""
        traced, extras, products = text.read(written)
        return cls(traced, extras, tuple(Product(*product) for product in products))

    def numbers_as(self, dtype: torch.dtype) -> Tensor:
        """The numbers of the pattern. The plan keeps the tensor: the arguments of a step have its address."""
        if dtype in self.numbers:
            return self.numbers[dtype]
        made = torch.tensor(self.pattern.numbers, dtype=dtype, device="cpu")
        # Not replaced if another thread was faster: that tensor's address may be in use.
        return self.numbers.setdefault(dtype, made)

    def sizes(
        self, weights: Sequence[Tensor], states: Sequence[Tensor], matrices: Sequence[Tensor]
    ) -> tuple[int, ...]:
        """How many channels each group has; a ValueError if the operands do not fit together."""
        if self.traced.sizes:
            return tuple(size for _, size in self.traced.sizes)
        if not self.traced.inner:
            return (states[0].shape[-1],)
        shapes = Shapes(*([tensor.shape for tensor in group] for group in (weights, states, matrices)))
        return group_sizes(self.traced, self.of_states(), shapes)

    def offsets(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """At which channel of the joint projection each one starts, for these sizes of the groups."""
        if sizes not in self.starts:
            starts = accumulate((sizes[self.groups[name]] for name in self.projected), initial=0)
            self.starts = {sizes: dict(zip(self.projected, starts, strict=False))}
        return self.starts[sizes]

    def start_of_shared_gradients(self, product: Product, projected: Sequence[str]) -> int | None:
        """The index of the first of those `projected` inputs that have the same gradients as the parts of
        `product`, or None if there are none.

        A gate that adds an input and a product has the same gradient for both, except after a reset.
        """
        gradients = dict(self.traced.backward.outputs)
        wanted = [gradients[f"d.{name}"] for name in product.parts]
        found = [gradients[f"d.{name}"] for name in projected]
        starts = range(len(found) - len(wanted) + 1)
        return next((start for start in starts if found[start : start + len(wanted)] == wanted), None)

    def all_gradients(self) -> tuple[str, ...]:
        """The inputs and weights with a gradient of their own, which is not also that of a projection."""
        shared = {
            part
            for product in self.products
            if self.start_of_shared_gradients(product, self.projected) is not None
            for part in product.parts
        }
        names = (*self.traced.inputs, *self.traced.weights)
        return tuple(name for name in names if name not in shared)


class Fusible(NamedTuple):
    """A plan, and the step it was traced from, which is the reference for what kernels cannot compute."""

    plan: Plan
    step: Step


@lru_cache(maxsize=128)
def plan_called(written: str) -> Plan:
    """Return the plan of a text. The last 128 plans are cached."""
    return Plan.read(written)
