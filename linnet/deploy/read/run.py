"""Running a graph: the first call of a kind checks everything and records a plan, later calls run the plan.

What depends on the shapes of the inputs alone (sizes of reshapes, conditions on lengths) is computed once and
is not in the plan. Each operator runs on tensors without memory first, which tells how much memory it takes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.base.torch_private import DispatchMode
from linnet.deploy.read.call import OPERATORS, Call, Operator
from linnet.deploy.read.errors import UnreadableModel
from linnet.deploy.read.graph import Graph, Node
from linnet.deploy.read.limits import NODES, Account, size_of
from linnet.deploy.read.operators.table import ELSE, IF, THEN

# Names of values and their numbers in a plan; a subgraph sees the names of the graphs around it.
Scope = ChainMap[str, int]
# What torch raises for arguments that do not fit.
TORCH_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError)


@dataclass
class Step:
    """A function with the numbers of the values it reads and writes, and of those that nobody reads later.

    A source is the number of a value, or a value itself as `Given`.
    """

    function: Any
    sources: list[int | Given]
    outputs: list[int | None]
    released: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Given:
    value: Any


@dataclass
class Plan:
    inputs: list[int]
    outputs: list[int]
    constants: dict[int, Tensor] = field(default_factory=dict)
    # The number of a value, and where its parameter is: parameters may be replaced between two calls.
    parameters: dict[int, tuple[nn.Module, str]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    size: int = 0

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        values: list[Any] = [None] * self.size
        for number, constant in self.constants.items():
            values[number] = constant
        for number, (owner, name) in self.parameters.items():
            values[number] = getattr(owner, name)
        for number, tensor in zip(self.inputs, inputs, strict=True):
            values[number] = tensor
        for step in self.steps:
            results = step.function(*[values[s] if isinstance(s, int) else s.value for s in step.sources])
            for made, result in zip(step.outputs, as_tuple(results), strict=False):
                if made is not None:
                    values[made] = result
            for number in step.released:
                values[number] = None
        return [values[number] for number in self.outputs]


class Interpreter:
    """Runs a graph once, with all checks, and records its plan.

    recording   False: nothing is kept, so conditions may depend on values
    """

    def __init__(self, module: nn.Module, version: int, account: Account, recording: bool = True):
        self.module, self.version, self.account, self.recording = module, version, account, recording
        self.values: list[Tensor | None] = []
        self.known: set[int] = set()
        self.plan = Plan([], [])
        self.count = 0

    def run(self, graph: Graph, inputs: Sequence[Tensor], fixed: Mapping[str, Tensor]) -> list[Tensor]:
        scope: Scope = ChainMap()
        given = iter(inputs)
        for port in graph.inputs:
            is_fixed = port.name in fixed
            scope[port.name] = self.add(fixed[port.name] if is_fixed else next(given), is_fixed)
            if not is_fixed:
                self.plan.inputs.append(scope[port.name])
        self.plan.outputs = self.run_graph(graph, scope)
        self.plan.size = len(self.values)
        return [self.value(number) for number in self.plan.outputs]

    def value(self, number: int) -> Tensor:
        value = self.values[number]
        assert value is not None
        return value

    def add(self, value: Tensor, known: bool) -> int:
        self.values.append(value)
        number = len(self.values) - 1
        if known:
            self.known.add(number)
            self.plan.constants[number] = value
        return number

    def run_graph(self, graph: Graph, scope: Scope) -> list[int]:
        for name, constant in graph.constants.items():
            scope[name] = self.add(constant, True)
        for name, path in graph.parameters.items():
            owner, _, leaf = path.rpartition(".")
            place = self.module.get_submodule(owner), leaf
            scope[name] = self.add(getattr(*place), False)
            self.plan.parameters[scope[name]] = place
        kept = set(scope.maps[0].values())
        for node, names in zip(graph.nodes, graph.last_reads, strict=True):
            self.run_node(node, scope)
            self.release([scope.maps[0][name] for name in names if name in scope.maps[0]], kept)
        return [scope[name] for name in graph.outputs]

    def release(self, numbers: list[int], kept: set[int]) -> None:
        """Forget values that no later node reads."""
        for number in numbers:
            if number in kept or number in self.known or self.values[number] is None:
                continue
            self.account.free(size_of([self.values[number]]))
            self.values[number] = None
            if self.plan.steps:
                self.plan.steps[-1].released.append(number)

    # ------------------------------------------------------------------------------------- nodes

    def run_node(self, node: Node, scope: Scope) -> None:
        self.count += 1
        if self.count > NODES:
            raise UnreadableModel(f"one call runs more than {NODES:,} nodes")
        call = Call(node, self.version)
        numbers = [scope[name] if name else None for name in node.inputs]
        if node.operator == IF:
            self.run_if(call, numbers, scope)
            return
        known_inputs = all(number is None or number in self.known for number in numbers)
        known = OPERATORS[node.operator].of_shapes or (known_inputs and not node.layer)
        results = self.run_operator(call, numbers, known)
        self.name_outputs(call, results, known, scope)

    def run_operator(self, call: Call, numbers: list[int | None], known: bool) -> tuple[Any, ...]:
        """Run an operator, and record it unless its result is known for all calls of this kind."""
        kind = OPERATORS[call.node.operator]
        layer = [self.module.get_submodule(call.node.layer)] if call.node.layer else []
        host = kind.host | call.node.host
        sources: list[int | Given] = []
        in_time = True
        for position, number in enumerate(numbers):
            if number is None:
                sources.append(Given(None))
            elif position in host and number in self.known:
                sources.append(Given(self.value(number).tolist()))
            else:
                in_time = in_time and position not in host
                sources.append(number)
        arguments = [self.value(each) if isinstance(each, int) else each.value for each in sources]
        arguments = with_lists(host, arguments)
        checked = partial(run_checked, self.account.limit, kind, call, layer)
        # What is kept for later calls must not be a tensor of inference mode, which autograd refuses.
        with constant_mode() if known else nullcontext():
            results = checked_results(self.account, kind, call, layer, arguments)
        self.account.used += size_of(results)
        if not known:
            function = partial(kind.function, call, *layer) if in_time else checked
            self.plan.steps.append(Step(function, sources, []))
        return results

    def name_outputs(self, call: Call, results: tuple[Any, ...], known: bool, scope: Scope) -> None:
        names = call.node.outputs
        call.require(len(names) <= len(results), f"has {len(names)} outputs; Linnet computes {len(results)}")
        numbers = [self.add(r, known) if name else None for name, r in zip(names, results, strict=False)]
        scope.update({name: n for name, n in zip(names, numbers, strict=False) if n is not None})
        if not known:
            self.plan.steps[-1].outputs = numbers

    # ---------------------------------------------------------------------------------- branches

    def run_if(self, call: Call, numbers: list[int | None], scope: Scope) -> None:
        call.require(len(numbers) == 1 and numbers[0] is not None, "has no condition")
        then, other = (call.get(name, Graph, None) for name in (THEN, ELSE))
        call.require(then is not None and other is not None, "has no two branches")
        condition = numbers[0]
        assert condition is not None
        branch = then if truth(call, self.value(condition)) else other
        if self.recording and condition not in self.known:
            self.run_later(call, condition, (then, other), scope)
            return
        inner = scope.new_child()
        found = self.run_graph(branch, inner)
        call.require(len(call.node.outputs) == len(found), "has branches with other outputs than its own")
        for name, number in zip(call.node.outputs, found, strict=True):
            scope[name] = self.alias(number)

    def alias(self, number: int) -> int:
        """Give a value a second number, so that releasing one name does not take the value from another."""
        if number in self.known:
            return number
        value = self.value(number)
        self.account.take(size_of([value]), "a value with two names")
        made = self.add(value, False)
        self.plan.steps.append(Step(same, [number], [made]))
        return made

    def run_later(self, call: Call, condition: int, branches: tuple[Graph, Graph], scope: Scope) -> None:
        """Record a step that looks at the condition in each call."""
        outside = sorted(set().union(*(branch.outside for branch in branches)))
        numbers = [scope[name] for name in outside]
        # Without the interpreter itself, which would keep the values of this call.
        maker = partial(Interpreter, self.module, self.version, recording=False)
        function = partial(run_branch, maker, self.account.limit, call, branches, outside)
        results = function(self.value(condition), *map(self.value, numbers))
        call.require(len(call.node.outputs) <= len(results), "has branches with too few outputs")
        self.account.take(size_of(results), call.node.title)
        self.plan.steps.append(Step(function, [condition, *numbers], []))
        self.name_outputs(call, results, False, scope)


def run_branch(
    maker: Callable[[Account], Interpreter],
    limit: int,
    call: Call,
    branches: tuple[Graph, Graph],
    outside: Sequence[str],
    condition: Tensor,
    *values: Tensor,
) -> tuple[Tensor, ...]:
    """Run the branch that the condition chooses, with all checks."""
    runner = maker(Account(limit))
    around = {name: runner.add(value, False) for name, value in zip(outside, values, strict=True)}
    scope: Scope = ChainMap({}, around)
    found = runner.run_graph(branches[0 if truth(call, condition) else 1], scope)
    return tuple(runner.value(number) for number in found)


def truth(call: Call, condition: Tensor) -> bool:
    call.require(condition.numel() == 1, f"has a condition of the shape {tuple(condition.shape)}")
    return bool(condition)


@contextmanager
def constant_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.no_grad():
        yield


def same(value: Tensor) -> Tensor:
    return value


def as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def with_lists(host: Set[int], arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with numbers of Python for those on which shapes depend."""
    listed = [position in host and isinstance(each, Tensor) for position, each in enumerate(arguments)]
    return [each.tolist() if is_list else each for each, is_list in zip(arguments, listed, strict=True)]


