"""What torch does in one step of a model, as a list of operations on small buffers.

The step runs once on real tensors, with a batch of one. Every operation that torch dispatches on what derives
from the input or the state becomes a node: a pointwise line as in `linnet.fuse.trace`, a product with a
matrix, a reduction, or several vectors side by side. Views cost nothing: a node reads its operands with the
offset and the strides of the tensor. What derives from weights alone is computed here, and is a constant.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from linnet.fuse import blocks
from linnet.fuse.trace import RECORDED, NotPointwise, Recorder, user_line
from linnet.fuse.views import View, whole
from linnet.layers.int8 import product as int8_product

# A view of a buffer or a constant, or a number.
Value = View | float

COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_not")


@dataclass(frozen=True)
class Node:
    """result = op(*operands). `result` is the name of a new buffer of `shape`.

    product     (x [rows, inputs], matrix [inputs, outputs]) or (x, matrix, bias); the matrix may be
                block-diagonal, [inputs / heads, outputs] of so many `parts`: see fuse/blocks.py
    sum, amax   reductions of an operand over its last dimension
    join        the operands one after the other
    gather      (x, places): the numbers of x at these places
    copy        one operand, in the order of its dimensions
    all others  pointwise, operands broadcast to `shape`
    """

    result: str
    op: str
    operands: tuple[Value, ...]
    shape: tuple[int, ...]
    parts: int = 1


class StepRecorder(Recorder):
    """Records the operations on tensors that derive from those given to `take`."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        # By the address of the storage of a tensor: the buffer that it is, and where in it the tensor starts.
        self.owners: dict[int, tuple[str, int]] = {}
        self.made: dict[str, str] = {}
        self.constants: dict[str, Tensor] = {}
        self.constant_names: dict[tuple, str] = {}
        # The scales of the rows of those constants that are int8 matrices.
        self.scales: dict[str, Tensor] = {}

    def take(self, name: str, tensor: Tensor) -> Tensor:
        """Record what derives from `tensor`, which has the name `name`."""
        self.own(tensor, whole(name, tensor.shape))
        return tensor

    def own(self, tensor: Tensor, view: View) -> None:
        self.owners[address(tensor)] = (view.base, view.offset)
        self.kept.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        if not any(address(tensor) in self.owners for tensor in tensors) or is_view(func):
            result = func(*args, **(kwargs or {}))
            # Other tensors must not be given the memory of one that is known by its address.
            self.kept += [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            return result
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if isinstance(result, Tensor) and address(result) in self.owners and not result.is_contiguous():
            # Buffers are in the order of their dimensions.
            base, offset = self.owners[address(result)]
            result = result.contiguous()
            self.own(result, View(base, offset, (), ()))
        return result

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        op = func._schema.name.split("::")[1]
        if op not in STRUCTURAL:
            try:
                return super().decompose(func, args, kwargs)
            except NotPointwise as error:
                raise NotPointwise(f"the step uses {func}, which cannot be exported{where()}") from error
        result = func(*args, **kwargs)
        made = STRUCTURAL[op](self, *args, **kwargs)
        if isinstance(result, Tensor):
            self.name(result, made)
        else:
            for tensor, view in zip(result, made, strict=True):
                self.name(tensor, view)
        return result

    def name(self, tensor: Tensor, name: Any) -> None:
        """`tensor` is the value of a node; a number stays a constant."""
        if not isinstance(name, View):
            return
        if tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes():
            raise NotPointwise(f"the step changes a part of a tensor in place{where()}")
        self.own(tensor, name if name.is_contiguous else self.node("copy", (name,), name.shape))

    def operand(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if address(value) not in self.owners:
            return self.constant(value)
        base, offset = self.owners[address(value)]
        return View(base, offset + int(value.storage_offset()), tuple(value.shape), value.stride())

    def constant(self, value: Tensor) -> Value:
        if value.numel() == 1:
            return float(value)
        key = (address(value), value.storage_offset(), value.shape, value.stride())
        if key not in self.constant_names:
            self.constant_names[key] = f"k{len(self.constants)}"
            self.constants[self.constant_names[key]] = value.detach()
            self.kept.append(value)
        return whole(self.constant_names[key], value.shape)

    def add(self, op: str, *operands: Any) -> Any:
        values = tuple(value if isinstance(value, View) else float(value) for value in operands)
        if op == "mul" and values[1] == 1.0:
            return values[0]
        shapes = [value.shape for value in values if isinstance(value, View)]
        return self.node(op, values, torch.broadcast_shapes(*shapes))

    def node(self, op: str, operands: tuple[Value, ...], shape: Sequence[int], parts: int = 1) -> View:
        """The result of an operation; equal operations are recorded once."""
        key = repr((op, operands, tuple(shape), parts))
        if key not in self.made:
            self.made[key] = f"v{len(self.nodes)}"
            self.nodes.append(Node(self.made[key], op, operands, tuple(shape), parts))
        return whole(self.made[key], shape)

    # -------------------------------------------------- products that are more than one of torch's

    @contextmanager
    def recording_products(self) -> Iterator[None]:
        """Within this context, products with int8 or block-diagonal matrices are recorded as products."""
        token = blocks.product_recorder.set(self.whole_product)
        try:
            yield
        finally:
            blocks.product_recorder.reset(token)

    def whole_product(
        self,
        x: Tensor,
        numbers: Tensor,
        scales: Tensor | None,
        bias: Tensor | None,
        heads: int,
        parts: int,
    ) -> Tensor:
        context = copy_context()
        context.run(blocks.product_recorder.set, None)
        with _disable_current_modes():
            if scales is None:
                result = context.run(blocks.linear, x, numbers, bias, heads, parts)
            else:
                result = context.run(int8_product, x, numbers, scales, bias, heads, parts)
            rows = x.reshape(-1, x.shape[-1])
        # A tensor that was copied is known by its own address.
        view = self.operand(x)
        view = view if view.is_contiguous else self.node("copy", (view,), view.shape)
        matrix = whole_constant(self, numbers.T)
        if scales is not None:
            self.scales[matrix.base] = scales
        operands: list[Value] = [replace(whole(view.base, rows.shape), offset=view.offset), matrix]
        operands += [] if bias is None else [whole_constant(self, bias)]
        made = self.node("product", tuple(operands), (len(rows), len(numbers)), parts)
        self.own(result, made)
        return result

    def known(self, value: Any) -> bool:
        """Whether a value is a tensor that derives from those given to `take`."""
        return isinstance(value, Tensor) and address(value) in self.owners


def where() -> str:
    """The line of the user's code that calls the operation."""
    here = str(Path(__file__).parent)
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith(here)]
    return user_line(traceback.StackSummary.from_list(frames))


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def is_view(func: Any) -> bool:
    """Whether an operation returns other views of its operands and changes none of them."""
    returned = [value.alias_info for value in func._schema.returns]
    return bool(returned) and all(info is not None and not info.is_write for info in returned)


# ------------------------------------------------------------------------------------ operations


def product(recorder: StepRecorder, x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> View:
    """x [rows, inputs] times a constant matrix [inputs, outputs]."""
    operands = [recorder.operand(each) for each in (x, matrix, bias) if each is not None]
    if not isinstance(operands[0], View) or any(is_variable(recorder, each) for each in operands[1:]):
        raise NotPointwise(
            f"the step multiplies two matrices that both depend on its input{where()}; "
            "exported products are of a vector and a matrix of weights"
        )
    operands[1:] = [whole_constant(recorder, each) for each in (matrix, bias) if each is not None]
    return recorder.node("product", tuple(operands), (x.shape[0], matrix.shape[1]))


def whole_constant(recorder: StepRecorder, value: Tensor) -> View:
    """Return the value as a constant, even if it is a single number."""
    if value.numel() > 1:
        return recorder.operand(value)
    name = f"k{len(recorder.constants)}"
    recorder.constants[name] = value.detach()
    return whole(name, value.shape)


def is_variable(recorder: StepRecorder, value: Value) -> bool:
    return isinstance(value, View) and value.base not in recorder.constants


def added_product(
    recorder: StepRecorder, bias: Tensor, x: Tensor, matrix: Tensor, beta: float = 1, alpha: float = 1
) -> View:
    if (beta, alpha) != (1, 1) or is_variable(recorder, recorder.operand(bias)):
        scaled = recorder.add("mul", product(recorder, x, matrix), alpha)
        return recorder.add("add", recorder.add("mul", recorder.operand(bias), beta), scaled)
    # A bias of one number, or of one for all outputs, as a vector.
    return product(recorder, x, matrix, bias.expand(matrix.shape[1]).contiguous())


def matrix_vector(recorder: StepRecorder, matrix: Tensor, x: Tensor) -> View:
    view = product(recorder, x[None], matrix.T)
    return View(view.base, 0, (matrix.shape[0],), (1,))


def joined(recorder: StepRecorder, tensors: Sequence[Tensor], axis: int = 0) -> View:
    shapes = [tensor.shape for tensor in tensors if tensor.numel()]
    whole_shape = list(shapes[0])
    axis %= len(whole_shape)
    whole_shape[axis] = sum(shape[axis] for shape in shapes)
    if any(size > 1 for size in whole_shape[:axis]):
        raise NotPointwise(f"the step joins tensors along a dimension that is not the first{where()}")
    return join(recorder, tensors, whole_shape)


def stacked(recorder: StepRecorder, tensors: Sequence[Tensor], axis: int = 0) -> View:
    shape = list(tensors[0].shape)
    axis %= len(shape) + 1
    if any(size > 1 for size in shape[:axis]):
        raise NotPointwise(f"the step stacks tensors along a dimension that is not the first{where()}")
    return join(recorder, tensors, [*shape[:axis], len(tensors), *shape[axis:]])


def join(recorder: StepRecorder, tensors: Sequence[Tensor], shape: Sequence[int]) -> View:
    pieces = [recorder.operand(tensor) if tensor.numel() > 1 else one(recorder, tensor) for tensor in tensors]
    if len(pieces) == 1 and pieces[0].is_contiguous:
        # One piece is this piece in another shape.
        return View(pieces[0].base, pieces[0].offset, tuple(shape), whole("", shape).strides)
    return recorder.node("join", tuple(pieces), shape)


def one(recorder: StepRecorder, tensor: Tensor) -> View:
    known = recorder.operand(tensor)
    return known if isinstance(known, View) else whole_constant(recorder, tensor)


def moved(func: Callable[..., Tensor]) -> Callable[..., View]:
    """An operation that copies numbers to other places, which it tells if it moves the places themselves."""

    def move(recorder: StepRecorder, x: Tensor, *args: Any, **kwargs: Any) -> View:
        if any(recorder.known(leaf) for leaf in tree_leaves((args, kwargs))):
            raise NotPointwise(f"the step computes which numbers it reads{where()}")
        places = func(torch.arange(x.numel()).view(x.shape), *args, **kwargs).int().contiguous()
        return recorder.node("gather", (one(recorder, x), whole_constant(recorder, places)), places.shape)

    return move


def padded(recorder: StepRecorder, x: Tensor, pad: Sequence[int], value: float = 0) -> View:
    if len(pad) != 2 or min(pad) < 0:
        raise NotPointwise(f"the step pads a tensor in more than its last dimension{where()}")
    ends = [x.new_full((*x.shape[:-1], width), value) for width in pad]
    return joined(recorder, [each for each in (ends[0], x, ends[1]) if each.numel()], -1)


def reduction(kind: str, mean: bool = False) -> Callable[..., View]:
    def reduce(recorder: StepRecorder, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
        return reduced(recorder, kind, recorder.operand(x), dim, keepdim, mean)

    return reduce


def reduced(
    recorder: StepRecorder, kind: str, x: View, dim: Any, keepdim: bool = False, mean: bool = False
) -> View:
    """A reduction over some dimensions, which are moved to the end and read as one."""
    count = len(x.shape)
    axes = range(count) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    over = sorted(axis % count for axis in axes)
    kept = [axis for axis in range(count) if axis not in over]
    order = [*kept, *over]
    moved = View(x.base, x.offset, tuple(x.shape[a] for a in order), tuple(x.strides[a] for a in order))
    outer, inner = moved.shape[: len(kept)], moved.shape[len(kept) :]
    flat = View(
        moved.base, moved.offset, (math.prod(outer), math.prod(inner)), flat_strides(moved, len(kept))
    )
    made = recorder.node(kind, (flat,), (flat.shape[0],))
    if mean:
        made = recorder.add("div", made, float(flat.shape[1]))
    shape = tuple(1 if axis in over else size for axis, size in enumerate(x.shape)) if keepdim else outer
    return View(made.base, made.offset, shape, whole("", shape).strides)


def variance_and_mean(
    recorder: StepRecorder, x: Tensor, dim: Any = None, correction: float = 1, keepdim: bool = False
) -> tuple[View, View]:
    view = recorder.operand(x)
    mean = reduced(recorder, "sum", view, dim, True, mean=True)
    apart = recorder.add("sub", view, mean)
    total = reduced(recorder, "sum", recorder.add("mul", apart, apart), dim, keepdim)
    count = x.numel() // total.size
    variance = recorder.add("div", total, float(count - correction))
    shape = variance.shape
    return variance, View(mean.base, mean.offset, shape, whole("", shape).strides)


def flat_strides(view: View, kept: int) -> tuple[int, int]:
    """The strides of a view whose first `kept` dimensions, and whose others, are read as one dimension."""
    pairs = list(zip(view.shape, view.strides, strict=True))
    found = []
    for group in (pairs[:kept], pairs[kept:]):
        long = [(size, stride) for size, stride in group if size > 1]
        if any(stride != size * inner for (_, stride), (size, inner) in pairwise(long)):
            raise NotPointwise(f"the step reduces dimensions that do not lie side by side{where()}")
        found.append(long[-1][1] if long else 0)
    return found[0], found[1]


def vector_norm(
    recorder: StepRecorder,
    x: Tensor,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> View:
    sizes = recorder.add("abs", recorder.operand(x))
    if order == math.inf:
        return reduced(recorder, "amax", sizes, dim, keepdim)
    powers = sizes if order == 1 else recorder.add("pow", sizes, order)
    total = reduced(recorder, "sum", powers, dim, keepdim)
    return total if order == 1 else recorder.add("pow", total, 1 / order)


STRUCTURAL: dict[str, Callable[..., Any]] = {
    "mm": product,
    "addmm": added_product,
    "mv": matrix_vector,
    "cat": joined,
    "stack": stacked,
    "constant_pad_nd": padded,
    "index_select": moved(torch.index_select),
    "index": moved(torch.ops.aten.index),
    "flip": moved(torch.flip),
    "roll": moved(torch.roll),
    "sum": reduction("sum"),
    "mean": reduction("sum", mean=True),
    "amax": reduction("amax"),
    "var_mean": variance_and_mean,
    "linalg_vector_norm": vector_norm,
}
assert not STRUCTURAL.keys() & RECORDED.keys()
