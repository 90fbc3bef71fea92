"""Memory tasks: sequences, and questions about them that need memory.

The loss is the mean over the time steps that the NRU authors count: all steps of copying, the last k of
denoising, the last step of images and of the adding problem (there, the squared error).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.settings import Checked, option
from linnet.data.batches import IGNORE
from linnet.data.errors import DataError
from linnet.data.memory import BLANK, SequenceBatch
from linnet.models.language import detach
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.tasks.base import Comparison, Task, Variant, unit_options_checked
from linnet.tasks.baselines import Baseline
from linnet.tasks.results import LOSS, Figure, Metrics, StepResult

CLOSE = 0.04
"""How close a sum must be to count as right, by Hochreiter and Schmidhuber (1997)."""


# ------------------------------------------------------------------------------------------ settings


@dataclass(frozen=True)
class EndlessData(Checked):
    """Sequences that are generated when they are needed."""

    span: int = option(100, "T: the time steps over which something must be remembered", least=1)
    batch: int = option(10, "sequences in a batch, over all processes", least=1)
    data_seed: int | None = option(None, "seed of the sequences (--seed)", least=0)
    eval_examples: int = option(200, "sequences of an evaluation, the same each time", least=1)
    reset_every: int = option(
        1, "sequences before the state is reset to zeros: 1, or more to test forgetting", least=1
    )


# -------------------------------------------------------------------------------------------- answers


class SequenceSource(Protocol):
    """A source of sequences: linnet.data.memory generates them, linnet.data.digits reads them."""

    @property
    def input_size(self) -> int: ...
    @property
    def output_size(self) -> int: ...
    @property
    def one_hot(self) -> bool:
        """Whether the inputs are classes."""

    @property
    def last(self) -> bool:
        """Whether only the last time step is answered."""

    @property
    def real(self) -> bool:
        """Whether the answer is a number instead of a class."""

    @property
    def length(self) -> int:
        """The most time steps of a sequence."""

    @property
    def baseline(self) -> float:
        """The mean loss of the best answers without memory."""

    def guessed(self, targets: Tensor) -> float:
        """Return the sum of this loss over these targets."""

    def describe(self) -> dict[str, Any]:
        """Return the settings that must be equal for a trained model to fit."""

    def batches_per_epoch(self, batch: int) -> int | None: ...
    def training(self, batch: int, seed: int, epoch: int, first: int) -> Iterator[SequenceBatch]: ...
    def evaluation(self, split: str, batch: int, seed: int, examples: int) -> Iterator[SequenceBatch]: ...


class Judged(NamedTuple):
    """The answers to a batch, compared with its targets."""

    objective: Tensor  # the mean loss over the counted steps, to be differentiated
    count: int  # type: ignore[assignment]  # how many steps are counted
    right: int  # right answers among those that need memory
    asked: int  # how many answers need memory


class Answers(NamedTuple):
    judged: Judged
    guessed: float  # the summed loss of the best answers without memory
    batch: SequenceBatch


class MemoryMetrics(Metrics):
    """The mean loss, the share of right answers, and the mean loss of the best answers without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.right, self.asked, self.guessed = 0, 0, 0.0

    def update(self, result: StepResult) -> None:
        judged, guessed, _ = result.outputs
        # Not `result.total`, which has the precision of the model.
        self.total += float(judged.objective) * judged.count
        self.count += judged.count
        self.right, self.asked = self.right + judged.right, self.asked + judged.asked
        self.guessed += guessed

    def compute(self) -> dict[str, float]:
        loss, baseline = self.total / self.count, self.guessed / self.count
        return {"loss": loss, "accuracy": self.right / self.asked, "baseline": baseline}


# --------------------------------------------------------------------------------------- every task

# These tasks are learned suddenly, after a long time without progress: a run neither gives up nor decays.
ADAM = {"optimiser": "adam", "lr": 1e-3, "clip": 1.0, "patience": 0, "schedule": "constant"}
ENDLESS = {**ADAM, "steps": 2000, "evaluate_every": 200, "log_every": 20}
UNITS = ("nru", "lstm-chrono", "janet-chrono", "gru", "sru", "lrn", "ran", "scrn")
ACCURACY = Figure(
    "accuracy",
    "accuracy",
    "The share of right answers among those that need memory; higher is better.",
    ".4f",
    True,
)
BASELINE = Figure("baseline", "memoryless baseline", "The loss of the best answers that remember nothing.")