# -------------------------------------------------------------------------------------------- memory


class Sizes(DispatchMode):
    """Counts the bytes of all tensors that operations make; a view makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if not any(each.alias_info for each in function._schema.returns):
            made = result if isinstance(result, (tuple, list)) else (result,)
            self.bytes += size_of(each for each in made if isinstance(each, Tensor))
        return result


def checked_results(
    account: Account, kind: Operator, call: Call, layer: Sequence[nn.Module], arguments: Sequence[Any]
) -> tuple[Any, ...]:
    """Run an operator if it fits into the memory that is left."""
    kind.check(call, layer, arguments)
    try:
        account.check(bytes_needed(kind, call, layer, arguments), call.node.title)
        results = as_tuple(kind.function(call, *layer, *arguments))
    except UnreadableModel:
        raise
    except TORCH_ERRORS as error:
        text = str(error).splitlines() or [type(error).__name__]
        raise call.wrong(f"does not fit its inputs: {text[0][:300]}") from None
    return results


def run_checked(
    limit: int, kind: Operator, call: Call, layer: Sequence[nn.Module], *arguments: Any
) -> tuple[Any, ...]:
    """Run an operator whose sizes depend on values: they are checked in each call."""
    return checked_results(
        Account(limit), kind, call, layer, with_lists(kind.host | call.node.host, arguments)
    )


def bytes_needed(kind: Operator, call: Call, layer: Sequence[nn.Module], arguments: Sequence[Any]) -> int:
    """Bytes that an operator takes, from a run on tensors that have shapes but no memory."""
    if layer:
        assert kind.workspace is not None
        return kind.workspace(call, (), *layer, *arguments)
    shapes = [each.to("meta") if isinstance(each, Tensor) else each for each in arguments]
    with torch.no_grad(), torch.device("meta"), Sizes() as sizes:
        results = as_tuple(kind.function(call, *shapes))
    workspace = kind.workspace(call, results, *shapes) if kind.workspace else 0
    return max(sizes.bytes, size_of(results)) + workspace
