"""From a unit's `step` to two lists of pointwise operations: the step itself, and its gradient.

`step` runs once on scalars, and every operation that torch dispatches is recorded. Then autograd
differentiates the result, and the operations that it dispatches are the gradient: no backward is
written by hand. The backward recomputes what it needs of the forward, so that only the inputs and
the states have to be stored.

    forward    inputs, states, weights                       -> y, new states
    backward   inputs, states, weights, dy, d(new states)    -> d(inputs), d(states), d(weights)

A step may multiply something that it has computed by a matrix. What such an inner product reads is then one
more output of the step, and what it makes are further inputs; see program/phases.py.

A recorder of our own is used instead of torch.fx: it records the same operations, and imports nothing heavy
before a first call (see docs/log.md).
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linnet.base.torch_private import (
    DispatchMode,
    decompositions,
    disable_current_modes,
    disable_torch_functions,
    set_tracing_state,
    temporarily_clear_interpreter_stack,
    tracing_state,
    without_saved_tensors_hooks,
)
from linnet.program.hoist import hoistable, needed_lines
from linnet.program.lines import Line, Operand, Pointwise
from linnet.program.local_values import Call, all_variables, watching

Values = dict[str, Tensor]
# inputs, states, weights -> y, new states; all by name. With inner products it takes `multiply`, a Multiply.
Step = Callable[..., tuple[Tensor, Values]]

PACKAGE = Path(__file__).parents[1]
# What is called between the line of a unit and the operation of torch.
ROOMS = ("program", "cpu", "triton", "run", "deploy")


# Names that traces and kernels use themselves; see `safe_name`.
TAKEN = re.compile(r"x|y|dy|zeros|numbers|v\d+")


def safe_name(name: str) -> str:
    """Return a name for a part of a unit that differs from the names of the kernel's own operands."""
    return f"{name}." if TAKEN.fullmatch(name) else name


def name_in_unit(safe: str) -> str:
    return safe.removesuffix(".")


def in_kernel(values: Values) -> Values:
    """Values by the names that kernels use."""
    return {safe_name(name): value for name, value in values.items()}


def in_unit(values: Values) -> Values:
    """Values by the names that the unit uses."""
    return {name_in_unit(name): value for name, value in values.items()}


def bias_of(part: str) -> str:
    """The name of the bias of what a product makes, among the weights."""
    return f"bias.{name_in_unit(part)}"


class NotPointwise(Exception):  # noqa: N818, it says what the step is
    """A step did something that is not elementwise, so it cannot be fused."""


class Inner(NamedTuple):
    """A product within a step: the projection, by its name in the cell, and the inputs that it makes.

    heads   how many blocks its matrix has for each part; see program/blocks.py
    """

    attribute: str
    parts: tuple[str, ...]
    heads: int = 1


