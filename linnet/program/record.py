"""Records what torch does in one step, and in its gradient, as a `Graph`.

The step runs once on real tensors, with a batch of one. Every operation that torch dispatches on what derives
from an input or a state becomes a node. Views cost nothing: a node reads its operands with the offset and the
strides of the tensor. What derives from parameters alone is not a part of the step: torch computes it once
for a sequence (`StaticCall`), and the step reads the result as a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from linnet.base.torch_private import tree_leaves, tree_map
from linnet.program.graph import TRUTHS, Node, Value
from linnet.program.trace import RECORDED, NotPointwise, Recorder, user_line
from linnet.program.views import View, row_major, whole

# Operations on truth values, or with them as the condition.
OF_TRUTHS = ("where", "logical_and", "logical_or", "logical_not", "copy")
# The highest power that is computed by multiplications.
MOST_MULTIPLICATIONS = 8


@dataclass(frozen=True)
class Reference:
    """An argument of a static operation: result `number` of those before it, read as such a view."""

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def read_part(part: Reference, results: Sequence[Tensor]) -> Tensor:
    base = results[part.number]
    # Where `base` starts in its memory, which it may share with other parameters.
    start = base.storage_offset()
    if (tuple(base.shape), base.stride(), 0) == (part.shape, part.strides, part.offset):
        return base
    return base.as_strided(part.shape, part.strides, start + part.offset)


@dataclass(frozen=True)
class StaticCall:
    """An operation on parameters; its results get the next numbers."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def run_static(call: StaticCall, results: list[Tensor]) -> None:
    args, kwargs = tree_map(
        lambda value: read_part(value, results) if isinstance(value, Reference) else value,
        (call.args, call.kwargs),
    )
    made = call.function(*args, **kwargs)
    results.extend(tensor.contiguous() for tensor in ([made] if isinstance(made, Tensor) else made))