class Memory(Task):
    """A source of sequences and a model that answers about them."""

    Model = SequenceModelConfig
    is_sequence_model = True
    comparison = Comparison(UNITS, budget=23_500)
    remedies = (
        "a longer training (--steps, --minutes), a shorter --span, or a unit that remembers (--unit nru)"
    )
    judged_by: ClassVar[tuple[Figure, ...]] = (LOSS, ACCURACY, BASELINE)

    def __init__(self, data: Any, model: Any, seed: int = 1, assets: Mapping[str, bytes] | None = None):
        super().__init__(data, model, seed if data.data_seed is None else data.data_seed, assets)
        self.source: SequenceSource = self.source_of(data)
        self.reset_every = getattr(data, "reset_every", 1)

    @classmethod
    @abstractmethod
    def source_of(cls, data: Any) -> SequenceSource:
        """Return the source that these settings describe."""

    def build(self) -> SequenceModel:
        source = self.source
        sizes = source.input_size, source.output_size
        with unit_options_checked():
            return SequenceModel(*sizes, self.model, one_hot=source.one_hot, last=source.last)

    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[SequenceBatch]:
        data = self.data
        if epoch:
            return self.source.training(data.batch, self.seed, epoch, first)
        width = getattr(data, "eval_batch", data.batch)
        return self.source.evaluation(split, width, self.seed, data.eval_examples)

    def batches_per_epoch(self, epoch: int) -> int | None:
        return self.source.batches_per_epoch(self.data.batch)

    def step(self, model: nn.Module, batch: SequenceBatch, carry: Any) -> StepResult:
        judged, state = self.judge(model, batch, carry)
        steps, width = batch.inputs.shape[:2]
        return StepResult(
            objective=judged.objective,
            total=judged.objective.detach() * judged.count,
            count=judged.count,
            tokens=steps * width,
            extra={"accuracy": judged.right / max(judged.asked, 1)},
            carry=state,
            outputs=Answers(judged, self.source.guessed(batch.targets), batch),
        )

    def judge(self, model: nn.Module, batch: SequenceBatch, carry: Any) -> tuple[Judged, Any]:
        """Return the judged answers, and the state for the next batch; None if it starts from zeros."""
        resets, resets_next = (index % self.reset_every == 0 for index in (batch.index, batch.index + 1))
        answers, state = model(batch.inputs, None if resets else carry)
        return self.compare(answers, batch.targets), None if resets_next else detach(state)

    def compare(self, answers: Tensor, targets: Tensor) -> Judged:
        if self.source.real:
            errors = answers.squeeze(-1) - targets.to(answers.dtype)
            right = int((errors.detach().abs() < CLOSE).sum())
            return Judged(errors.square().mean(), errors.numel(), right, errors.numel())
        loss = F.cross_entropy(answers.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
        counted = targets != IGNORE
        # Before the answer, the right output is a blank, which needs no memory.
        asked = counted if self.source.last else counted & (targets != BLANK)
        right = int((answers.detach().argmax(-1) == targets)[asked].sum())
        return Judged(loss, int(counted.sum()), right, int(asked.sum()))

    def metrics(self) -> Metrics:
        return MemoryMetrics()

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        known = {"loss": figures["baseline"], **self.guesses(split)}
        return [Baseline("memoryless", BASELINE.about, known)]

    def guesses(self, split: str) -> dict[str, float]:
        """Return further figures of the best answers to a split without memory."""
        return {}

    def answers(self, split: str) -> Tensor:
        """Return all targets of a split, one after the other."""
        return torch.cat([batch.targets.flatten() for batch in self.batches(split)])

    def most_frequent(self, split: str) -> float:
        """Return the accuracy of the most frequent answer of a split."""
        answers = self.answers(split)
        return float(answers.bincount().max() / len(answers))

    def describe(self) -> dict[str, Any]:
        return {"task": self.name, **self.source.describe()}

    # --------------------------------------------------------------------------------- predictions

    @torch.no_grad()
    def predict(self, model: nn.Module, raw: Sequence[Any], **options: Any) -> list[Any]:
        """Answer each sequence; each task documents its inputs and answers."""
        device = next(model.parameters()).device
        return [self.answer(model(self.encode(each).to(device))[0][:, 0].cpu()) for each in raw]

    @abstractmethod
    def encode(self, raw: Any) -> Tensor:
        """Return one sequence, [T, 1] or [T, 1, features]."""

    @abstractmethod
    def answer(self, outputs: Tensor) -> Any:
        """Return the answer for these outputs, [steps, output_size]."""

    # --------------------------------------------------------------------------------- in comparisons

    @classmethod
    def figures(cls, data: Any) -> tuple[Figure, ...]:
        return cls.judged_by

    @classmethod
    def title(cls, data: Any) -> str:
        words = [cls.name]
        if hasattr(data, "span"):
            words.append(f"T = {data.span}")
        if getattr(data, "reset_every", 1) > 1:
            words.append(f"the state kept for {data.reset_every} sequences")
        if getattr(data, "random_labels", False):
            words.append("random labels")
        return ", ".join(words)

    @classmethod
    def variants(cls, data: Any) -> dict[str, Variant]:
        return rival_forms(cls.source_of(data).length)

    @classmethod
    def unit_name(cls, model: SequenceModelConfig) -> str:
        # Runs from before there was a second bias had one, too.
        given = {"second_bias": False, **model.unit_options}
        for name, variant in rival_forms(model.unit_options.get("chrono", 1)).items():
            if (variant.unit, {"second_bias": False, **variant.options}) == (model.unit, given):
                return name
        return model.unit

    @classmethod
    def carry_option(cls, data: Any) -> str:
        return "--reset-every 1" if getattr(data, "reset_every", 1) > 1 else ""

    def smaller(self) -> str:
        return "smaller unit options"


def rival_forms(length: int) -> dict[str, Variant]:
    """Return the forms of units that the NRU authors compare with, if they differ from our defaults.

    length   the time steps of a sequence, for the chrono initialisation
    """
    peepholes: dict[str, Any] = {"peepholes": True, "init": "orthogonal", "second_bias": False}
    norm: dict[str, Any] = {"nonlinearity": "relu", "layer_norm": True, "second_bias": False}
    return {
        "rnn-orth": Variant("rnn", {**norm, "init": "orthogonal"}),
        "rnn-id": Variant("rnn", {**norm, "init": "identity"}),
        "lstm-peephole": Variant("lstm", peepholes),
        "lstm-chrono": Variant("lstm", {**peepholes, "chrono": length}),
        "gru-before": Variant("gru", {"form": "before", "init": "orthogonal"}),
        "janet-chrono": Variant("janet", {"chrono": length}),
    }


def numbers(raw: Any, kind: type, what: str) -> list[Any]:
    """Return the numbers of a text or a list; `what` says what was expected, for the error."""
    words = raw.replace(",", " ").split() if isinstance(raw, str) else list(raw)
    try:
        return [kind(word) for word in words]
    except (TypeError, ValueError) as error:
        raise DataError(f"expected {what}; got {raw!r} ({error})") from None
