"""From a step that is not elementwise to a `Traced` step: its graph, and that of its gradient."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from linnet.base.torch_private import only_mode
from linnet.program import blocks
from linnet.program.graph import Graph, Node, Value, needed
from linnet.program.record import (
    Marking,
    Product,
    Reference,
    StaticCall,
    StepRecorder,
    address,
    read_part,
    run_static,
)
from linnet.program.trace import Inner, NotPointwise, Traced, Values, undisturbed, user_line
from linnet.program.views import View, whole

# inputs, states, parameters -> y, new states; all by name.
ShapedStep = Callable[[Values, Values, Values], tuple[Tensor, Values]]


@dataclass(frozen=True)
class Derived:
    """What the weights and matrices of a recorded step are: parameters, or computed from these by torch.

    parameters   by name, with their shapes
    weights      the numbers of the tensors: the parameters, and then the results of `calls`
    matrices     likewise; with a reference if a product does not read the whole tensor, transposed
    """

    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    calls: tuple[StaticCall, ...]
    weights: tuple[int, ...]
    matrices: tuple[tuple[int, Reference | None], ...]

    @property
    def are_parameters(self) -> bool:
        """Whether kernels can read the parameters themselves, so that changes in place take effect."""
        numbers = (*self.weights, *(number for number, _ in self.matrices))
        whole = all(reference is None for _, reference in self.matrices)
        return whole and all(number < len(self.parameters) for number in numbers)


# Functions and not methods: torch.compile traces them, and cannot call a method of a constant.


def derived_tensors(derived: Derived, parameters: Mapping[str, Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The weights [n] and the matrices [outputs, inputs] for these parameters, by name."""
    results = []
    for name, shape in derived.parameters:
        if tuple(parameters[name].shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(parameters[name].shape)} instead of {shape}")
        results.append(parameters[name].contiguous())
    for call in derived.calls:
        run_static(call, results)
    weights = [results[number].flatten() for number in derived.weights]
    # A product is x matrix, and kernels take the transposed matrix.
    return weights, [
        results[n] if part is None else read_part(part, results).T for n, part in derived.matrices
    ]


def whole_or_part(matrix: Reference, base: Tensor) -> tuple[int, Reference | None]:
    """A matrix of `Derived`."""
    whole_matrix = View("", matrix.offset, matrix.shape[::-1], matrix.strides[::-1]) == whole("", base.shape)
    return matrix.number, None if whole_matrix else matrix


def record_step(
    step: ShapedStep,
    inputs: Mapping[str, int],
    states: Mapping[str, int],
    parameters: Mapping[str, Sequence[int]],
    dtype: torch.dtype = torch.float64,
) -> tuple[Traced, Derived]:
    """Record a step and its gradient; raise NotPointwise if it does what kernels cannot.

    inputs, states   the number of channels of each
    parameters       the shape of each
    """
    with undisturbed():
        return Recording(inputs, states, parameters, dtype).record(step)