class StepRecorder(Recorder):
    """Records the operations on tensors that derive from those given to `take`."""

    @property
    def structural(self) -> Mapping[str, Callable[..., Any]]:
        """How operations that are not pointwise become nodes."""
        return STRUCTURAL

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        # By the address of the storage of a tensor: the value that it is, and where in it the tensor starts.
        self.owners: dict[int, tuple[str, int]] = {}
        self.made: dict[str, str] = {}
        self.truths: set[str] = set()
        self.constants: dict[str, Tensor] = {}
        self.constant_names: dict[tuple, str] = {}
        # By the address of the storage: the number of a parameter or of what derives from parameters alone.
        self.statics: dict[int, int] = {}
        self.static_tensors: list[Tensor] = []
        self.parameter_names: list[str] = []
        self.static_calls: list[StaticCall] = []
        # The addresses of tensors that are made within the step and derive from nothing.
        self.fixed: set[int] = set()
        # Those that a node reads, by number.
        self.weights: dict[int, str] = {}
        self.products: list[Product] = []
        self.differentiates = False

    # ------------------------------------------------------------------------------------- tensors

    def take(self, name: str, tensor: Tensor) -> Tensor:
        """Record what derives from `tensor`, which has the name `name`."""
        self.own(tensor, whole(name, tensor.shape))
        return tensor

    def take_parameter(self, name: str, tensor: Tensor) -> Tensor:
        self.parameter_names.append(name)
        self.add_static(tensor)
        return tensor

    def add_static(self, tensor: Tensor) -> None:
        self.statics[address(tensor)] = len(self.static_tensors)
        self.static_tensors.append(tensor)

    def own(self, tensor: Tensor, view: View) -> None:
        self.owners[address(tensor)] = (view.base, view.offset)
        self.kept.append(tensor)

    def is_dynamic(self, value: Any) -> bool:
        return isinstance(value, Tensor) and address(value) in self.owners

    def is_static(self, value: Any) -> bool:
        return isinstance(value, Tensor) and address(value) in self.statics

    def is_matrix(self, value: Tensor) -> bool:
        """Whether a step may multiply by this tensor."""
        return self.is_static(value)

    # ---------------------------------------------------------------------------------- operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        self.check_known(func, tensors)
        dynamic = any(map(self.is_dynamic, tensors))
        if is_view(func):
            result = func(*args, **kwargs)
            # Other tensors must not be given the memory of one that is known by its address.
            self.kept += [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            return result
        static = any(map(self.is_static, tensors))
        if not dynamic and not (static and self.differentiates):
            return self.run_static(func, args, kwargs) if static else self.run_fixed(func, args, kwargs)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if isinstance(result, Tensor) and self.is_dynamic(result) and not result.is_contiguous():
            # Values are in the order of their dimensions.
            base, offset = self.owners[address(result)]
            result = result.contiguous()
            self.own(result, View(base, offset, (), ()))
        return result

    def check_known(self, func: Any, tensors: Sequence[Tensor]) -> None:
        if func is torch.ops.aten.lift_fresh.default:  # a tensor that is made from numbers
            self.fixed |= set(map(address, tensors))
        known = (self.owners, self.statics, self.fixed)
        if not all(any(address(tensor) in group for group in known) for tensor in tensors):
            raise NotPointwise(f"step uses a tensor that is neither an input nor a parameter{user_line()}")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotPointwise(f"step uses {func}, which draws random numbers{user_line()}")

    def run_fixed(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.fixed |= set(map(address, made))
        self.kept += made
        return result

    def run_static(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func._schema.is_mutable:
            raise NotPointwise(f"step changes a parameter in place by {func}{user_line()}")
        # Contiguous, as when it is computed again.
        result = tree_map(lambda v: v.contiguous() if isinstance(v, Tensor) else v, func(*args, **kwargs))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        args, kwargs = tree_map(lambda v: self.reference(v) if self.is_static(v) else v, (args, kwargs))
        self.static_calls.append(StaticCall(func, args, kwargs))
        for tensor in made:
            self.add_static(tensor)
        return result

    def reference(self, tensor: Tensor) -> Reference:
        number = self.statics[address(tensor)]
        return Reference(number, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        op = operation(func)
        if op not in self.structural:
            return super().decompose(func, args, kwargs)
        result = func(*args, **kwargs)
        made = self.structural[op](self, *args, **kwargs)
        if made is NotImplemented:
            return super().decompose(func, args, kwargs)
        if op in PRODUCTS and self.products:  # those of an export are nodes
            self.products[-1].tensor = result
        if isinstance(result, Tensor):
            self.name(result, made)
        else:
            for tensor, view in zip(result, made, strict=True):
                self.name(tensor, view)
        return result

    def check_kinds(self, func: Any, result: Tensor, args: Sequence[Any]) -> None:
        """Numbers of any dtype are computed in that of the step; `add` converts truth values."""
        kinds = [value.dtype for value in (result, *args) if isinstance(value, Tensor)]
        whole = not (result.is_floating_point() or result.dtype == torch.bool)
        if result.is_complex() or (whole and any(kind.is_floating_point for kind in kinds)):
            raise NotPointwise(f"step uses {func} on numbers of the dtypes {set(kinds)}{user_line()}")

    def name(self, tensor: Tensor, name: Any) -> None:
        """`tensor` is the value of a node, or a number."""
        if not isinstance(name, View):
            self.fixed.add(address(tensor))
            self.kept.append(tensor)
            return
        if tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes():
            raise NotPointwise(f"step changes a part of a tensor in place{user_line()}")
        if tensor.dtype == torch.bool:
            name = self.as_truth(name)
        if name.size != tensor.numel() or not name.is_contiguous:
            name = self.node("copy", (name,), tensor.shape)
        self.own(tensor, name)

    def operand(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if address(value) in self.owners:
            base, offset = self.owners[address(value)]
        elif address(value) in self.statics:
            base, offset = self.weight_name(self.statics[address(value)]), 0
        else:
            return self.constant(value)
        return View(base, offset + int(value.storage_offset()), tuple(value.shape), value.stride())

    def weight_name(self, number: int) -> str:
        own = self.parameter_names[number] if number < len(self.parameter_names) else number
        return self.weights.setdefault(number, f"weight.{own}")

    def constant(self, value: Tensor) -> Value:
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            # Perhaps the default dtype while the step is recorded, which may change.
            raise NotPointwise(f"step uses a constant of {value.dtype}{user_line()}")
        # Shapes are those of torch's results, so one number will do.
        return float(value.flatten()[0]) if self.is_one_number(value) else self.named_constant(value)

    def is_one_number(self, value: Tensor) -> bool:
        return value.numel() == 1 or bool((value == value.flatten()[0]).all())

    def named_constant(self, value: Tensor) -> View:
        key = (address(value), value.storage_offset(), value.shape, value.stride(), value._version)
        if key not in self.constant_names:
            self.constant_names[key] = f"k{len(self.constants)}"
            self.constants[self.constant_names[key]] = value.detach().clone()
            self.kept.append(value)
        return whole(self.constant_names[key], value.shape)

    def add(self, op: str, *operands: Any) -> Any:
        values = [self.as_number(op, value) for value in operands]
        if op.startswith("logical"):
            values = list(map(self.as_truth, values))
        if op == "where":
            values[0] = self.as_truth(values[0])
            values[1:] = [self.as_number("", value) for value in values[1:]]
            if not isinstance(values[0], View):
                return values[1] if values[0] else values[2]
        if (op == "mul" and values[1] == 1.0) or (op == "pow" and values[1] == 1.0):
            return values[0]
        if op == "pow" and isinstance(values[1], float) and values[1] in range(2, MOST_MULTIPLICATIONS + 1):
            return self.power(values[0], int(values[1]))
        shapes = [value.shape for value in values if isinstance(value, View)]
        made = self.node(op, tuple(values), torch.broadcast_shapes(*shapes))
        if op in TRUTHS:
            self.truths.add(made.base)
        return made

    def power(self, value: Value, exponent: int) -> Any:
        if exponent == 1:
            return value
        half = self.power(value, exponent // 2)
        square = self.add("mul", half, half)
        return self.add("mul", square, value) if exponent % 2 else square

    def as_number(self, op: str, value: Any) -> Value:
        """An operand of an operation: a truth value as 1 or 0 where numbers are expected."""
        if not isinstance(value, View):
            return float(value)
        if value.base in self.truths and op not in OF_TRUTHS:
            return self.node("where", (value, 1.0, 0.0), value.shape)
        return value

    def as_truth(self, value: Value) -> Value:
        """A number as a truth value."""
        is_number = isinstance(value, View) and value.base not in self.truths
        return self.add("ne", value, 0.0) if is_number else value

    def node(self, op: str, operands: tuple[Value, ...], shape: Sequence[int], **more: Any) -> View:
        """The result of an operation; equal operations are recorded once."""
        key = repr((op, operands, tuple(shape), more))
        if key not in self.made:
            self.made[key] = f"v{len(self.nodes)}"
            self.nodes.append(Node(self.made[key], op, operands, tuple(shape), **more))
            if op == "copy" and isinstance(operands[0], View) and operands[0].base in self.truths:
                self.truths.add(self.made[key])
        return whole(self.made[key], shape)

    def add_product(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> View:
        """x [1, inputs] times a matrix [inputs, outputs]: no node, since it is computed for all rows."""
        if x.shape[0] != 1:
            raise NotPointwise(
                f"step multiplies {x.shape[0]} vectors of a sequence by one matrix{user_line()}"
            )
        name = f"product {len(self.products)}"
        self.products.append(Product(self.operand(x), name, self.reference(matrix), matrix.shape[1]))
        made = whole(name, (1, matrix.shape[1]))
        return made if bias is None else self.add("add", self.operand(bias), made)

    def number_of(self, x: Tensor) -> View:
        """A tensor as a view, a truth value as 1 or 0, and a constant as one with its shape."""
        value = self.as_number("", self.operand(x))
        return value if isinstance(value, View) else self.node("copy", (value,), x.shape)


@dataclass
class Product:
    """x times a matrix: what it reads, the name of its result, and the matrix [inputs, outputs].

    tensor   what torch has computed: the product, or its sum with a bias, which has the same gradient
    """

    source: View
    result: str
    matrix: Reference
    outputs: int
    tensor: Tensor | None = None


class Marking(TorchFunctionMode):
    """Makes autograd differentiate a step with respect to those static tensors that it reads."""

    def __init__(self, recorder: StepRecorder):
        super().__init__()
        self.recorder, self.marked = recorder, list[Tensor]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        static = [tensor for tensor in tensors if self.recorder.is_static(tensor)]
        if any(map(self.recorder.is_dynamic, tensors)):
            for tensor in static:
                if tensor.is_floating_point() and not tensor.requires_grad:
                    self.marked.append(tensor.requires_grad_())
        elif static:
            # What is computed from a marked tensor and others is marked when it is read: if autograd went
            # through it to the marked one, the gradients of the others would be lost.
            with torch.no_grad():
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def operation(func: Any) -> str:
    name: str = func._schema.name.split("::")[1]
    return name.removesuffix("_") if func._schema.is_mutable else name


def is_view(func: Any) -> bool:
    """Whether an operation returns other views of its operands and changes none of them."""
    returned = [value.alias_info for value in func._schema.returns]
    return bool(returned) and all(info is not None and not info.is_write for info in returned)


# ------------------------------------------------------------------------------------ operations


def product(recorder: StepRecorder, x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> View:
    """x [rows, inputs] times a matrix [inputs, outputs] of weights; or the same, both transposed."""
    if recorder.is_matrix(x) and recorder.is_dynamic(matrix) and matrix.shape[1] == 1:
        made = product(recorder, matrix.T, x.T).reshaped((x.shape[0], 1))
        return made if bias is None else recorder.add("add", recorder.operand(bias), made)
    if not recorder.is_dynamic(x) or not recorder.is_matrix(matrix):
        raise NotPointwise(f"step multiplies two matrices that both depend on its input{user_line()}")
    return recorder.add_product(x, matrix, bias)


def added_product(
    recorder: StepRecorder, bias: Tensor, x: Tensor, matrix: Tensor, beta: float = 1, alpha: float = 1
) -> View:
    if (beta, alpha) != (1, 1):
        raise NotPointwise(f"step scales a product by beta={beta} and alpha={alpha}{user_line()}")
    return product(recorder, x, matrix, bias)


def matrix_vector(recorder: StepRecorder, matrix: Tensor, x: Tensor) -> View:
    view = product(recorder, x[None], matrix.T)
    return View(view.base, 0, (matrix.shape[0],), (1,))


def joined(recorder: StepRecorder, tensors: Sequence[Tensor], axis: int = 0) -> View:
    tensors = [tensor for tensor in tensors if tensor.numel()]
    shape = list(tensors[0].shape)
    axis %= len(shape)
    shape[axis] = sum(tensor.shape[axis] for tensor in tensors)
    strides, at, targets = row_major(shape), 0, []
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return recorder.number_of(tensors[0])
    for tensor in tensors:
        targets.append(View("", at * strides[axis], tuple(tensor.shape), strides))
        at += tensor.shape[axis]
    return recorder.node("place", tuple(map(recorder.number_of, tensors)), shape, targets=tuple(targets))


def stacked(recorder: StepRecorder, tensors: Sequence[Tensor], axis: int = 0) -> View:
    piece = tuple(tensors[0].shape)
    axis %= len(piece) + 1
    shape = (*piece[:axis], len(tensors), *piece[axis:])
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return recorder.number_of(tensors[0]).reshaped(shape)
    strides = row_major(shape)
    within = (*strides[:axis], *strides[axis + 1 :])
    targets = tuple(View("", i * strides[axis], piece, within) for i in range(len(tensors)))
    return recorder.node("place", tuple(map(recorder.number_of, tensors)), shape, targets=targets)


def placed(recorder: StepRecorder, x: Tensor, shape: Sequence[int], target: Tensor) -> View:
    """x in zeros of `shape`; `target` is a view of such a tensor."""
    where = View("", int(target.storage_offset()), tuple(target.shape), target.stride())
    return recorder.node("place", (recorder.number_of(x),), shape, targets=(where,))


def gradient_of_view(view: Callable[..., Tensor]) -> Callable[..., View]:
    """The gradient of a view: zeros, and what was viewed."""

    def place(recorder: StepRecorder, gradient: Tensor, sizes: Sequence[int], *args: Any) -> View:
        return placed(recorder, gradient, sizes, view(torch.empty(sizes), *args))

    return place


def padded(recorder: StepRecorder, x: Tensor, pad: Sequence[int], value: float = 0) -> View:
    """Zeros around x; fewer than none, as in the gradient, cut it."""
    if value:
        raise NotPointwise(f"step pads a tensor by other numbers than zeros{user_line()}")
    shape = list(x.shape)
    widths = {-1 - i: (pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)}
    for axis, (before, after) in widths.items():
        x = x.narrow(axis, max(0, -before), x.shape[axis] + min(0, before) + min(0, after))
        shape[axis] += before + after
    inside = torch.empty(shape)
    for axis, (before, _) in widths.items():
        inside = inside.narrow(axis, max(0, before), x.shape[axis])
    return placed(recorder, x, shape, inside)


def moved(func: Callable[..., Tensor]) -> Callable[..., View]:
    """An operation that copies numbers to other places, which it tells if it moves the places themselves."""

    def move(recorder: StepRecorder, x: Tensor, *args: Any, **kwargs: Any) -> View:
        check_constant(recorder, (args, kwargs))
        found = func(torch.arange(x.numel()).view(x.shape), *args, **kwargs)
        table = tuple(found.flatten().tolist())
        return recorder.node("gather", (recorder.number_of(x),), found.shape, table=table)

    return move


def check_constant(recorder: StepRecorder, arguments: Any) -> None:
    for leaf in tree_leaves(arguments):
        if recorder.is_dynamic(leaf) or recorder.is_static(leaf):
            raise NotPointwise(f"the step computes which numbers it reads{user_line()}")


def added_at(
    recorder: StepRecorder, x: Tensor, axis: int, index: Tensor, source: Tensor, alpha: float = 1
) -> View:
    """index_add: the gradient of index_select."""
    check_constant(recorder, index)
    found = torch.arange(x.numel()).view(x.shape).index_select(axis, index)
    return added(recorder, x, found, recorder.add("mul", recorder.number_of(source), alpha))


def put_at(recorder: StepRecorder, x: Tensor, indices: Any, source: Tensor, accumulate: bool = False) -> View:
    """index_put with accumulation: the gradient of an index."""
    if not accumulate:
        raise NotPointwise(f"step writes numbers to some places of a tensor{user_line()}")
    check_constant(recorder, indices)
    found = torch.ops.aten.index(torch.arange(x.numel()).view(x.shape), indices)
    return added(recorder, x, found, recorder.number_of(source.expand(found.shape)))


def added(recorder: StepRecorder, x: Tensor, found: Tensor, source: View) -> View:
    table = found.flatten().tolist()
    if sorted(table) == list(range(x.numel())):
        # Another order: each number has one place.
        inverse = [0] * len(table)
        for i, place in enumerate(table):
            inverse[place] = i
        made = recorder.node("gather", (source,), x.shape, table=tuple(inverse))
    else:
        made = recorder.node("scatter_add", (source,), x.shape, table=tuple(table))
    before = recorder.operand(x)
    return made if before == 0.0 else recorder.add("add", before, made)


def reduction(kind: str, mean: bool = False) -> Callable[..., View]:
    def reduce(recorder: StepRecorder, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> View:
        return reduced(recorder, kind, recorder.number_of(x), dim, keepdim, mean)

    return reduce


def reduced(
    recorder: StepRecorder, kind: str, x: View, dim: Any, keepdim: bool = False, mean: bool = False
) -> View:
    count = len(x.shape)
    chosen = range(count) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    over = sorted(axis % count for axis in chosen)
    axes = tuple(axis for axis in over if x.shape[axis] > 1)
    kept = tuple(size for axis, size in enumerate(x.shape) if axis not in over)
    shape = tuple(1 if axis in over else size for axis, size in enumerate(x.shape)) if keepdim else kept
    if not axes:
        return x.reshaped(shape) if x.is_contiguous else recorder.node("copy", (x,), x.shape).reshaped(shape)
    made = recorder.node(kind, (x,), kept, axes=axes)
    if mean:
        made = recorder.add("div", made, float(math.prod(x.shape[axis] for axis in axes)))
    return made.reshaped(shape)


def variance_and_mean(
    recorder: StepRecorder, x: Tensor, dim: Any = None, correction: float | None = 1, keepdim: bool = False
) -> tuple[View, View]:
    view = recorder.number_of(x)
    mean = reduced(recorder, "sum", view, dim, True, mean=True)
    apart = recorder.add("sub", view, mean)
    total = reduced(recorder, "sum", recorder.add("mul", apart, apart), dim, keepdim)
    left = x.numel() // total.size - (1 if correction is None else correction)
    spread = recorder.add("div", total, float(left))
    return spread, mean.reshaped(spread.shape)


def variance(*args: Any, **kwargs: Any) -> View:
    return variance_and_mean(*args, **kwargs)[0]


def vector_norm(
    recorder: StepRecorder,
    x: Tensor,
    order: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> View:
    sizes = recorder.add("abs", recorder.number_of(x))
    if order == math.inf:
        return reduced(recorder, "amax", sizes, dim, keepdim)
    powers = sizes if order == 1 else recorder.add("pow", sizes, float(order))
    total = reduced(recorder, "sum", powers, dim, keepdim)
    if order == 2:
        return recorder.add("sqrt", total)
    return total if order == 1 else recorder.add("pow", total, 1 / order)


def reshaped(recorder: StepRecorder, x: Tensor, shape: Sequence[int]) -> View:
    return recorder.number_of(x.contiguous()).reshaped(x.reshape(shape).shape)


def filled(recorder: StepRecorder, x: Tensor, value: Any) -> Any:
    return recorder.operand(value)


STRUCTURAL: dict[str, Callable[..., Any]] = {
    "mm": product,
    "addmm": added_product,
    "mv": matrix_vector,
    "cat": joined,
    "stack": stacked,
    "constant_pad_nd": padded,
    "slice_backward": gradient_of_view(lambda x, axis, *where: torch.ops.aten.slice(x, axis, *where)),
    "select_backward": gradient_of_view(torch.select),
    "index_select": moved(torch.index_select),
    "index": moved(torch.ops.aten.index),
    "gather": moved(torch.gather),
    "repeat": moved(Tensor.repeat),
    "flip": moved(torch.flip),
    "roll": moved(torch.roll),
    "index_add": added_at,
    "index_put": put_at,
    "sum": reduction("sum"),
    "mean": reduction("sum", mean=True),
    "amax": reduction("amax"),
    "var_mean": variance_and_mean,
    "var": variance,
    "linalg_vector_norm": vector_norm,
    "fill": filled,
    "_unsafe_view": reshaped,
}
PRODUCTS = ("mm", "addmm", "mv")
assert not STRUCTURAL.keys() & RECORDED.keys()
