"""One pass of Triton's kernels over a sequence: forward, and backward with the large products after it.

These are the same passes as those of the CPU. An elementwise unit needs one launch for a whole sequence, and
for both directions of a layer if they are given together. A unit with recurrent matrices needs, at each step,
one product by torch for each matrix and one launch for all elementwise operations; the gradient of a matrix
is one large product after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.program import blocks
from linnet.program.operands import Operands, as_dtype
from linnet.triton.kernels import launch
from linnet.triton.loop import Recipe

Needed = Sequence[bool]


def laid_out(tensor: Tensor) -> Tensor:
    """Return the tensor with its signs in memory: these kernels read any strides."""
    return tensor.resolve_neg()


def run_forward(
    operands: Operands, keep: bool, share: bool = True
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the output, the states as [T + 1, B, H] (or the last as [1, B, H]), and the products."""
    if operands.plan.products:
        return Steps(operands).forward(keep, share)
    y, (sequences,) = forward_together([operands], keep, share)
    return y, sequences, []


class Kept(NamedTuple):
    """What the forward scan has kept: the states and the products of all steps."""

    sequences: Sequence[Tensor]
    products: Sequence[Tensor]


def run_backward(
    operands: Operands, kept: Kept, needed: Needed, above: Sequence[Tensor], in_place: bool = False
) -> list[Tensor | None]:
    """The gradients of the operands; see linnet.cpu.backward.run_backward."""
    side = Side(operands, list(kept.sequences), needed, above[0], above[1:])
    if operands.plan.products:
        return Steps(operands).backward(side, kept.products)
    return backward_together([side])[0]


def shape_of(operands: Operands) -> tuple[int, int]:
    return operands.shape[1], operands.shape[2]


def read_by_all(operands: Operands) -> dict[str, Tensor | None]:
    """The operands that both kernels read, by their names in the source."""
    traced = operands.plan.traced
    extras = zip(operands.plan.extras, operands.extras, strict=True)
    weights = zip(traced.weights, operands.weights, strict=True)
    return {
        "joint": operands.joint,
        **{f"extra.{name}": extra for name, extra in extras},
        **{f"weight.{name}": weight for name, weight in weights},
        "mask": operands.mask,
        "resets": operands.resets,
    }


# ------------------------------------------------------------------------------- buffers for results


class Buffers(NamedTuple):
    """The outputs of all sides, side by side; and for each side its output and its states by name.

    The output of a side is None if it is a state: the stored states are then the output.
    """

    y: Tensor
    outputs: list[Tensor | None]
    states: list[dict[str, Tensor]]


def new_buffers(sides: Sequence[Operands], keep: bool, share: bool) -> Buffers:
    first = sides[0]
    (steps, batch, size), like = first.shape, first.joint
    same = keep and share and first.mask is None and first.dtype == first.real
    shared = first.plan.traced.output_state if same else None
    slots = (steps + 1 if keep else 1, batch, size)
    states = [
        {name: like.new_empty(slots, dtype=first.real) for name in first.plan.traced.states if name != shared}
        for _ in sides
    ]
    if shared is None:
        y = like.new_empty(steps, batch, len(sides) * size, dtype=first.dtype)
        return Buffers(y, list(y.split(size, -1)), states)
    # In the backward direction the output of step t is in slot t, in the forward direction in slot t + 1.
    # With both side by side, the slots of one direction are a row below those of the other.
    buffer = like.new_empty(steps + len(sides), batch, len(sides) * size, dtype=first.real)
    for i, columns in enumerate(buffer.split(size, -1)):
        states[i][shared] = columns[i : i + steps + 1]
    row = 0 if first.reverse else 1
    return Buffers(buffer[row : row + steps], [None] * len(sides), states)


def forward_together(
    sides: Sequence[Operands], keep: bool, share: bool = True
) -> tuple[Tensor, list[list[Tensor]]]:
    """Launch the forward kernel once; return the outputs side by side, and the states of each side.

    Two sides are the two directions of a layer, forward first.
    """
    first = sides[0]
    steps, names = first.shape[0], first.plan.traced.states
    buffers = new_buffers(sides, keep, share)
    known = []
    for side, y, states in zip(sides, buffers.outputs, buffers.states, strict=True):
        starts = {f"start.{name}": start for name, start in zip(names, side.states, strict=True)}
        kept = {f"states.{name}": states[name] for name in names}
        known.append({**read_by_all(side), **starts, **kept, "y": y})
    how = {"KEEP": keep} if len(sides) > 1 else {"KEEP": keep, "REVERSE": first.reverse}
    when = (steps - 1 if first.reverse else 0, steps)
    launch(Recipe.of(first.plan), "forward", known, shape_of(first), when, **how)
    return buffers.y, [[states[name] for name in names] for states in buffers.states]


# ------------------------------------------------------------------------------- gradients


