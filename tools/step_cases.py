"""Models whose steps are exported, each with inputs and the outputs that are expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import linnet
from linnet.models.classifier import Classifier, ClassifierConfig
from linnet.models.language import LanguageModel, LanguageModelConfig
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.models.tagger import Tagger, TaggerConfig
from tools.variants import AROUND, STEPS

TOKENS, INPUT_SIZE = 19, 5


@dataclass(frozen=True)
class Case:
    name: str
    model: nn.Module
    inputs: Tensor  # [T] of tokens, or [T, input_size]
    outputs: Tensor  # [T, output_size]
    example: Any = None  # x and state, for a module of a user


def numbers(steps: int) -> Tensor:
    return torch.randn(steps, INPUT_SIZE, generator=torch.Generator().manual_seed(0))


def tokens(steps: int) -> Tensor:
    return torch.randint(0, TOKENS, (steps,), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def case(name: str, model: nn.Module, run: Callable[[Tensor], Tensor], inputs: Tensor) -> Case:
    """`run` is given the inputs with a batch of one."""
    model.eval()
    with linnet.backend("reference"):
        outputs = run(inputs[:, None])
    return Case(name, model, inputs, outputs.reshape(len(inputs), -1))


def stack(unit: type[linnet.Recurrent], layers: int, steps: int, size: int = 7, **options: Any) -> Case:
    torch.manual_seed(1)
    rnn = unit(INPUT_SIZE, size, layers, **options)
    if unit in (linnet.NRU, linnet.LinOSS):
        # Untrained, they amplify their state from step to step, and with it every difference in rounding.
        for weight in rnn.parameters():
            weight.data.mul_(0.1)
    named = "-".join([unit.__name__, str(layers), *map(str, options.values())])
    return case(named, rnn, lambda x: rnn(x)[0], numbers(steps))


@cache
def units(steps: int) -> list[Case]:
    """Every unit, with two and three layers of an odd size."""
    return [stack(unit, layers, steps) for unit in linnet.UNITS.values() for layers in (2, 3)]


def variants(steps: int) -> list[Case]:
    """The forms of the steps, and what is around them, of units that read any input."""
    chosen = [each for each in (*STEPS, *AROUND) if not each.square]
    return [stack(each.unit, 2, steps, each.size(7), **each.options) for each in chosen]


def language_model(steps: int, **options: Any) -> Case:
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "num_layers": 2, "embedding_size": 6}
    model = LanguageModel(TOKENS, LanguageModelConfig(**{**sizes, **options}))
    named = "-".join(["lm", *map(str, options.values())])
    return case(
        named, model, lambda x: model.softmax.logits(model(x).output, model.tied_weight), tokens(steps)
    )


def classifier(steps: int, pooling: str) -> Case:
    torch.manual_seed(1)
    config = ClassifierConfig(unit="sru", hidden_size=7, embedding_size=5, pooling=pooling)
    model = Classifier(TOKENS, 3, config)
    run = lambda x: torch.stack([model(x[: t + 1]) for t in range(len(x))])  # noqa: E731
    return case(f"classifier-{pooling}", model, run, tokens(steps))


def tagger(steps: int) -> Case:
    torch.manual_seed(1)
    config = TaggerConfig(
        unit="lrn", bidirectional=False, hidden_size=7, embedding_size=5, character_size=0, dense_size=6
    )
    model = Tagger(TOKENS - 4, 6, config, fixed_words=4)
    return case("tagger", model, model, tokens(steps))


def sequence_model(steps: int, unit: str = "scrn", size: int = 9, **options: Any) -> Case:
    torch.manual_seed(1)
    config = SequenceModelConfig(unit=unit, hidden_size=size, unit_options=options)
    model = SequenceModel(TOKENS, 4, config, one_hot=True)
    return case(f"sequence-{unit}", model, lambda x: model(x)[0], tokens(steps))


def with_heads(steps: int) -> list[Case]:
    """Block-diagonal matrices of the state, of the input, and of one-hot vectors."""
    return [
        stack(linnet.LSTM, 2, steps, 10, heads=2, input_heads=5),
        sequence_model(steps, "gru", TOKENS, input_heads=TOKENS),
    ]


def sequential(steps: int) -> Case:
    torch.manual_seed(1)
    stacks = [linnet.SRU(5, 8), linnet.LRN(8, 6, 2)]
    # One output: its bias is a single number.
    head = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
    model = nn.Sequential(nn.Embedding(TOKENS, 5), *stacks, head)

    def run(x: Tensor) -> Tensor:
        return head(stacks[1](stacks[0](model[0](x))[0])[0])

    return case("sequential", model, run, tokens(steps))


def models(steps: int) -> list[Case]:
    return [
        language_model(steps, unit="sru"),
        language_model(steps, unit="scrn", tied=True, embedding_size=8, initial_state=0.1),
        language_model(steps, unit="lrn", projection=6, tied=True),
        language_model(steps, unit="lstm", softmax="mixture", experts=3, latent_size=7),
        language_model(steps, unit="ran", embedding_size=0),
        sequence_model(steps),
        tagger(steps),
        *(classifier(steps, pooling) for pooling in ("last", "max", "mean", "meanmax")),
        sequential(steps),
        *with_heads(steps),
    ]
