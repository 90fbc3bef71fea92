"""Memory tasks: sequences, and questions about them that need memory.

The loss is the mean over the time steps that the NRU authors count: all steps of copying, the last k of
denoising, the last step of images and of the adding problem (there, the squared error).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.base.settings import Checked, option
from linnet.data.batches import IGNORE
from linnet.data.digits import SOURCES, Digits, load_digits, read_order
from linnet.data.errors import DataError
from linnet.data.memory import BLANK, Adding, Copying, Denoising, Recall, SequenceBatch
from linnet.data.vocabulary import Vocabulary
from linnet.models.language import detach
from linnet.models.sequence import SequenceModel, SequenceModelConfig
from linnet.tasks.base import Comparison, Task, Variant, unit_options_checked
from linnet.tasks.results import LOSS, Figure, Metrics, StepResult
from linnet.tasks.typed import TypedText

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


@dataclass(frozen=True)
class RecallData(EndlessData):
    """Symbols to remember, generated when they are needed."""

    symbols: int = option(8, "n: the number of different symbols", least=2)
    recalled: int = option(10, "k: the number of symbols to remember", least=1)
    random_labels: bool = option(False, "ask for symbols that were not shown: a test of stability")


@dataclass(frozen=True)
class ImageData(Checked):
    """Images of digits, pixel by pixel."""

    images: str = option(
        "auto", "mnist, the small digits, or auto: the small ones if MNIST is not found", choices=SOURCES
    )
    data_dir: str | None = option(None, "the folder where the files of MNIST are searched first")
    batch: int = option(100, "images in a batch, over all processes", least=1)
    data_seed: int | None = option(None, "seed of the order of the images in each epoch (--seed)", least=0)
    cut_seed: int = option(50, "seed of the validation set, and of the permutation", least=0)
    permutation: str | None = option(None, "psmnist: a file with the order of the pixels, .npy or text")
    eval_batch: int = option(500, "images in a batch of an evaluation", least=1)
    eval_examples: int = option(0, "images of an evaluation (0: all of them)", least=0)


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


class MemoryMetrics(Metrics):
    """The mean loss, the share of right answers, and the mean loss of the best answers without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.right, self.asked, self.guessed = 0, 0, 0.0

    def update(self, result: StepResult) -> None:
        judged, guessed = result.outputs
        # Not `result.total`, which has the precision of the model.
        self.total += float(judged.objective) * judged.count
        self.count += judged.count
        self.right, self.asked = self.right + judged.right, self.asked + judged.asked
        self.guessed += guessed

    def compute(self) -> dict[str, float]:
        loss, baseline = self.total / self.count, self.guessed / self.count
        return {"loss": loss, "accuracy": self.right / self.asked, "baseline": baseline}


# --------------------------------------------------------------------------------------- every task

ADAM = {"optimiser": "adam", "lr": 1e-3, "clip": 1.0}
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
        source, shape = self.source, {"one_hot": self.source.one_hot, "last": self.source.last}
        with unit_options_checked():
            return SequenceModel(source.input_size, source.output_size, self.model, **shape)

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
            outputs=Answers(judged, self.source.guessed(batch.targets)),
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
        for name, variant in rival_forms(model.unit_options.get("chrono", 1)).items():
            if (variant.unit, dict(variant.options)) == (model.unit, model.unit_options):
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
    peepholes: dict[str, Any] = {"peepholes": True, "init": "orthogonal"}
    norm: dict[str, Any] = {"activation": "relu", "layer_norm": True}
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


# ------------------------------------------------------------------------------------------ symbols


class Symbols(Memory):
    """Symbols to remember: `predict` takes k symbols, "3 1 4 1 5 2 6 5 3 5", and returns those recalled."""

    Data = RecallData
    defaults = ENDLESS

    def encode(self, raw: Any) -> Tensor:
        source: Recall = self.source  # type: ignore[assignment]
        what = f"{source.recalled} symbols, each from 1 to {source.symbols}"
        shown = numbers(raw, int, what)
        if len(shown) != source.recalled or not all(1 <= each <= source.symbols for each in shown):
            raise DataError(f"{self.name} takes {what}; got {raw!r}")
        return self.lay_out(np.array(shown))

    @abstractmethod
    def lay_out(self, shown: np.ndarray) -> Tensor:
        """Return the sequence [T, 1] that shows these symbols."""

    def typed_text(self) -> TypedText | None:
        """_ is a blank, ? asks for the answer, and the symbols are digits, if there are not too many."""
        source: Recall = self.source  # type: ignore[assignment]
        symbols = [str(number) for number in range(1, source.symbols + 1)]
        tokens = ("_", *symbols, "?")
        if source.symbols > 9 or source.input_size != len(tokens):
            return None
        shown = np.resize(np.arange(1, source.symbols + 1)[::-1], source.recalled)
        example = "".join(tokens[number] for number in self.lay_out(shown)[:, 0].tolist())
        labels = tokens[: source.output_size]
        return TypedText(Vocabulary("char", tokens), labels=labels, example=example)

    def answer(self, outputs: Tensor) -> list[int]:
        """Return the k symbols; a blank cannot be an answer."""
        recalled = self.source.recalled  # type: ignore[attr-defined]
        return (outputs[-recalled:, 1:].argmax(-1) + 1).tolist()


