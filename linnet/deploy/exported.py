"""The program that an export writes, by the arguments that all exports have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from linnet.deploy.quantize import in_int8
from linnet.models.stream_step import StreamStep

if TYPE_CHECKING:
    from linnet.deploy.step.program import Program


def exported_program(
    model: nn.Module,
    example: tuple[Tensor, Any] | None,
    int8: bool,
    skip: Sequence[str],
    flush_denormals: bool,
    keep_values: bool = False,
) -> Program:
    # Imported here, not above: models of all tasks are not needed to import Linnet.
    from linnet.deploy.source.int8 import with_int8
    from linnet.deploy.step.build import parameters_of, program_of
    from linnet.deploy.step.flush import flushed
    from linnet.deploy.step.share import with_shared_scratch

    example = example_of(model, example)
    if skip and (example is None or not int8):
        raise ValueError(
            "skip is for int8=True and an example; for a model that can be exported without one, export "
            "linnet.quantize(model, skip=...)"
        )
    if example is None:
        program = program_of(in_int8(model) if int8 else model, keep_values)
        # A quantised model has fewer: torch's two biases of a layer are one there.
        program = replace(program, parameters=parameters_of(model))
    else:
        program = program_of(model, keep_values, example)
        program = with_int8(program, skip) if int8 else program
    program = flushed(program) if flush_denormals else program
    return program if keep_values else with_shared_scratch(program)


def example_of(model: nn.Module, example: tuple[Tensor, Any] | None) -> tuple[Tensor, Any] | None:
    """The example of a model that has one itself, unless another is given."""
    return model.example if example is None and isinstance(model, StreamStep) else example


def stream_step_of(model: nn.Module) -> StreamStep | None:
    return model if isinstance(model, StreamStep) else None


def inputs_for_test(model: nn.Module, program: Program, steps: int) -> Tensor:
    """Inputs with which exported code is compared with Python."""
    from linnet.deploy.step.build import example_inputs

    return model.sample[:steps] if isinstance(model, StreamStep) else example_inputs(program, steps)


def expected_outputs(
    model: nn.Module, example: tuple[Tensor, Any] | None, program: Program, inputs: Tensor
) -> Tensor:
    """What the steps of an exported model make in Python."""
    from linnet.deploy.step.build import outputs_of
    from linnet.deploy.step.interpret import outputs_of_program

    example = example_of(model, example)
    if example is None:
        return outputs_of(in_int8(model) if program.is_int8 else model, inputs)
    # Modules of others have no form in int8 in Python.
    return outputs_of_program(program, inputs) if program.is_int8 else outputs_of(model, inputs, example)