class Recording:
    def __init__(
        self,
        inputs: Mapping[str, int],
        states: Mapping[str, int],
        parameters: Mapping[str, Sequence[int]],
        dtype: torch.dtype,
    ):
        self.recorder, self.sizes = StepRecorder(), {**inputs, **states}
        # Any values, but for those where a derivative jumps.
        self.source, self.dtype = torch.Generator().manual_seed(0), dtype
        self.inputs, self.states = list(inputs), list(states)
        self.leaves = {name: self.leaf(name, (1, size)) for name, size in self.sizes.items()}
        self.parameters = {
            name: self.recorder.take_parameter(name, self.random(shape)) for name, shape in parameters.items()
        }

    def random(self, shape: Sequence[int]) -> Tensor:
        return torch.rand(tuple(shape), generator=self.source, dtype=self.dtype)

    def leaf(self, name: str, shape: Sequence[int]) -> Tensor:
        return self.recorder.take(name, self.random(shape).requires_grad_())

    def record(self, step: ShapedStep) -> tuple[Traced, Derived]:
        recorder, marking = self.recorder, Marking(self.recorder)
        given = {name: self.leaves[name] for name in self.inputs}
        held = {name: self.leaves[name] for name in self.states}
        try:
            with only_mode(marking), recorder, blocks.separately():
                y, new = step(given, held, dict(self.parameters))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            where = user_line(traceback.extract_tb(error.__traceback__))
            raise NotPointwise(f"step does not run on a batch of one sequence: {error}{where}") from error
        outputs = {"y": y, **{f"new.{name}": new[name] for name in self.states}}
        self.check_outputs(outputs)
        # Truth values as numbers.
        forward = {name: recorder.as_number("", recorder.operand(output)) for name, output in outputs.items()}
        count = len(recorder.nodes)
        # Matrices are marked, too, if no node reads them; their gradients are products over all steps.
        marked = [t for t in marking.marked if recorder.statics[address(t)] in recorder.weights]
        gradients = self.differentiate(outputs, marked)
        return self.traced(forward, gradients, count)

    def check_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        for name, output in outputs.items():
            state = name.removeprefix("new.")
            if (
                output.dim() != 2
                or len(output) != 1
                or self.sizes.get(state, output.shape[1]) != output.shape[1]
            ):
                raise NotPointwise(f"step makes {name} of the shape {tuple(output.shape)} for one sequence")
        self.sizes["y"] = outputs["y"].shape[1]

    def differentiate(self, outputs: Mapping[str, Tensor], marked: Sequence[Tensor]) -> dict[str, Value]:
        """The gradients of inputs, states, weights and products, as values."""
        recorder = self.recorder
        above = {f"d{name}": self.leaf(f"d{name}", output.shape).detach() for name, output in outputs.items()}
        varying = [name for name, output in outputs.items() if output.requires_grad]
        made = [product.tensor for product in recorder.products if product.tensor is not None]
        wanted = [*self.leaves.values(), *marked, *made]
        forward_products = list(recorder.products)
        recorder.differentiates = True
        with recorder:
            found = torch.autograd.grad(
                [outputs[name] for name in varying],
                wanted,
                [above[f"d{name}"] for name in varying],
                allow_unused=True,
            )
            values = [None if gradient is None else recorder.operand(gradient) for gradient in found]
            gradients = {f"d.{name}": value for name, value in zip(self.leaves, values, strict=False)}
            gradients |= self.weight_gradients(marked, values[len(self.leaves) :])
        of_products = values[len(self.leaves) + len(marked) :]
        for i, value in enumerate(of_products):
            gradients[f"d.made.{i}"] = value
        self.backward_products = recorder.products[len(forward_products) :]
        recorder.products = forward_products
        return {name: 0.0 if value is None else value for name, value in gradients.items()}

    def weight_gradients(self, marked: Sequence[Tensor], values: Sequence[Any]) -> dict[str, Any]:
        """Those of the weights that nodes read: marked tensors may be views of these."""
        recorder = self.recorder
        gradients: dict[str, Any] = {}
        for tensor, value in zip(marked, values, strict=False):
            number = recorder.statics[address(tensor)]
            if value is None:
                continue
            name, base = f"d.{recorder.weights[number]}", recorder.static_tensors[number]
            view = View("", int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride())
            if view != whole("", base.shape):
                value = recorder.node("place", (value,), (base.numel(),), targets=(view,))
            elif isinstance(value, View):
                value = value if value.is_contiguous else recorder.node("copy", (value,), value.shape)
                value = value.reshaped((base.numel(),))
            before = gradients.get(name)
            gradients[name] = value if before is None else recorder.add("add", before, value)
        return gradients

    # ------------------------------------------------------------------------------------- graphs

    def traced(
        self, forward: dict[str, Value], gradients: dict[str, Value], count: int
    ) -> tuple[Traced, Derived]:
        recorder, products = self.recorder, self.recorder.products
        renamed = {product.result: f"made.{i}" for i, product in enumerate(products)}
        made = tuple(renamed.values())
        renamed |= self.names_of_backward_products(gradients)
        forward |= {f"inner.{i}": product.source for i, product in enumerate(products)}
        weights = tuple(recorder.weights.values())
        self.sizes |= {f"made.{i}": product.outputs for i, product in enumerate(products)}
        self.sizes |= {f"inner.{i}": product.source.size for i, product in enumerate(products)}
        self.sizes |= {w: recorder.static_tensors[number].numel() for number, w in recorder.weights.items()}
        names = (*self.inputs, *made, *self.states, *weights)
        above = [f"d{name}" for name in forward]
        backward = {f"d.{name}": gradients.get(f"d.{name}", 0.0) for name in names}
        graphs = [
            graph_of(names, recorder.nodes[:count], forward, renamed, recorder.constants),
            graph_of((*names, *above), recorder.nodes, backward, renamed, recorder.constants),
        ]
        inner = tuple(Inner(f"matrix {i}", (name,)) for i, name in enumerate(made))
        ordered = tuple(
            (name, self.sizes[name]) for name in (*names, "y", *(f"inner.{i}" for i in range(len(made))))
        )
        forward_graph, backward_graph = graphs
        traced = Traced(
            (*self.inputs, *made),
            tuple(self.states),
            weights,
            forward_graph,  # type: ignore[arg-type]
            backward_graph,  # type: ignore[arg-type]
            inner,
            ordered,
        )
        return traced, self.derived()

    def names_of_backward_products(self, gradients: Mapping[str, Value]) -> dict[str, str]:
        """The product with the transposed matrix of inner product i makes `dinner.i`."""
        renamed, free = {}, dict(enumerate(self.recorder.products))
        for backward in self.backward_products:
            found = [
                i for i, product in free.items() if is_gradient(backward, product, gradients[f"d.made.{i}"])
            ]
            if not found:
                raise NotPointwise(
                    "the gradient of the step has a product that is not that of one of its products"
                )
            renamed[backward.result] = f"dinner.{found[0]}"
            del free[found[0]]
        return renamed

    def derived(self) -> Derived:
        recorder = self.recorder
        tensors, numbers = recorder.static_tensors, tuple(recorder.weights)
        matrices = [whole_or_part(p.matrix, tensors[p.matrix.number]) for p in recorder.products]
        read = max((*numbers, *(number for number, _ in matrices)), default=0)
        calls = recorder.static_calls if read >= len(self.parameters) else []
        shapes = tuple((name, tuple(parameter.shape)) for name, parameter in self.parameters.items())
        return Derived(shapes, tuple(calls), numbers, tuple(matrices))


