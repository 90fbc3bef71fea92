"""What one step of each kind of model is: its input, its state, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.layers.context import WITHOUT_EXPORT, reads_context
from linnet.layers.int8_modules import Quantised
from linnet.models.classifier import Classifier
from linnet.models.encoder import Encoder
from linnet.models.language import LanguageModel
from linnet.models.sequence import SequenceModel
from linnet.models.tagger import Tagger, Words
from linnet.program.unit import Named
from linnet.recurrent.cell import Cell
from linnet.recurrent.int8 import dequantised
from linnet.recurrent.recurrent import Recurrent


class CannotExport(ValueError):  # noqa: N818, the error of a model, not of this code
    """A model cannot be written in another language; the message says why and what to do."""


@dataclass(frozen=True)
class ModelStep:
    """One step with a batch of one.

    input_size   of x [1, 1, input_size]
    tokens       the number of tokens if the input is a token, else 0
    table        the vectors of all tokens [tokens, input_size]; None: one-hot vectors
    scales       those of the rows of the table, if it is in int8
    reads_token  whether `run` is given the number of a token [1, 1] and looks up its vector itself
    start        the initial state by name, [..., 1, size]
    run          x, state -> output, new state
    """

    input_size: int
    tokens: int
    table: Tensor | None
    start: Named
    run: Callable[[Tensor, Named], tuple[Tensor, Named]]
    scales: Tensor | None = None
    reads_token: bool = False

    def vectors(self, inputs: Tensor) -> Tensor:
        """The vectors [T, input_size] of tokens [T]; numbers [T, input_size] stay what they are."""
        if self.reads_token:
            return inputs
        if self.table is not None:
            rows = self.table[inputs]
            return rows if self.scales is None else dequantised(rows, self.scales[inputs])
        return F.one_hot(inputs, self.tokens).float() if self.tokens else inputs


def step_of(model: nn.Module) -> ModelStep:
    """Return the step of a stack, a model of `linnet.models`, or an nn.Sequential with a stack in it."""
    if reads_context(model):
        raise CannotExport(f"{type(model).__name__} cannot be exported step by step: {WITHOUT_EXPORT}")
    check_directions(model)
    for kind, make in KINDS.items():
        if isinstance(model, kind):
            return make(model)
    known = ", ".join(kind.__name__ for kind in KINDS)
    raise CannotExport(
        f"{type(model).__name__} is not a model that can be exported step by step; {known} can. For a model "
        "of your own whose forward(x, state) returns y and the new state, pass example=(x, state)"
    )


def with_table(step: ModelStep, embedding: nn.Module) -> ModelStep:
    """The step with tokens as input; `embedding` has their vectors, in float32 or int8."""
    if isinstance(embedding, Quantised):
        matrix = embedding.matrix()
        return replace(step, tokens=len(matrix.numbers), table=matrix.numbers, scales=matrix.scales)
    table: Any = embedding.weight
    return replace(step, tokens=len(table), table=table)


def check_directions(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Recurrent) and module.bidirectional:
            raise CannotExport(
                f"{name or type(model).__name__} reads in both directions, so that its first output depends "
                "on the last input; only models that read in one direction run step by step. "
                "linnet.export_onnx exports this model"
            )


# ---------------------------------------------------------------------------------------- stacks


@dataclass
class Stacks:
    """The states of several stacks, by names that say which layer they belong to."""

    stacks: Sequence[Recurrent]
    names: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        layer = 0
        for stack in self.stacks:
            last = layer + stack.num_layers - 1
            where = f"layer{layer}" if last == layer else f"layers{layer}to{last}"
            self.names.append({state: f"{where}_{state}" for state in stack.first_cell.states})
            layer += stack.num_layers

    def initial_state(self) -> Named:
        start: Named = {}
        for stack, names in zip(self.stacks, self.names, strict=True):
            state = stack.initial_state(1, stack.first_cell.example.detach())
            start |= {own: state[name].detach() for name, own in names.items()}
        return start

    def by_name(self, states: Sequence[Any]) -> Named:
        """The states as stacks return them, by name."""
        found: Named = {}
        for stack, names, state in zip(self.stacks, self.names, states, strict=True):
            tensors = stack.first_cell.state_tensors(state)
            found |= dict(zip(names.values(), tensors, strict=True))
        return found

    def as_given(self, state: Named) -> tuple[Any, ...]:
        """The states as stacks take them."""
        return tuple(
            stack.first_cell.pack_state({name: state[own] for name, own in names.items()})
            for stack, names in zip(self.stacks, self.names, strict=True)
        )


def of_stack(stack: Recurrent) -> ModelStep:
    return of_sequential(nn.Sequential(stack))


def of_sequential(model: nn.Sequential) -> ModelStep:
    """Layers in a row; a stack passes on its output, and nn.Embedding may be the first."""
    layers = list(model)
    embedding = layers.pop(0) if layers and isinstance(layers[0], nn.Embedding) else None
    stacks = Stacks([layer for layer in layers if isinstance(layer, Recurrent)])
    if not layers or not stacks.stacks or any(isinstance(layer, Cell) for layer in layers):
        raise CannotExport(
            "an nn.Sequential needs a stack such as linnet.SRU among its layers; got "
            f"{', '.join(type(layer).__name__ for layer in model) or 'no layers'}"
        )

    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        given, finals = iter(stacks.as_given(state)), []
        for layer in layers:
            if isinstance(layer, Recurrent):
                # The layout of a stack with batch_first is the same for one step of one sequence.
                x, final = layer(x, next(given))
                finals.append(final)
            else:
                x = layer(x)
        return x, stacks.by_name(finals)

    step = ModelStep(first_size(layers, embedding), 0, None, stacks.initial_state(), run)
    return step if embedding is None else with_table(step, embedding)


def first_size(layers: Sequence[nn.Module], embedding: nn.Module | None) -> int:
    if isinstance(embedding, nn.Embedding):
        return embedding.embedding_dim
    first = layers[0]
    size = getattr(first, "input_size", None) or getattr(first, "in_features", None)
    if size is None:
        raise CannotExport(
            f"the size of the input of {type(first).__name__} is not known; an nn.Sequential to be exported "
            "starts with nn.Embedding, nn.Linear or a stack"
        )
    return size


# ---------------------------------------------------------------------------------------- models


def of_encoder(
    model: Encoder, table: Tensor | None, head: Callable[[Tensor], Tensor], start: Sequence[Any] | None = None
) -> ModelStep:
    stacks = Stacks(model.stack)

    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        encoded = model.run_layers(x, stacks.as_given(state))
        return head(encoded.output), stacks.by_name(encoded.state)

    size = model.stack[0].input_size if model.stack else 0
    initial = stacks.initial_state() if start is None else stacks.by_name(start)
    return ModelStep(size, 0 if table is None else len(table), table, initial, run)


def of_language_model(model: LanguageModel) -> ModelStep:
    def head(y: Tensor) -> Tensor:
        y = y if model.projection is None else model.projection(y)
        return model.softmax.logits(y[0], model.tied_weight)

    step = of_encoder(model, None, head, model.initial_state(1))
    if model.embedding is not None:
        return with_table(step, model.embedding)
    return replace(step, tokens=model.vocabulary_size)


def of_sequence_model(model: SequenceModel) -> ModelStep:
    step = of_encoder(model, None, model.output)
    return replace(step, tokens=model.input_size if model.one_hot else 0)


def of_tagger(model: Tagger) -> ModelStep:
    """The scores of the tags of each word; the best sequence by a CRF is the caller's to find."""
    if model.characters is not None:
        raise CannotExport(
            "a tagger that reads characters cannot be exported; build it with character_size=0"
        )
    words = torch.arange(model.embedding.words)
    return of_encoder(model, model.read(Words(words[None], None))[0], model.scores)


