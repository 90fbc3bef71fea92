"""A model -> the program of its step: check, record, name, lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from linnet.deploy.step.example import Example, step_of_example
from linnet.deploy.step.lower import Recorded, lower
from linnet.deploy.step.models import CannotExport, ModelStep, step_of
from linnet.deploy.step.names import identifier
from linnet.deploy.step.program import INPUT, Program, unique
from linnet.deploy.step.record import ModelRecorder, naming_module
from linnet.layers.int8_modules import Quantised
from linnet.program.graph import Node, needed
from linnet.program.local_values import Call, watching
from linnet.program.record import address
from linnet.program.trace import NotPointwise
from linnet.program.views import View
from linnet.recurrent.cell import Cell
from linnet.recurrent.modes import evaluating
from linnet.recurrent.recorded_values import functions_of, variables_of
from linnet.run.choose import backend

# The name of the vector that the first layer reads.
X = "x"
# The weights are here, whatever the default device is.
CPU = torch.device("cpu")


def program_of(model: nn.Module, keep_values: bool = False, example: Example | None = None) -> Program:
    """Return the program of one step of `model`; raise CannotExport if there is none.

    keep_values   keep what a step has names for, such as its gates, so that it can be looked at
    example       the input and the state of a model of the user; see step/example.py
    """
    check_weights(model)
    with CPU, evaluating(model), torch.no_grad():
        step = step_of(model) if example is None else step_of_example(model, example)
        first, again = (record(model, step, seed) for seed in (1, 2))
    if (first.nodes, first.output, first.results) != (again.nodes, again.output, again.results):
        raise CannotExport("the operations of this model depend on the values of its input or its state")
    check_constants(first, again)
    return replace(lower(first, keep_values), parameters=parameters_of(model))


def parameters_of(model: nn.Module) -> int:
    """Return how many parameters the model has. A quantised one has buffers for them, and scales besides."""
    rounded = [module for module in model.modules() if isinstance(module, Quantised)]
    scales = {each for module in rounded for each in module.parameters(recurse=False)}
    numbers = {each for module in rounded for each in module.buffers(recurse=False)}
    return sum(each.numel() for each in {*model.parameters(), *numbers} - scales)


def check_constants(first: Recorded, again: Recorded) -> None:
    """What was not recorded must not depend on the input either."""
    for name, constant in first.constants.items():
        if not torch.equal(constant, again.constants[name]):
            raise CannotExport(
                f"a constant of this model, {first.names[name]}, changes from call to call: it is random, or "
                "computed from the input by what cannot be recorded"
            )


@torch.no_grad()
def outputs_of(model: nn.Module, inputs: Tensor, example: Example | None = None) -> Tensor:
    """The outputs of the steps of `model`, [T, output_size], for tokens [T] or numbers [T, input_size]."""
    with CPU, evaluating(model), backend("reference"):
        step = step_of(model) if example is None else step_of_example(model, example)
        state, outputs = step.start, []
        for each in step.vectors(inputs):
            y, state = step.run(each[None, None], state)
            outputs.append(y.flatten())
    return torch.stack(outputs)


def check_weights(model: nn.Module) -> None:
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if weight.device.type != "cpu":
            raise CannotExport(f"{name} is on {weight.device}; move the model with .cpu()")
        if weight.is_floating_point() and weight.dtype != torch.float32:
            raise CannotExport(f"{name} is {weight.dtype}; convert the model with .float()")
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise CannotExport(f"{name} has NaN or infinite numbers; was the model trained with success?")


def record(model: nn.Module, step: ModelStep, seed: int) -> Recorded:
    """Run one step on random numbers, and record what it does."""
    source = torch.Generator().manual_seed(seed)
    recorder = ModelRecorder()
    x = take_input(recorder, step, source)
    state = {name: torch.rand(start.shape, generator=source) for name, start in step.start.items()}
    for name, tensor in state.items():
        recorder.take(name, tensor)
    cells = [module for module in model.modules() if isinstance(module, Cell)]
    functions = {each for cell in cells for each in functions_of(cell)}
    calls: list[Call] = []
    try:
        with (
            backend("reference"),
            watching(functions, calls),
            naming_module(model),
            recorder.recording_products(),
            recorder,
        ):
            output, new = step.run(x, state)
            results = {name: varying(name, recorder.operand(new[name])) for name in state}
            found = varying("the output", recorder.operand(output))
    except NotPointwise as reason:
        raise CannotExport(f"{type(model).__name__} cannot be exported: {reason}") from reason
    tokens = step.tokens or number_of_tokens(recorder, step)
    return Recorded(
        nodes=recorder.nodes,
        constants=recorder.constants | ({} if step.table is None else {"table": step.table}),
        scales=recorder.scales | ({} if step.scales is None else {"table": step.scales}),
        names=constant_names(model, recorder, step, needed(recorder.nodes, [found, *results.values()])),
        x=X,
        x_size=tokens if step.reads_token else step.input_size,
        table=None if step.table is None else "table",
        tokens=tokens,
        start=step.start,
        output=found,
        results=results,
        units=[cell.unit_name for cell in cells],
        named=[named_values(recorder, cell, calls) for cell in cells],
    )


def take_input(recorder: ModelRecorder, step: ModelStep, source: torch.Generator) -> Tensor:
    """A random input; the first token, which every embedding has."""
    if step.reads_token:
        token = torch.zeros(1, 1, dtype=torch.int64)
        recorder.take_token(X, token)
        return token
    return recorder.take(X, torch.rand(1, 1, step.input_size, generator=source))


def number_of_tokens(recorder: ModelRecorder, step: ModelStep) -> int:
    if step.reads_token and len(recorder.tokens) != 1:
        sizes = ", ".join(map(str, sorted(recorder.tokens))) or "none"
        raise CannotExport(
            "the input of this model is the number of a token, which embeddings of one number of rows look "
            f"up; got embeddings of these numbers of rows: {sizes}"
        )
    return next(iter(recorder.tokens), 0)


def varying(name: str, value: Any) -> View:
    if not isinstance(value, View):
        raise CannotExport(f"{name} of this model does not depend on its input")
    return value


def named_values(recorder: ModelRecorder, cell: Cell, calls: Sequence[Call]) -> dict[str, View]:
    """What the step of a cell has computed, by the names that `linnet.record` gives it."""
    found: dict[str, View] = {}
    for call in calls:
        if call.arguments["self"] is cell:
            values = {**variables_of(call), **call.result[1]}
            found |= {
                name: recorder.operand(value) for name, value in values.items() if recorder.is_dynamic(value)
            }
    return found


def constant_names(
    model: nn.Module, recorder: ModelRecorder, step: ModelStep, nodes: Sequence[Node]
) -> dict[str, str]:
    """Readable names of constants: that of the parameter; a matrix that is read twice has one name.

    nodes   those that the results depend on, whose constants are named first
    """
    paths = parameter_names(model)
    read = {view.base for node in nodes for view in node.views}
    products = [node.views for node in recorder.nodes if node.op == "product"]
    matrices = {matrix.base for _, matrix, *_ in products}
    biases = {bias.base: matrix.base for _, matrix, *rest in products for bias in rest}
    known: dict[tuple, str] = {}
    names: dict[str, str] = {}
    tables = {} if step.table is None else {"table": step.table}
    # Matrices first: a bias that is computed, with zeros for parts that have none, is named after its matrix.
    ordered = sorted(
        recorder.constants.items(), key=lambda item: (item[0] not in read, item[0] not in matrices)
    )
    for constant, tensor in (*tables.items(), *ordered):
        as_rows = tensor.T if constant in matrices else tensor
        key = (address(tensor), tensor.storage_offset(), as_rows.shape, as_rows.stride())
        if key not in known:
            origin = recorder.origins.get(address(tensor), address(tensor))
            path = paths.get(origin, "table" if constant == "table" else "constant")
            if constant in biases and address(tensor) not in paths and biases[constant] in names:
                path = names[biases[constant]].removesuffix("_weight") + "_bias"
            known[key] = unique(path, {*known.values(), *step.start})
        names[constant] = known[key]
    return names


def parameter_names(model: nn.Module) -> dict[int, str]:
    """Names for other languages, by the address of a parameter: layer0_input_weight."""
    cells = [module for module in model.modules() if isinstance(module, Cell)]
    layers = {id(module): layer for layer, cell in enumerate(cells) for module in cell.modules()}
    names: dict[int, str] = {}
    for path, module in model.named_modules():
        own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        for name, tensor in own:
            whole = f"{path}.{name}" if path else name
            if id(module) in layers:
                whole = f"layer{layers[id(module)]}.{whole.rpartition('cell.')[2]}"
            names.setdefault(address(tensor), identifier(whole.removesuffix("_int8")))
    return names


def example_inputs(program: Program, steps: int) -> Tensor:
    """Random tokens [steps] or numbers [steps, input_size], the same each time."""
    source = torch.Generator().manual_seed(0)
    if program.tokens:
        return torch.randint(0, program.tokens, (steps,), generator=source, device=CPU)
    return torch.randn(steps, program.sizes[INPUT], generator=source, device=CPU)