def is_gradient(backward: Product, product: Product, gradient: Value) -> bool:
    """Whether one product is that of the gradient of another: with the same matrix, transposed."""
    same = backward.matrix.number == product.matrix.number and backward.matrix.offset == product.matrix.offset
    transposed = (backward.matrix.shape, backward.matrix.strides) == (
        product.matrix.shape[::-1],
        product.matrix.strides[::-1],
    )
    read = backward.source
    return (
        same
        and transposed
        and isinstance(gradient, View)
        and (read.base, read.offset) == (gradient.base, gradient.offset)
    )


def graph_of(
    inputs: Sequence[str],
    nodes: Sequence[Node],
    outputs: Mapping[str, Value],
    renamed: Mapping[str, str],
    constants: Mapping[str, Tensor],
) -> Graph:
    def other(value: Value) -> Value:
        return replace(value, base=renamed.get(value.base, value.base)) if isinstance(value, View) else value

    kept = [
        replace(node, operands=tuple(map(other, node.operands))) for node in needed(nodes, outputs.values())
    ]
    values = tuple((name, other(value)) for name, value in outputs.items())
    read = {view.base for node in kept for view in node.views}
    read |= {value.base for _, value in values if isinstance(value, View)}
    used = tuple(
        (name, tuple(numbers.double().flatten().tolist()))
        for name, numbers in constants.items()
        if name in read
    )
    return Graph(tuple(inputs), tuple(kept), values, used)