@dataclass(frozen=True)
class Traced:
    """What a kernel is made from. Inner product i reads the output `inner.i`, and makes the last inputs.

    sizes   the number of channels of each operand, of y and of what inner products read, if the step is not
            elementwise: it then consists of graphs (program/graph.py), whose shapes do not change
    """

    inputs: tuple[str, ...]
    states: tuple[str, ...]
    weights: tuple[str, ...]
    forward: Pointwise
    backward: Pointwise
    inner: tuple[Inner, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    output_state: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each call looks up its kernel by the traced step, so compute the hash once.
        object.__setattr__(self, "hash", hash((self.inputs, self.states, self.forward, self.backward)))
        # Not a cached_property: before Python 3.12 that has a lock, which another thread may hold at a fork.
        object.__setattr__(self, "output_state", self.find_output_state())

    def __hash__(self) -> int:
        return self.hash  # type: ignore[attr-defined]

    def find_output_state(self) -> str | None:
        """The state that equals the output, or None: its sequence need not be stored twice."""
        values = dict(self.forward.outputs)
        return next((name for name in self.states if values[f"new.{name}"] == values["y"]), None)


def trace(
    step: Step, inputs: Sequence[str], states: Sequence[str], weights: Sequence[str], multiplies: bool = False
) -> Traced:
    """Trace `step` and its gradient; raise NotPointwise if it does more than elementwise arithmetic.

    multiplies   `step` takes an argument `multiply`, by which it computes inner products
    """
    with undisturbed():
        return Tracing(inputs, states, weights).run(step, multiplies).traced()


class Hoisted(NamedTuple):
    """A step without what it computes from its weights alone.

    before   computes the weights that the step reads and that are not weights of the unit
    """

    traced: Traced
    before: Pointwise


def trace_hoisted(
    step: Step, inputs: Sequence[str], states: Sequence[str], weights: Sequence[str]
) -> Hoisted | None:
    """`trace`, with what depends on weights alone computed before; None if there is nothing of the kind."""
    with undisturbed():
        return Tracing(inputs, states, weights).run(step, multiplies=False).hoisted()


# attribute, what the product reads, the parts that it makes, those of them with a bias, heads -> the parts by
# name.
Multiply = Callable[[str, Tensor, Sequence[str], Sequence[str], int], Values]


class InnerProducts:
    """Stands for the products within a step while it is traced: what they make are further inputs."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.products: list[Inner] = []
        self.sources: Values = {}
        self.parts: Values = {}
        self.biases: Values = {}

    def __call__(
        self, attribute: str, source: Tensor, parts: Sequence[str], biased: Sequence[str], heads: int
    ) -> Values:
        if attribute in [product.attribute for product in self.products]:
            raise NotPointwise(f"step multiplies by self.{attribute} twice{user_line()}")
        self.sources[f"inner.{len(self.products)}"] = source
        self.products.append(Inner(attribute, tuple(parts), heads))
        with disable_current_modes():
            made = {name: self.recorder.input(name) for name in parts}
            biases = {name: self.recorder.input(bias_of(name)) for name in biased}
        self.parts |= made
        self.biases |= {bias_of(name): bias for name, bias in biases.items()}
        return {name: made[name] + biases[name] if name in biases else made[name] for name in parts}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compute with real numbers on the CPU, with gradients, whatever modes are active outside.

    What is computed here is kept, so it must not depend on them: compilers and tracers, torch.func, modes of
    functions and of dispatch, autocast, a default device, inference mode, and hooks on saved tensors, as
    those of torch.utils.checkpoint. Anomaly mode, which is one of the whole process, stays as it is; see
    `Recorder.anomaly_check`.
    """
    tracing = tracing_state()
    set_tracing_state(None)
    try:
        with (
            temporarily_clear_interpreter_stack(),
            without_saved_tensors_hooks(),  # a trace knows tensors by their identity
            disable_current_modes(),
            disable_torch_functions(),  # a default device, too
            torch.autocast("cpu", enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        set_tracing_state(tracing)


class Tracing:
    """One run of a step on scalars, and what is made of it."""

    def __init__(self, inputs: Sequence[str], states: Sequence[str], weights: Sequence[str]):
        self.recorder = Recorder()
        self.products = InnerProducts(self.recorder)
        groups = [{name: self.recorder.input(name) for name in names} for names in (inputs, states, weights)]
        self.inputs, self.states, self.weights = groups
        self.outputs: Values = {}

    def run(self, step: Step, multiplies: bool) -> Tracing:
        groups = (self.inputs, self.states, self.weights)
        try:
            with self.recorder:
                y, new = step(*groups, multiply=self.products) if multiplies else step(*groups)
        except RecursionError:  # of the caller: there may be room at the next call
            raise
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            where = user_line(traceback.extract_tb(error.__traceback__))
            raise NotPointwise(
                f"step does not run on scalars, so it is not elementwise: {error}{where}"
            ) from error
        states = {f"new.{name}": new[name] for name in self.states}
        self.outputs = {"y": y, **states, **self.products.sources}
        return self

    def traced(self) -> Traced:
        weights = {**self.weights, **self.products.biases}
        return self.graphs({name: [tensor] for name, tensor in weights.items()}, {})

    def hoisted(self) -> Hoisted | None:
        recorder = self.recorder
        outputs = [recorder.operand(output) for output in self.outputs.values()]
        values = hoistable(recorder.lines, outputs, self.weights)
        # What is computed inside of one of torch's operations has no gradient of its own.
        if not values or not all(t.requires_grad for value in values for t in recorder.results[value]):
            return None
        names: dict[Operand, str] = {value: f"static.{i}" for i, value in enumerate(values)}
        tensors = {name: list(recorder.results[value]) for value, name in names.items()}  # type: ignore[index]
        before = recorder.graph(list(self.weights), {name: same[0] for name, same in tensors.items()})
        forward = recorder.graph((), self.outputs, names)
        read = {operand for line in forward.lines for operand in line.operands}
        own = {name: [tensor] for name, tensor in self.weights.items() if name in read}
        return Hoisted(self.graphs({**own, **tensors}, names), before)

    def graphs(self, weights: Mapping[str, list[Tensor]], names: Mapping[Operand, str]) -> Traced:
        """The step and its gradient.

        weights   the tensors that each weight is: one that was computed twice is two
        names     those of weights by the results that they replace
        """
        given = {**self.inputs, **self.products.parts}
        leaves = {name: [tensor] for name, tensor in {**given, **self.states}.items()}
        leaves |= weights
        forward = self.recorder.graph(list(leaves), self.outputs, names)
        above = {f"d{name}": self.recorder.input(f"d{name}") for name in self.outputs}
        # A constant output has no gradient.
        varying = [name for name, output in self.outputs.items() if output.requires_grad]
        gradients = self.recorder.gradients(
            [self.outputs[name] for name in varying],
            list(leaves.values()),
            [above[f"d{name}"] for name in varying],
        )
        results = {f"d.{name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        backward = self.recorder.graph([*leaves, *above], results, names)
        inner = tuple(self.products.products)
        return Traced(tuple(given), tuple(self.states), tuple(weights), forward, backward, inner)


def trace_names(
    step: Step, functions: Iterable[Callable[..., Any]], names: Sequence[Sequence[str]]
) -> tuple[dict[str, Line], dict[str, Operand], dict[str, Operand]]:
    """Trace `step`, whose inputs, states and weights have these `names`.

    Returns the operations by their results, the new states, and the local variables that `functions`, which
    `step` calls, have when they return.
    """
    recorder, calls = Recorder(), list[Call]()
    with undisturbed():
        groups = [{name: recorder.input(name) for name in group} for group in names]
        with watching(functions, calls), recorder:
            _, new = step(*groups)
        named = {
            name: recorder.names[id(value)]
            for call in calls
            for name, value in all_variables(call).items()
            if id(value) in recorder.names
        }
    states = {name: recorder.operand(new[name]) for name in groups[1]}
    return {line.result: line for line in recorder.lines}, states, named


# The answer to a question of anomaly mode.
ANSWER = torch.zeros((), dtype=torch.bool, device="cpu")


class Recorder(DispatchMode):
    """Records each operation on scalars, in terms of the few operations that an emitter knows.

    Equal operations are recorded once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self.recorded: dict[tuple[str, tuple[str, ...]], str] = {}
        # Names by identity; the tensors are kept so that no identity is used twice.
        self.names: dict[int, Operand] = {}
        self.kept: list[Tensor] = []
        # The tensors that are the result of a line, of which there may be several: equal operations.
        self.results: dict[str, list[Tensor]] = {}
        # What `isnan` was asked of while differentiating, by the identity of its result; see `anomaly_check`.
        self.asked: dict[int, Tensor] = {}
        self.is_differentiating = False

    def gradients(
        self, outputs: Sequence[Tensor], leaves: Sequence[Sequence[Tensor]], above: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """The gradient of each group of leaves, which stand for one value: the sum of those of the group."""
        self.is_differentiating = True
        every = [leaf for group in leaves for leaf in group]
        try:
            with self:
                found = iter(torch.autograd.grad(outputs, every, above, allow_unused=True))
                return [total([next(found) for _ in group]) for group in leaves]
        finally:
            self.is_differentiating = False

    def anomaly_check(self, op: str, value: Any) -> Any:
        """In anomaly mode, autograd asks of each gradient `isnan(value)._is_any_true().item()`. It is not.

        The numbers of a trace have no meaning. The mode is one of the whole process, so it is not switched
        off: it would be off for other threads, too. Returns None if this is another operation.
        """
        if op == "isnan":
            made = torch.isnan(value)
            self.kept.append(made)
            self.asked[id(made)] = value
            return made
        if op == "_is_any_true" and id(value) in self.asked:
            return ANSWER
        return False if op == "_local_scalar_dense" and value is ANSWER else None

    def input(self, name: str) -> Tensor:
        # Any value, except where relu and abs have no derivative.
        scalar = torch.full((), 0.5, dtype=torch.float64, requires_grad=True)
        self.name(scalar, name)
        return scalar

    def name(self, tensor: Tensor, name: Operand) -> None:
        self.names[id(tensor)] = name
        self.kept.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = func._schema.name.split("::")[1]
        in_place = op.endswith("_") and not op.endswith("__")
        op = op.rstrip("_") if in_place else op
        answer = self.anomaly_check(op, *args[:1]) if self.is_differentiating else None
        if answer is not None:
            return answer
        if op not in RECORDED:
            return self.decompose(func, args, kwargs)
        result = func(*args, **kwargs)
        self.check_kinds(func, result, args)
        operands = [self.operand(value) for value in args]
        options = {key: value for key, value in kwargs.items() if key in ("alpha", "min", "max")}
        if kwargs.get("rounding_mode") is not None:
            raise NotPointwise(
                f"step uses {func} with rounding_mode={kwargs['rounding_mode']!r}{user_line()}"
            )
        value = RECORDED[op](self, *operands, **options)
        self.name(result, value)
        if op not in SAME and isinstance(value, str):
            self.results.setdefault(value, []).append(result)
        return result

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Replace an operation by known ones, as torch does; raise NotPointwise if torch cannot."""
        by_others = DECOMPOSED.get(func._schema.name) or decompositions().get(func)
        if by_others is None:
            raise NotPointwise(
                f"step uses {func}, which is not an elementwise operation that can be fused{user_line()}"
            )
        with self:
            return by_others(*args, **kwargs)

    def operand(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in self.names:
            return self.names[id(value)]
        if id(value) in self.asked:
            return self.add("ne", *[self.operand(self.asked[id(value)])] * 2)
        # A tensor that is neither an input nor computed from one, such as a buffer, may change after tracing.
        raise NotPointwise(f"step uses a tensor that is neither an input nor a parameter{user_line()}")

    def check_kinds(self, func: Any, result: Tensor, args: Sequence[Any]) -> None:
        """Kernels have one kind of number and truth values, without conversions between them."""
        kinds = {value.dtype for value in (result, *args) if isinstance(value, Tensor)}
        name = func._schema.name.split("::")[1]
        # Numbers that do not depend on an input may have torch's default dtype until they are combined with
        # one that does.
        narrowed = name in SAME and len(kinds) > 1 and result.dtype != torch.float64
        if not kinds <= {torch.float64, torch.float32, torch.bool} or narrowed:
            raise NotPointwise(f"step uses {func} on numbers of the dtypes {kinds}{user_line()}")
        truths = {value.dtype == torch.bool for value in (result, *args) if isinstance(value, Tensor)}
        if len(truths) > 1 and name not in TRUTH_MAKERS:
            raise NotPointwise(f"step uses {func} between numbers and truth values{user_line()}")
        if truths == {True} and not name.startswith(("logical", "bitwise", "__", *SAME)):
            raise NotPointwise(f"step uses {func} on truth values{user_line()}")

    def add(self, op: str, *operands: Any) -> str:
        values = tuple(value if isinstance(value, str) else float(value) for value in operands)
        # Compared as text, since 0.0 and -0.0 are equal but not the same number.
        key = (op, tuple(map(repr, values)))
        if key not in self.recorded:
            self.recorded[key] = f"v{len(self.lines)}"
            self.lines.append(Line(self.recorded[key], op, values))
        return self.recorded[key]

    def graph(
        self,
        inputs: Sequence[str],
        outputs: Mapping[str, Tensor | None],
        given: Mapping[Operand, str] = {},
    ) -> Pointwise:
        """The lines that the outputs need; an output that depends on nothing is 0.

        given   results that are inputs of the graph, and their names there
        """
        values = {name: 0.0 if t is None else self.operand(t) for name, t in outputs.items()}
        values = {name: given.get(value, value) for name, value in values.items()}
        lines = [replace(line, operands=tuple(given.get(o, o) for o in line.operands)) for line in self.lines]
        needed = needed_lines([line for line in lines if line.result not in given], values.values())
        return Pointwise(tuple(inputs), tuple(needed), tuple(values.items()))


def total(gradients: Sequence[Tensor | None]) -> Tensor | None:
    some = [gradient for gradient in gradients if gradient is not None]
    return sum(some[1:], some[0]) if some else None


def interpret(graph: Pointwise, values: Values) -> Values:
    """Run a traced graph with torch, to compare it with the step that it was traced from."""
    known: dict[str, Tensor] = dict(values)
    # On their device, whatever the default is, and of their kind: the values may be fake tensors.
    number = partial(next(iter(values.values())).new_full, (), dtype=torch.float64)

    def tensor(operand: Operand) -> Tensor:
        return known[operand] if isinstance(operand, str) else number(fill_value=operand)

    for line in graph.lines:
        known[line.result] = getattr(torch, line.op)(*map(tensor, line.operands))
    return {name: tensor(operand) for name, operand in graph.outputs}


def user_line(stack: traceback.StackSummary | None = None) -> str:
    """The line of the user's code that calls the operation."""
    inside = (str(Path(torch.__file__).parent), *(str(PACKAGE / room) for room in ROOMS))
    stack = traceback.extract_stack() if stack is None else stack
    frames = [frame for frame in stack if not frame.filename.startswith(inside)]
    return f" ({frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""


def scaled(record: Recorder, value: Any, by: float) -> Any:
    return value if by == 1 else record.add("mul", value, by)


def clamped(record: Recorder, x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else record.add("maximum", x, min)
    return x if max is None else record.add("minimum", x, max)


def one_minus(record: Recorder, x: Any) -> str:
    return record.add("sub", 1.0, x)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """F.logsigmoid; and a tensor for its gradient, which does not read it."""
    return torch.clamp(x, max=0) - torch.log1p(torch.exp(-torch.abs(x))), x


def log_sigmoid_backward(above: Tensor, x: Tensor, _: Tensor) -> Tensor:
    return above * torch.sigmoid(-x)


# Operations that torch's decompositions compute by new tensors or by integers, which cannot be recorded.
DECOMPOSED: dict[str, Callable[..., Any]] = {
    "aten::log_sigmoid_forward": log_sigmoid,
    "aten::log_sigmoid_backward": log_sigmoid_backward,
}


def recorded_as(op: str) -> Callable[..., str]:
    return lambda record, *operands: record.add(op, *operands)


# Operations that do not change a scalar.
SAME = ("clone", "detach", "alias", "to", "_to_copy", "convert_element_type")
TRUTH_MAKERS = {"gt", "ge", "lt", "le", "eq", "ne", "where", "masked_fill", "masked_fill_"}
# The operations that an emitter must implement. Comparisons return truth values, which only `where` and the
# logical operations take.
OPERATIONS = (
    *("add", "sub", "mul", "div", "maximum", "minimum", "pow"),
    *("neg", "abs", "sign", "exp", "log", "sqrt", "sin", "cos", "floor", "sigmoid", "tanh", "expm1", "log1p"),
    *("gt", "ge", "lt", "le", "eq", "ne"),
    *("where", "logical_and", "logical_or", "logical_not"),
)
COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne")
LOGICAL = ("logical_and", "logical_or", "logical_not")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", *COMPARISONS, "logical_and", "logical_or")
# How many operands each takes.
COUNTS = {op: 3 if op == "where" else 2 if op in BINARY else 1 for op in OPERATIONS}
RECORDED: dict[str, Callable[..., Any]] = {
    **{op: recorded_as(op) for op in OPERATIONS},
    "add": lambda r, a, b, alpha=1: r.add("add", a, scaled(r, b, alpha)),
    "sub": lambda r, a, b, alpha=1: r.add("sub", a, scaled(r, b, alpha)),
    "rsub": lambda r, a, b, alpha=1: r.add("sub", b, scaled(r, a, alpha)),
    "relu": lambda r, x: r.add("maximum", x, 0.0),
    "square": lambda r, x: r.add("mul", x, x),
    "reciprocal": lambda r, x: r.add("div", 1.0, x),
    "rsqrt": lambda r, x: r.add("div", 1.0, r.add("sqrt", x)),
    "sgn": lambda r, x: r.add("sign", x),
    "clamp": clamped,
    "clamp_min": clamped,
    "bitwise_and": lambda r, a, b: r.add("logical_and", a, b),
    "bitwise_or": lambda r, a, b: r.add("logical_or", a, b),
    "bitwise_not": lambda r, a: r.add("logical_not", a),
    "sigmoid_backward": lambda r, g, y: r.add("mul", g, r.add("mul", y, one_minus(r, y))),
    "tanh_backward": lambda r, g, y: r.add("mul", g, one_minus(r, r.add("mul", y, y))),
    "threshold_backward": lambda r, g, x, at: r.add("where", r.add("le", x, at), 0.0, g),
    "masked_fill": lambda r, x, where, value: r.add("where", where, value, x),
    "__and__": lambda r, a, b: r.add("logical_and", a, b),
    "__or__": lambda r, a, b: r.add("logical_or", a, b),
    "zeros_like": lambda r, *_: 0.0,
    "ones_like": lambda r, *_: 1.0,
    "full_like": lambda r, _, value, *__: float(value),
    "scalar_tensor": lambda r, value, *_: float(value),
    **dict.fromkeys(SAME, lambda r, x, *_: x),
}
