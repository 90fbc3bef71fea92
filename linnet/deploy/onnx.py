"""Export of models to ONNX files."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from linnet.base.project import advice
from linnet.base.torch_private import tree_flatten_with_path, tree_leaves, tree_map_only
from linnet.deploy.onnx_translation import for_onnxruntime, name_sizes, sizes_of_scans
from linnet.deploy.torch_layers import is_torchs_layer, with_linnet_layers
from linnet.layers.context import WITHOUT_EXPORT, reads_context
from linnet.layers.counts import CountScores
from linnet.models.classifier import Classifier
from linnet.models.language import LanguageModel
from linnet.recurrent.cell import Cell
from linnet.recurrent.direction import Direction
from linnet.recurrent.modes import evaluating
from linnet.recurrent.recurrent import Recurrent
from linnet.run.choose import backend

if TYPE_CHECKING:
    from linnet.deploy.onnx_nodes import Sizes

# The arguments of a call, by position and by name.
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def export_onnx(
    model: nn.Module,
    path: str | PathLike[str],
    /,
    *inputs: Any,
    streaming: bool = False,
    dynamic_shapes: Any = None,
    output_names: Sequence[str] | None = None,
    onnxruntime_operators: bool = False,
    **named_inputs: Any,
) -> torch.onnx.ONNXProgram:
    """Write `model`, a stack or any module that contains stacks, to the file `path`.

        linnet.export_onnx(rnn, "rnn.onnx", x, lengths=lengths)
        linnet.export_onnx(rnn, "step.onnx", streaming=True)

    inputs, named_inputs   example arguments of the model; a stack and a language model need none. Arguments
                           that are None or left out in the example are not inputs of the file
    streaming              the file computes one time step, from an input without the dimension of time and a
                           state to an output and the new state
    dynamic_shapes         as for torch.export. Default: all dimensions are dynamic that the model does not
                           fix, and it is an error if the model fixes the length or the batch size
    output_names           names of the outputs of the file, in their order
    onnxruntime_operators  write an LSTM in int8 as onnxruntime's DynamicQuantizeLSTM, which is faster than a
                           Scan and rounds in its own way. Other runtimes cannot read the file

    A language model returns `logits` and the states of its layers, `state.0.c`; if it takes a state, that is
    `before.0.c`.

    Each loop over time becomes one operator, whatever the length of the example: ONNX's LSTM, GRU or RNN if
    that is what the unit computes, and otherwise a Scan with the equations of the unit's step. The model is
    exported in evaluation mode. Returns the result of torch.onnx.export.
    """
    check_packages()
    check_inputs(model)
    model = with_linnet_layers(model)
    if streaming:
        model = OneStep(model)
    elif isinstance(model, LanguageModel):
        model = Logits(model)
    example = example_for(model, (inputs, named_inputs))
    names = names_of_inputs(model, example), output_names or names_of_outputs(model, example)
    return write(model, path, example, dynamic_shapes, names, onnxruntime_operators)


Names = tuple[Sequence[str] | None, Sequence[str] | None]


def write(
    model: nn.Module,
    path: str | PathLike[str],
    example: Arguments,
    dynamic_shapes: Any,
    names: Names,
    onnxruntime_operators: bool = False,
) -> torch.onnx.ONNXProgram:
    """Write a model; see `export_onnx`. `names`: those of the inputs and of the outputs."""
    free = dynamic_shapes is None
    token = for_onnxruntime.set(onnxruntime_operators)
    try:
        with evaluating(model):
            try_out(model, example, free)
            shapes = free_shapes(model, example) if free else dynamic_shapes
            # On the reference, one time step is the operations of the unit's step, without a loop.
            with torch.no_grad(), backend("reference" if isinstance(model, OneStep) else None):
                exported = torch.export.export(model, *example, dynamic_shapes=shapes, strict=False)
            program = translate(exported, *names, free)
    finally:
        for_onnxruntime.reset(token)
    program.save(path)
    return program


class OneStep(nn.Module):
    """A model of sequences as a model of one time step: x [B, ...] and a state -> an output and a state.

    The model is a stack, a language model, or any module that maps x [T, B, ...] and a state to an output
    [T, B, ...] and a state.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        both = [type(unit).__name__ for unit in model.modules() if getattr(unit, "bidirectional", False)]
        if both:
            raise ValueError(
                f"streaming=True is for models that read in one direction, and this {both[0]} reads the end "
                "of a sequence first; export it without streaming"
            )
        self.model = model
        self.time_axis = int(getattr(model, "batch_first", False))

    def forward(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        if isinstance(self.model, LanguageModel):
            return self.model.step_logits(x, state)
        y, state = self.model(x.unsqueeze(self.time_axis), state)
        return y.squeeze(self.time_axis), state

    def example(self, arguments: Arguments) -> Arguments:
        """Return example arguments: the given ones, or a batch of two."""
        inputs, named_inputs = arguments
        if named_inputs or len(inputs) > 2:
            raise TypeError(
                "with streaming=True, the example arguments are the input of one step and the state: "
                f"linnet.export_onnx(model, path, x_t, state, streaming=True); got {len(inputs)} arguments"
                f"{''.join(f' and {name}=' for name in named_inputs)}"
            )
        if len(inputs) == 2:
            return arguments
        return (inputs[0] if inputs else self.example_input(), self.example_state(inputs)), {}

    def example_input(self) -> Tensor:
        if isinstance(self.model, LanguageModel):
            return torch.zeros(2, dtype=torch.int64)
        if isinstance(self.model, Recurrent):
            return self.model.first_cell.example.new_zeros(2, self.model.input_size)
        raise self.needs_example()

    def example_state(self, inputs: Sequence[Any]) -> Any:
        batch = len(inputs[0]) if inputs else 2
        if isinstance(self.model, LanguageModel):
            return self.model.initial_state(batch)
        if isinstance(self.model, Recurrent):
            cell = self.model.first_cell
            named = self.model.initial_state(batch, cell.example)
            return cell.pack_state({name: named[name] for name in cell.states})
        raise self.needs_example()

    def needs_example(self) -> TypeError:
        return TypeError(
            f"export_onnx needs example arguments of one step of {type(self.model).__name__}: "
            "linnet.export_onnx(model, path, x_t, state, streaming=True)"
        )

    @staticmethod
    def names_of_states(state: Any) -> list[str]:
        """Return the names of the tensors of a state, as torch names inputs: _h, or _0_h of layer 0."""
        leaves, _ = tree_flatten_with_path(state)
        return [
            "".join(f"_{getattr(key, 'name', getattr(key, 'idx', key))}" for key in path)
            for path, _ in leaves
        ]


class Logits(nn.Module):
    """A language model that returns the logits of each step, [T, B, V], and the state."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, state: Any = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Any, ...]]:
        encoded = self.model(tokens, state, lengths)
        return self.model.softmax.logits(encoded.output, self.model.tied_weight), encoded.state

    def example(self) -> Arguments:
        """Two texts of three tokens, and the state before them."""
        return (torch.zeros(3, 2, dtype=torch.int64), self.model.initial_state(2)), {}


def check_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise ImportError(f"export_onnx needs {' and '.join(missing)}: {advice('onnx')}")


def check_inputs(model: nn.Module) -> None:
    if reads_context(model):
        raise ValueError(f"{type(model).__name__} has no ONNX file: {WITHOUT_EXPORT}")
    if any(isinstance(module, CountScores) for module in model.modules()):
        raise ValueError(
            "the counts of words and pairs cannot be exported to ONNX; train the model with counts='none' "
            "(--counts none)"
        )


def example_for(model: nn.Module, arguments: Arguments) -> Arguments:
    if isinstance(model, OneStep):
        arguments = model.example(arguments)
    elif isinstance(model, Logits) and not any(arguments):
        arguments = model.example()
    elif not any(arguments):
        if not isinstance(model, Recurrent):
            raise TypeError(
                f"export_onnx needs example arguments of {type(model).__name__}: "
                "linnet.export_onnx(model, path, x)"
            )
        arguments = (model.first_cell.example.new_zeros(2, 3, model.input_size),), {}
    return tree_map_only(Tensor, Tensor.detach, arguments)


def try_out(model: nn.Module, example: Arguments, free: bool) -> None:
    """Run the example first: the errors of a model are clearer than those of a tracer."""
    check = partial(check_call, free, isinstance(model, OneStep))
    units = [m for m in model.modules() if isinstance(m, (Recurrent, Cell)) or is_torchs_layer(m)]
    hooks = [unit.register_forward_pre_hook(check, with_kwargs=True) for unit in units]
    inputs, named_inputs = example
    try:
        with torch.no_grad(), backend("reference"):
            model(*inputs, **named_inputs)
    finally:
        for hook in hooks:
            hook.remove()


def check_call(
    free: bool, streaming: bool, unit: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]
) -> None:
    x, name = inputs[0] if inputs else named_inputs.get("x"), type(unit).__name__
    if isinstance(x, PackedSequence):
        raise TypeError(f"{name} cannot take a PackedSequence in an ONNX file; give padded x and lengths")
    if streaming:
        return
    batched = 2 if isinstance(unit, Cell) else 3
    if free and isinstance(x, Tensor) and x.dim() == batched and 1 in x.shape[:-1]:
        raise ValueError(
            f"the example gives {name} x of shape {tuple(x.shape)}, and torch takes a length or a batch of 1 "
            "for a constant; give an example of two or more"
        )
    if isinstance(unit, Recurrent):
        check_stack(unit)
        check_resets_of_int8(unit, named_inputs)
    if free and is_torchs_layer(unit):
        raise NotImplementedError(
            f"{name} is derived from a layer of torch, whose loop torch exports for one length only; to fix "
            "the length, pass dynamic_shapes"
        )


def check_stack(stack: Recurrent) -> None:
    """Raise if a loop over time cannot become a Scan: torch would unroll it, for one length only."""
    for direction in stack.directions:
        reason = why_not(direction)  # type: ignore[arg-type]
        if reason is not None:
            raise NotImplementedError(f"{type(stack).__name__} cannot be exported to ONNX: {reason}")


def check_resets_of_int8(stack: Recurrent, named_inputs: dict[str, Any]) -> None:
    if stack.first_cell.is_quantised and named_inputs.get("reset_state") is not None:
        raise NotImplementedError(
            f"{type(stack).__name__} in int8 resets to zeros only in an ONNX file; export it without "
            "reset_state, or before linnet.quantize"
        )


def why_not(direction: Direction) -> str | None:
    """Return why one layer in one direction cannot be exported, or None."""
    from linnet.deploy.onnx_scan import missing_int8, missing_operation

    weight = direction.cell.example
    if weight.device.type != "cpu":
        return f"it is on {weight.device}; move the model with .cpu()"
    if weight.dtype not in (torch.float32, torch.float64):
        return f"it is in {weight.dtype}; convert the model with .float()"
    x = torch.empty(1, 1, direction.cell.input_size, device="meta")
    plans = direction.plans_for(tuple(direction.cell.extra_inputs(x)))
    missing = [plans] if isinstance(plans, str) else map(missing_operation, plans)
    reason = next(filter(None, missing), None)
    if direction.cell.is_quantised and not isinstance(plans, str):
        reason = reason or missing_int8(direction.cell, plans)
    if reason is not None:
        return f"{reason}; one step of it can, linnet.export_onnx(rnn, path, streaming=True)"
    return direction.obstacle(recorded=True)


def free_shapes(model: nn.Module, example: Arguments) -> Any:
    """Return dynamic shapes for torch.export: all sizes but 1, which it treats as a constant anyway."""
    shapes = torch.export.ShapesCollection()
    for leaf in tree_leaves(example):
        if isinstance(leaf, Tensor):
            sizes = enumerate(leaf.shape)
            shapes[leaf] = {axis: torch.export.Dim.AUTO for axis, size in sizes if size != 1}
    return shapes.dynamic_shapes(model, *example)


def language_model_in(model: nn.Module) -> LanguageModel | None:
    inner = model.model if isinstance(model, (OneStep, Logits)) else None
    return inner if isinstance(inner, LanguageModel) else None


def states_of_layers(model: LanguageModel) -> list[str]:
    """Return a name for each tensor of the state: 0.h and 0.c for the first layer of an LSTM."""
    return [
        f"{number}.{name}" for number, layer in enumerate(model.stack) for name in layer.first_cell.states
    ]


def names_of_inputs(model: nn.Module, example: Arguments) -> list[str] | None:
    """Return the names of the inputs of a language model with a state; torch has those of other models."""
    known, (inputs, named_inputs) = language_model_in(model), example
    if known is None or len(inputs) != 2 or inputs[1] is None or named_inputs:
        return None
    return ["tokens", *(f"before.{name}" for name in states_of_layers(known))]


def names_of_outputs(model: nn.Module, example: Arguments) -> list[str] | None:
    """Return the names of the outputs of Linnet's layers and models; torch generates those of others."""
    if known := language_model_in(model):
        return ["logits", *(f"state.{name}" for name in states_of_layers(known))]
    if isinstance(model, Classifier):
        return ["logits"]
    if isinstance(model, OneStep):
        return ["output", *(f"final{name}" for name in model.names_of_states(example[0][1]))]
    cell = model.first_cell if isinstance(model, Recurrent) else model
    return ["output", *(f"final_{state}" for state in cell.states)] if isinstance(cell, Cell) else None


def translate(
    exported: Any, input_names: Sequence[str] | None, output_names: Sequence[str] | None, free: bool
) -> torch.onnx.ONNXProgram:
    scans = sizes_of_scans(exported.graph)
    # Without torchvision, it says four times that it skips the operators of that.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # torch 2.13 warns about its own code.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        program = torch.onnx.export(
            exported,
            input_names=input_names,
            output_names=output_names,
            dynamo=True,
            # Its rules remove x + 1e-8, the epsilon of a norm, as a sum with 0, and x * 1.00001 likewise.
            optimize=False,
            verbose=False,
        )
    assert program is not None
    if free:
        check_free(scans)
    name_sizes(program.model, scans)
    fold_weights(program)
    return program


def fold_weights(program: torch.onnx.ONNXProgram) -> None:
    """Compute what depends on weights only, such as their order in an operator: runtimes need the results.

    The results, and numbers within the steps, become initialisers of the file; equal nodes become one.
    """
    from onnxscript import optimizer
    from onnxscript.ir.passes import common

    no_limit = 1 << 62
    optimizer.inline(program.model)
    optimizer.fold_constants(program.model, input_size_limit=no_limit, output_size_limit=no_limit)
    optimizer.remove_unused_nodes(program.model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(program.model)
    common.LiftSubgraphInitializersToMainGraphPass()(program.model)
    common.CommonSubexpressionEliminationPass()(program.model)


def check_free(scans: list[Sizes]) -> None:
    """Raise if a length or a batch size is fixed; unbatched input is a batch of 1."""
    for length, batch in scans:
        if isinstance(length, int) or (isinstance(batch, int) and batch != 1):
            what, number = ("length", length) if isinstance(length, int) else ("batch", batch)
            raise ValueError(
                f"the model fixes the {what} of its sequences at {number}; "
                "if this is intended, pass dynamic_shapes"
            )
