"""The plan of a unit whose step is not elementwise: one for all of its stages; see program/record_step.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from linnet.program.graph import interpret
from linnet.program.operands import arithmetic
from linnet.program.plan import Plan
from linnet.program.record_step import Derived, derived_tensors, record_step
from linnet.program.restart import restarted, starts_of
from linnet.program.shared_traces import shared_trace
from linnet.program.substitute import attributes_read, with_parameters, with_weights
from linnet.program.trace import NotPointwise, Traced, in_kernel, in_unit, safe_name
from linnet.program.unit import CannotFuse, Named, Stage, Unit

# What is done to the state after the step: output, new state, old state, inputs -> output, new state.
After = Callable[[Tensor, Named, Named, Named], tuple[Tensor, Named]]
# With how many sequences a recorded step is compared with the step itself.
COMPARED = 3


def whole_plan(cell: Unit, extras: Sequence[str], after: After, options: tuple[Any, ...] = ()) -> Plan:
    """The plan; a CannotFuse if the step does what kernels cannot.

    options   the values of the options that `after` reads from its object
    """
    # What a reset adds to a product is not needed: the product reads the state with what is added to that.
    products = {
        part for stage in cell.stages() for name in stage.recurrence for part in getattr(cell, name).parts
    }
    extras = [name for name in extras if name not in starts_of(products)]
    inputs, states = input_sizes(cell, extras), {safe_name(n): size for n, size in cell.states.items()}
    dtype = dtype_of(cell)

    def step(given: Named, state: Named, parameters: Named) -> tuple[Tensor, Named]:
        named = in_unit(given)
        changed, state = with_all_parameters(cell, parameters), restarted(in_unit(state), named)
        y, new = changed.run_stages(named, state)
        y, new = after(y, new, state, named)
        return changed.output(y, new), in_kernel(new)

    shapes = {name: tuple(parameter.shape) for name, parameter in step_parameters(cell)}

    def trace() -> WholeTrace:
        try:
            made = WholeTrace(*record_step(step, inputs, states, shapes, dtype))
        except NotPointwise as reason:
            raise CannotFuse(str(reason)) from reason
        check_recorded(step, made.traced, made.derived, shapes, dtype)
        return made

    sizes = (*inputs.items(), *cell.states.items(), *shapes.items())
    done_after = (type(getattr(after, "__self__", None)), getattr(after, "__func__", after), *options)
    context = (cell.training, dtype, sizes, *done_after)
    traced, derived = shared_trace(cell, context, trace, is_whole=True)
    return Plan(traced, tuple(safe_name(name) for name in extras), (), derived)


class WholeTrace(NamedTuple):
    """A recorded step, and where its weights come from."""

    traced: Traced
    derived: Derived

    @property
    def inner(self) -> tuple[()]:
        """None: the modules that the step calls are among its settings, so that cells can share it."""
        return ()


def dtype_of(cell: Unit) -> torch.dtype:
    """The dtype of arithmetic, which a step may ask for."""
    return arithmetic(next((p.dtype for p in cell.parameters()), torch.float32))


def input_sizes(cell: Unit, extras: Sequence[str]) -> dict[str, int]:
    """The number of channels of the projections and of the further inputs of the step."""
    sizes = {safe_name(name): size for name, size in cell.input.parts.items()}
    example = torch.empty(1, 1, cell.input_size, device="meta")
    found = {name: tensor.shape[-1] for name, tensor in cell.extra_inputs(example).items()}
    for name in extras:
        # What is added for a state, such as "stay.h", is as wide as the state.
        sizes[safe_name(name)] = found[name] if name in found else cell.states[name.partition(".")[2]]
    return sizes


def step_parameters(cell: Unit) -> list[tuple[str, Tensor]]:
    """All parameters but those of the projection of the input, which is no part of the step, and buffers."""
    parameters = [(name, p) for name, p in cell.parameters_inside() if not name.startswith("input.")]
    buffers = [(name, cell._buffers[name]) for name in cell.constant_buffers]
    return [*parameters, *((name, buffer) for name, buffer in buffers if buffer is not None)]


def with_all_parameters(cell: Unit, parameters: Mapping[str, Tensor]) -> Any:
    """A copy of the cell with other parameters, of which the attributes that are read are noted."""
    token = attributes_read.set(None)
    try:
        inner = with_weights(cell, parameters)
    finally:
        attributes_read.reset(token)
    changed = with_parameters(cell, inner._parameters)
    changed.__dict__["_modules"] = dict(inner._modules)
    return changed


def parameters_of(cell: nn.Module, names: Sequence[str]) -> Named:
    """The parameters of these names, also in a module that has other tensors in their place."""
    found: dict[str, Any] = {}
    for path in names:
        found[path] = cell
        for name in path.split("."):
            found[path] = getattr(found[path], name)
    return found


def derived_operands(cell: Unit, derived: Derived) -> tuple[list[Tensor], list[Tensor]]:
    """The weights and the matrices that kernels read."""
    try:
        return derived_tensors(derived, parameters_of(cell, [name for name, _ in derived.parameters]))
    except (KeyError, AttributeError, ValueError, RuntimeError) as error:
        raise CannotFuse(f"its parameters are not those that it was built with: {error}") from error


def whole_stage(cell: Unit) -> Stage:
    """All stages of a unit as one."""
    return Stage("advance", tuple(cell.states))


def check_recorded(
    step: Any, traced: Traced, derived: Derived, shapes: Mapping[str, Sequence[int]], dtype: torch.dtype
) -> None:
    """A step that depends on values, or on the batch, may compute something else than what was recorded."""
    source = torch.Generator().manual_seed(1)
    sizes = dict(traced.sizes)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, dtype=dtype)

    with torch.no_grad():
        parameters = {name: draw(*shape) for name, shape in shapes.items()}
        weights, matrices = derived_tensors(derived, parameters)
        given = [n for n in traced.inputs if not n.startswith("made.")]
        known = {name: draw(COMPARED, sizes[name]) for name in (*given, *traced.states)}
        y, new = step(
            {name: known[name] for name in given}, {name: known[name] for name in traced.states}, parameters
        )
        expected = {"y": y, **{f"new.{name}": new[name] for name in traced.states}}
        expected = {name: value.to(dtype) for name, value in expected.items()}
        known |= {name: w.expand(COMPARED, -1) for name, w in zip(traced.weights, weights, strict=True)}
        found = interpret(traced.forward, known, matrices)  # type: ignore[arg-type]
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    for name, right in expected.items():
        same = right.dim() == 2 and torch.allclose(
            found[name].expand_as(right), right, tolerance, tolerance, equal_nan=True
        )
        if not same:
            raise CannotFuse("its step computes something else for several sequences than for one")