class Copy(Symbols):
    """See linnet.data.memory.Copying."""

    name, about = "memory.copy", "copying memory: ten symbols, a wait, the ten symbols again"

    @classmethod
    def source_of(cls, data: RecallData) -> Copying:
        return Copying(data.span, data.symbols, data.recalled, data.random_labels)

    def lay_out(self, shown: np.ndarray) -> Tensor:
        source: Copying = self.source  # type: ignore[assignment]
        return source.lay_out((source.span, shown[:, None], shown[:, None]))[0]


class VariableCopy(Copy):
    """See linnet.data.memory.Copying; `predict` waits for the whole span."""

    name, about = "memory.variable", "copying memory after a wait of varying length"

    @classmethod
    def source_of(cls, data: RecallData) -> Copying:
        return replace(super().source_of(data), variable=True)


class Denoise(Symbols):
    """See linnet.data.memory.Denoising; `predict` spreads the symbols evenly over the span."""

    name, about = "memory.denoise", "denoising: ten symbols scattered among blanks"

    @classmethod
    def source_of(cls, data: RecallData) -> Denoising:
        return Denoising(data.span, data.symbols, data.recalled, data.random_labels)

    def lay_out(self, shown: np.ndarray) -> Tensor:
        source: Denoising = self.source  # type: ignore[assignment]
        steps = np.linspace(0, source.span - 1, len(shown)).astype(np.int64)
        return source.lay_out((steps[None], shown[None], shown[None]))[0]


# ------------------------------------------------------------------------------------------ numbers


class Add(Memory):
    """See linnet.data.memory.Adding.

    `predict` takes numbers of which two are marked by a star, "0.5* 0.1 0.9 0.25*", and returns their sum.
    """

    name, about = "memory.adding", "the adding problem: the sum of the two marked numbers of a sequence"
    Data = EndlessData
    defaults = ENDLESS

    @classmethod
    def source_of(cls, data: EndlessData) -> Adding:
        return Adding(data.span)

    def encode(self, raw: Any) -> Tensor:
        what = 'numbers of which two are marked, like "0.5* 0.1 0.9 0.25*"'
        words = raw.replace(",", " ").split() if isinstance(raw, str) else [str(each) for each in raw]
        marks = [float(word.endswith("*")) for word in words]
        if sum(marks) != 2:
            raise DataError(f"{self.name} takes {what}; got {raw!r}")
        values = numbers([word.rstrip("*") for word in words], float, what)
        return torch.tensor([values, marks]).T[:, None]

    def answer(self, outputs: Tensor) -> float:
        return float(outputs[-1, 0])


class Pixels(Memory):
    """See linnet.data.digits.

    `predict` takes the pixels of an image row by row, numbers from 0 to the value of white (255 for MNIST, 16
    for the small digits), and returns the digit.
    """

    name, about = "memory.smnist", "the digits of MNIST, one pixel at a time"
    Data = ImageData
    defaults = ADAM
    comparison = Comparison(UNITS, budget=165_000)
    judged_by = (ACCURACY, LOSS, BASELINE)

    @classmethod
    def source_of(cls, data: ImageData) -> Digits:
        if data.permutation is not None:
            raise ValueError(
                "memory.smnist reads the pixels in their own order; --permutation is for memory.psmnist"
            )
        return load_digits(data.images, seed=data.cut_seed, data_dir=data.data_dir)

    @classmethod
    def title(cls, data: ImageData) -> str:
        return cls.name if data.images == "auto" else f"{cls.name}, {data.images}"

    def encode(self, raw: Any) -> Tensor:
        source: Digits = self.source  # type: ignore[assignment]
        what = f"{len(source.order)} pixels from 0 to {source.brightest}"
        pixels = numbers(raw, float, what)
        if len(pixels) != len(source.order) or not all(0 <= each <= source.brightest for each in pixels):
            raise DataError(f"{self.name} takes {what}; got {len(pixels)} numbers")
        return source.steps(np.array(pixels, dtype=np.float32)[None])

    def answer(self, outputs: Tensor) -> int:
        return int(outputs[-1].argmax())


class PermutedPixels(Pixels):
    """The same with the pixels in a fixed random order."""

    name, about = "memory.psmnist", "the digits of MNIST, one pixel at a time in a fixed random order"

    @classmethod
    def source_of(cls, data: ImageData) -> Digits:
        order = None if data.permutation is None else read_order(data.permutation)
        return load_digits(
            data.images, permuted=True, seed=data.cut_seed, order=order, data_dir=data.data_dir
        )