def of_classifier(model: Classifier) -> ModelStep:
    """The logits of what has been read so far."""
    if model.embedding is None or model.characters is not None or model.config.padding == "left":
        raise CannotExport(
            "only classifiers that read words, with padding='masked', can be exported; this one has "
            f"inputs={model.config.inputs!r} and padding={model.config.padding!r}"
        )
    if model.counts is not None:
        raise CannotExport(
            "the counts of words and pairs cannot be exported; train the classifier with counts='none' "
            "(--counts none)"
        )
    if model.pooling is not None or not model.stack:
        known = ", ".join(map(repr, POOLED))
        raise CannotExport(
            f"{type(model.pooling).__name__} reads all steps at once; pooling={known} can be exported"
        )
    if model.embedding.special is None:
        step = with_table(of_encoder(model, None, lambda y: y[0]), model.embedding)
    else:
        step = of_encoder(model, model.embedding.rows(), lambda y: y[0])
    return POOLED[model.config.pooling](step, model.output)


def pooled_by_last(step: ModelStep, output: nn.Linear) -> ModelStep:
    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        y, new = step.run(x, state)
        return output(y), new

    return replace(step, run=run)


def pooled_by_max(step: ModelStep, output: nn.Linear) -> ModelStep:
    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        y, new = step.run(x, state)
        largest = torch.maximum(state["largest"], y)
        return output(largest), {**new, "largest": largest}

    start = torch.full((1, output.in_features), -torch.inf)
    return replace(step, start={**step.start, "largest": start}, run=run)


def pooled_by_mean(step: ModelStep, output: nn.Linear) -> ModelStep:
    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        y, new = step.run(x, state)
        total, count = state["total"] + y, state["count"] + 1
        return output(total / count), {**new, "total": total, "count": count}

    start = {"total": torch.zeros(1, output.in_features), "count": torch.zeros(1, 1)}
    return replace(step, start={**step.start, **start}, run=run)


def pooled_by_both(step: ModelStep, output: nn.Linear) -> ModelStep:
    def run(x: Tensor, state: Named) -> tuple[Tensor, Named]:
        y, new = step.run(x, state)
        total, count = state["total"] + y, state["count"] + 1
        largest = torch.maximum(state["largest"], y)
        sums = {"total": total, "count": count, "largest": largest}
        return output(torch.cat([total / count, largest], -1)), {**new, **sums}

    size = output.in_features // 2
    start = {
        **{"total": torch.zeros(1, size), "count": torch.zeros(1, 1)},
        "largest": torch.full((1, size), -torch.inf),
    }
    return replace(step, start={**step.start, **start}, run=run)


POOLED = {
    **{"last": pooled_by_last, "max": pooled_by_max, "mean": pooled_by_mean},
    "meanmax": pooled_by_both,
}


KINDS: dict[type[nn.Module], Callable[[Any], ModelStep]] = {
    Recurrent: of_stack,
    LanguageModel: of_language_model,
    SequenceModel: of_sequence_model,
    Tagger: of_tagger,
    Classifier: of_classifier,
    nn.Sequential: of_sequential,
}
