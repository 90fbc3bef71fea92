"""What is to be fused: a traced step and the products with the state that it takes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from linnet.fuse.trace import Step, Traced


@dataclass(frozen=True)
class Product:
    """A recurrent matrix: the state it reads, and the inputs of the step that it makes, side by side."""

    state: str
    parts: tuple[str, ...]


@dataclass
class Plan:
    """A traced step and its products.

    The inputs of the step come in this order: the projections, what stands beside them (`extras`),
    the products. Graphs, which hold no Python objects, know a plan by its `key`.
    """

    traced: Traced
    extras: tuple[str, ...]
    products: tuple[Product, ...]
    key: str = ""
    # Found at once, without a look at all it is made of: {what was asked for: (kernel, its operands)}.
    kernels: dict[tuple, tuple] = field(default_factory=dict, repr=False, compare=False)

    # The kinds of the operands that were last found to fit; see fuse/scan.py.
    fits: tuple | None = field(default=None, repr=False, compare=False)
    # The last step that was taken on its own, and what it goes for; see fuse/stream.py.
    stream: tuple[tuple, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = repr((self.traced, self.extras, self.products))
        self.key = hashlib.sha256(text.encode()).hexdigest()[:16]
        PLANS[self.key] = self

    def twins(self, product: Product, projected: Sequence[str]) -> int | None:
        """Where those of `projected` start whose gradients are those of the parts of `product`, if any are.

        A gate that adds both has one gradient for both; not so at a step that starts anew.
        """
        gradients = dict(self.traced.backward.outputs)
        wanted = [gradients[f"d.{name}"] for name in product.parts]
        found = [gradients[f"d.{name}"] for name in projected]
        starts = range(len(found) - len(wanted) + 1)
        return next((start for start in starts if found[start : start + len(wanted)] == wanted), None)


PLANS: dict[str, Plan] = {}


class Fusible(NamedTuple):
    """A plan, and the step it was traced from: the reference, for what kernels do not do."""

    plan: Plan
    step: Step


def plan_called(key: str) -> Plan:
    if key not in PLANS:
        raise KeyError(f"no unit with the plan {key} has been built in this process; build its module first")
    return PLANS[key]