class Side:
    """What the backward pass of one direction reads, and buffers for the gradients it computes."""

    def __init__(
        self,
        operands: Operands,
        sequences: Sequence[Tensor],
        needed: Needed,
        dy: Tensor,
        dfinals: Sequence[Tensor],
    ):
        self.operands, self.traced = operands, operands.plan.traced
        self.sequences, self.dy, self.dfinals = sequences, laid_out(dy), dfinals
        needs = iter(needed)
        groups = ([operands.joint], operands.extras, operands.weights, operands.states, operands.matrices)
        self.need_joint, self.need_extras, self.need_weights, _, self.need_matrices = (
            [next(needs) for _ in group] for group in groups
        )
        self.wanted: list[str] = []
        self.joint = self.new_joint()
        self.extras = [self.new_extra(*named) for named in self.named_extras()]
        self.sums = {name: self.new_sum() for name in self.summed()}

    def new_joint(self) -> Tensor | None:
        if not self.need_joint[0]:
            return None
        self.wanted += self.operands.plan.projected
        return torch.empty_like(self.operands.joint, memory_format=torch.contiguous_format)

    def named_extras(self) -> Iterator[tuple[str, Tensor, bool]]:
        return zip(self.operands.plan.extras, self.operands.extras, self.need_extras, strict=True)

    def new_extra(self, name: str, extra: Tensor, need: bool) -> Tensor | None:
        if not need:
            return None
        self.wanted.append(name)
        return torch.empty_like(extra, memory_format=torch.contiguous_format)

    def summed(self) -> list[str]:
        """The weights whose gradients are needed."""
        names = zip(self.traced.weights, self.need_weights, strict=True)
        found = [name for name, need in names if need]
        self.wanted += found
        return found

    def new_sum(self) -> Tensor:
        """A buffer for the gradient of a weight: sums over time for each row of the batch, which torch then
        adds up in a fixed order. No two programs add to the same number."""
        return self.operands.joint.new_zeros(shape_of(self.operands), dtype=self.operands.real)

    def carries(self) -> dict[str, Tensor]:
        like, shape = self.operands.joint, shape_of(self.operands)
        return {name: like.new_empty(shape, dtype=self.operands.real) for name in self.traced.states}

    def known(self) -> dict[str, Tensor | None]:
        """The operands that are the same at all steps."""
        extras = zip(self.operands.plan.extras, self.extras, strict=True)
        states = zip(self.traced.states, self.sequences, strict=True)
        return {
            **read_by_all(self.operands),
            **{f"states.{name}": sequence for name, sequence in states},
            "dy": self.dy,
            "d.joint": self.joint,
            **{f"d.extra.{name}": extra for name, extra in extras},
        }

    def gradients(
        self, carries: dict[str, Tensor], sums: dict[str, Tensor], matrices: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Return the gradients in the order of the operands."""
        dtype = self.operands.dtype
        weights = [sums[name].sum(0).to(dtype) if name in sums else None for name in self.traced.weights]
        states = [carries[name].to(dtype) for name in self.traced.states]
        return [self.joint, *self.extras, *weights, *states, *matrices]


def named(kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{kind}.{name}": tensor for name, tensor in tensors.items()}


def backward_together(sides: Sequence[Side]) -> list[list[Tensor | None]]:
    """Launch the backward kernel once for `sides`, see `forward_together`, which need the same gradients."""
    first = sides[0]
    operands = first.operands
    known, carries, sums = [], [], []
    for side in sides:
        above = dict(zip(side.traced.states, side.dfinals, strict=True))
        carries.append(side.carries())
        sums.append({name: side.new_sum() for name in side.sums})
        more = {**named("above", above), **named("carry", carries[-1])}
        more |= {**named("initial_sum", side.sums), **named("sum", sums[-1])}
        known.append({**side.known(), **more})
    how = {} if len(sides) > 1 else {"REVERSE": operands.reverse}
    when = (0 if operands.reverse else operands.shape[0] - 1, operands.shape[0])
    launch(Recipe.of(operands.plan, first.wanted), "backward", known, shape_of(operands), when, **how)
    made = zip(sides, carries, sums, strict=True)
    return [side.gradients(carry, total, ()) for side, carry, total in made]


# ------------------------------------------------------------------------------- recurrent matrices


class Steps:
    """A unit with recurrent matrices: at each step the products, and then all elementwise operations."""

    def __init__(self, operands: Operands):
        self.operands, self.plan = operands, operands.plan
        # Products read the state in the dtype of storage: this makes half precision fast.
        self.matrices = [as_dtype(matrix, operands.dtype) for matrix in operands.matrices]
        self.steps, self.shape = operands.shape[0], shape_of(operands)

    def forward(self, keep: bool, share: bool) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        operands, names = self.operands, self.plan.traced.states
        y, (output,), (kept,) = new_buffers([operands], keep, share)
        slots = {name: self.slots(kept[name]) for name in names}
        held = dict(zip(names, operands.states, strict=True))
        if keep:
            for name in names:
                kept[name][-1 if operands.reverse else 0] = held[name]
        products = [self.new_product(matrix, keep) for matrix in self.matrices]
        known = {**read_by_all(operands), **self.along_time(products), "y": output}
        for number, t in enumerate(self.times(operands.reverse)):
            for i, product in enumerate(self.plan.products):
                visible = self.visible_state(i, held[product.state])
                self.multiply(i, visible, products[i][t if keep else 0])
            new = {name: slots[name][(t + (not operands.reverse)) if keep else number % 2] for name in names}
            step = {**named("start", held), **{f"states.{name}": new[name][None] for name in names}}
            self.launch("forward", (), {**known, **step}, t, KEEP=False)
            held = new
        last = [kept[name] if keep else held[name][None] for name in names]
        return y, last, products if keep else []

    def multiply(self, i: int, visible: Tensor, out: Tensor) -> None:
        """Product i, into `out` [B, parts * H]."""
        product = self.plan.products[i]
        if product.heads == 1:
            torch.mm(visible, self.matrices[i].T, out=out)
        else:
            out.copy_(blocks.linear(visible, self.matrices[i], None, product.heads, len(product.parts)))

    def slots(self, sequence: Tensor) -> Sequence[Tensor]:
        """The slots of all steps; or two that alternate, since a state is read while the next is written."""
        return sequence.unbind(0) if len(sequence) > 1 else (sequence[0], torch.empty_like(sequence[0]))

    def times(self, backwards: bool) -> range:
        return range(self.steps - 1, -1, -1) if backwards else range(self.steps)

    def new_product(self, matrix: Tensor, keep: bool) -> Tensor:
        steps = self.steps if keep else 1
        return self.operands.joint.new_empty(steps, self.shape[0], len(matrix), dtype=self.operands.dtype)

    def along_time(self, products: Sequence[Tensor]) -> dict[str, Tensor]:
        return {f"product.{i}": buffer.expand(self.steps, -1, -1) for i, buffer in enumerate(products)}

    def visible_state(self, i: int, state: Tensor) -> Tensor:
        """The state as product i reads it."""
        visible = state * self.operands.drops[i] if self.operands.drops else state
        return as_dtype(visible, self.operands.dtype)

    def launch(
        self, name: str, wanted: Sequence[str], known: dict[str, Tensor | None], t: int, **how: Any
    ) -> None:
        recipe = Recipe.of(self.plan, wanted)
        launch(recipe, name, [known], self.shape, (t, 1), REVERSE=self.operands.reverse, **how)

    def backward(self, side: Side, products: Sequence[Tensor]) -> list[Tensor | None]:
        dproducts = [self.gradient_buffer(side, i) for i in range(len(self.matrices))]
        known = {**side.known(), **self.along_time(products)}
        known |= {f"d.product.{i}": buffer for i, buffer in enumerate(dproducts)}
        above = dict(zip(side.traced.states, side.dfinals, strict=True))
        carries = side.carries(), side.carries()
        sums = side.sums, {name: side.new_sum() for name in side.sums}
        for number, t in enumerate(self.times(not self.operands.reverse)):
            # Read one and write the other: a launch that is being tuned runs several times.
            carry, initial, total = carries[number % 2], sums[number % 2], sums[1 - number % 2]
            step = {**named("above", above), **named("carry", carry)}
            step |= {**named("initial_sum", initial), **named("sum", total)}
            self.launch("backward", side.wanted, {**known, **step}, t)
            for i, product in enumerate(self.plan.products):
                self.add_state_gradient(i, dproducts[i][t], carry[product.state])
            above = carry
        return side.gradients(above, sums[self.steps % 2], self.gradients(side, dproducts))

    def gradient_buffer(self, side: Side, i: int) -> Tensor:
        """[T, B, parts * H]: a buffer of its own, or the columns that get the same numbers anyway."""
        product, size = self.plan.products[i], self.shape[1]
        names = self.operands.plan.projected
        first = self.plan.start_of_shared_gradients(product, names) if self.operands.resets is None else None
        if side.joint is not None and first is not None:
            return side.joint.narrow(-1, first * size, len(product.parts) * size)
        side.wanted += product.parts
        return self.new_product(self.matrices[i], keep=True)

    def add_state_gradient(self, i: int, dproduct: Tensor, carry: Tensor) -> None:
        """Add to `carry` the gradient of the state that product i read."""
        product, matrix = self.plan.products[i], self.matrices[i]
        if not self.operands.drops and carry.dtype == dproduct.dtype and product.heads == 1:
            carry.addmm_(dproduct, matrix)
            return
        gradient = blocks.input_gradient(dproduct, matrix, product.heads, len(product.parts))
        carry += gradient * self.operands.drops[i] if self.operands.drops else gradient

    def gradients(self, side: Side, dproducts: Sequence[Tensor]) -> list[Tensor | None]:
        """dR = (gradients of the products)^T (previous states): one product over all steps."""
        made: list[Tensor | None] = []
        for i, (product, need) in enumerate(zip(self.plan.products, side.need_matrices, strict=True)):
            sequence = side.sequences[side.traced.states.index(product.state)]
            before = self.visible_state(i, sequence[1:] if self.operands.reverse else sequence[:-1])
            above, read = dproducts[i].flatten(0, 1), before.flatten(0, 1)
            cut = product.heads, len(product.parts)
            made.append(blocks.weight_gradient(above, read, *cut) if need else None)
        return made
