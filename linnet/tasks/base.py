"""The contract between a task and everything that trains, evaluates, compares or uses a model of it.

A task is one class in one file, and one line in `TASKS`:

    class Parity(Task):
        name, about = "parity", "whether a sequence has an even number of ones"
        Data, Model = ParityData, SequenceModelConfig      # frozen dataclasses: the options of `linnet train`

        def build(self): ...                               # a new model
        def batches(self, split, epoch=0, first=0): ...    # the same settings give the same batches
        def step(self, model, batch, carry): ...           # the loss of one batch
        def predict(self, model, raw): ...                 # answers to inputs that a user types

Everything else has a default: the loss selects the best checkpoint, `metrics` is its mean, units are compared
at the same number of parameters, and a run directory keeps no further files.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from torch import nn

from linnet.models.budget import closest_size
from linnet.models.stream_step import StreamStep
from linnet.recurrent.sizes import sketching
from linnet.tasks.baselines import Baseline
from linnet.tasks.results import (
    LOSS,
    AnswerTable,
    AttentionMap,
    Chart,
    Figure,
    Metric,
    Metrics,
    Section,
    StepResult,
)
from linnet.tasks.typed import TypedText

SPLITS = ("train", "valid", "test")
AnyBatch = TypeVar("AnyBatch", bound="Batch")


class Batch(Protocol):
    """The methods of a batch that the training loop calls; it uses nothing else of it.

    `linnet.data.batches.TimeBatch` implements them for a dataclass of tensors [T, B, ...], and
    `linnet.data.padded` for sequences of different lengths.
    """

    def __len__(self) -> int:
        """Return the number of sequences."""

    def columns(self: AnyBatch, rank: int, world: int) -> AnyBatch:
        """Return the sequences of process `rank` of `world`; shares differ by at most one sequence."""

    def to(self: AnyBatch, device: Any) -> AnyBatch:
        """Return the batch with its tensors on `device`."""


class Variant(NamedTuple):
    """A form of a unit that is compared under its own name, or in place of the unit of that name."""

    unit: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any] = {}  # further settings of its runs


@dataclass(frozen=True)
class Comparison:
    """The defaults of `linnet compare`."""

    units: tuple[str, ...] = ("lstm", "gru", "sru", "lrn", "ran")
    budget: int = 100_000  # parameters of each model
    settings: Mapping[str, Any] = field(default_factory=dict)


class Task(ABC):
    """A data set, a model, a loss and the figures that are reported.

    data, model   the settings, of the classes `Data` and `Model`
    seed          seeds everything that the task draws at random: the order of examples, window lengths
    assets        the files that `assets` returned when the run was trained. If they are given, a trained run
                  is being loaded: `restore` is called instead of `prepare`, and as the data set may not
                  exist, it is not read before `batches` is called
    """

    name: ClassVar[str]  # as in TASKS
    about: ClassVar[str]  # one line for `linnet list` and --help
    Data: ClassVar[type]
    Model: ClassVar[type]
    sets: ClassVar[Mapping[str, Any]] = {}  # data sets with `about` and `terms`, for `linnet list sets`
    selects: ClassVar[Metric] = Metric()
    splits: ClassVar[tuple[str, ...]] = SPLITS
    asset_files: ClassVar[tuple[str, ...]] = ()  # the names of what `assets` returns
    # Settings of a run that differ from the defaults of their dataclasses, by name: {"lr": 0.003}.
    defaults: ClassVar[Mapping[str, Any]] = {}
    defaults_note: ClassVar[str] = ""  # which options decide other defaults (`defaults_with`), for --help
    comparison: ClassVar[Comparison] = Comparison()
    # Whether models have the interface of `LanguageModel`, which `generate` and `eval --dynamic` need.
    is_language_model: ClassVar[bool] = False
    # Whether models have the interface of `SequenceModel` and the task has a `source` of sequences, as the
    # plots of states and of their gradients need.
    is_sequence_model: ClassVar[bool] = False
    # Whether the task has `attention` and `first_inputs`, as the plot of attention needs.
    has_attention: ClassVar[bool] = False
    # Whether the task has `answer_table`: `linnet predict` then also takes a file, or no input at all.
    answers_tables: ClassVar[bool] = False
    # The baseline with which readers compare every result, as `baselines` names it.
    yardstick: ClassVar[str] = ""
    # What may help a run that a baseline beats, as the end of a sentence.
    remedies: ClassVar[str] = "more data, a longer training (--minutes) or another --lr"
    # What `linnet search` draws from; names joined by + share a value. Empty: around the default of --lr.
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __init__(self, data: Any, model: Any, seed: int = 1, assets: Mapping[str, bytes] | None = None):
        self.data, self.model, self.seed = data, model, seed
        if assets is None:
            self.prepare()
        else:
            self.restore(assets)

    # ---------------------------------------------------------------------- what a task must define

    @abstractmethod
    def build(self) -> nn.Module:
        """Return a new model. It is also called inside `torch.device("meta")`, to count parameters."""

    @abstractmethod
    def batches(self, split: str, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Yield the batches of a split from number `first` on.

        Epoch 0 is an evaluation: every example once, in a fixed order. Training epochs start at 1 and may be
        shuffled. The batches must depend only on the settings, `split` and `epoch`, so that a killed run can
        resume in the middle of an epoch.
        """

    @abstractmethod
    def step(self, model: nn.Module, batch: Any, carry: Any) -> StepResult:
        """Return the loss of a batch, in training and in evaluation.

        `carry` is the `carry` of the result of the previous batch; None at the start of an epoch.
        """

    @abstractmethod
    def predict(self, model: nn.Module, raw: Sequence[Any], **options: Any) -> list[Any]:
        """Return one answer for each input as a user types it; JSON must be able to represent the answers."""

    # ----------------------------------------------------------------------- what it may define as well

    def check_input(self, raw: Any) -> None:  # noqa: B027, not every task needs it
        """Raise a ValueError for an input that `predict` would refuse, before any is answered."""

    def show(self, answer: Any) -> str:
        """Return an answer of `predict` as `linnet predict` prints it."""
        return str(answer)

    def answer_table(self, model: nn.Module, path: str | None, *, charts: int = 0) -> AnswerTable:
        """Return the answers to a file, or to the data of the run (None), and the first `charts` charts.

        The options of `predict`, its keyword arguments, follow.
        """
        raise NotImplementedError

    def typed_text(self) -> TypedText | None:
        """Return how a typed text becomes the tokens of a model, for `linnet lens`; None: it does not."""
        return None

    def stream_step(self, model: nn.Module) -> StreamStep | None:
        """Return one step of a model that reads numbers, for exports and streams; None: it has none.

        The model has `initial_state()` and `step(x [1, inputs], state)`, which returns the answer
        [1, ...] and the new state.
        """
        return None

    def sample(self, model: nn.Module, tokens: int) -> str:
        """Return a text of `tokens` tokens that shows what a model has learned; "" for tasks without text."""
        return ""

    def batches_per_epoch(self, epoch: int) -> int | None:
        """Return the number of training batches of an epoch; None if there is no end."""
        return sum(1 for _ in self.batches("train", epoch))

    def metrics(self) -> Metrics:
        """Return a new `Metrics` object for one evaluation."""
        return Metrics()

    def details(self, split: str, metrics: Any) -> list[Section]:
        """Return tables that `linnet eval` and the report show besides the figures of an evaluation.

        `metrics` is what `metrics` returned, after all batches of the split.
        """
        return []

    def charts(self, model: nn.Module, split: str, metrics: Any) -> list[Chart]:
        """Return a few charts of answers to a split: those of the test set are kept with the run.

        `model` is in evaluation; `metrics` is as for `details`.
        """
        return []

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        """Return the figures of answers to a split that need no network, the simplest first.

        figures   those of the model on this split
        """
        return []

    def attention(self, model: nn.Module, raw: Sequence[Any]) -> list[AttentionMap]:
        """Return which words the model reads at which, for each input as `predict` takes it."""
        raise NotImplementedError

    def first_inputs(self, split: str, count: int) -> list[Any]:
        """Return the first inputs of a split, as `predict` and `attention` take them."""
        raise NotImplementedError

    def prepare(self) -> None:  # noqa: B027, not every task needs it
        """Find what a model needs to be built, such as the vocabulary of the training set."""

    def assets(self) -> dict[str, bytes]:
        """Return the files, by name, that a trained model needs to be used without its data set."""
        return {}

    def restore(self, assets: Mapping[str, bytes]) -> None:  # noqa: B027, not every task needs it
        """Set from these files what `prepare` found when the run was trained."""

    def compute_files(self, folder: Path, report: Callable[[str, int, int], None]) -> None:  # noqa: B027
        """Compute what is kept beside the run directory `folder`, so that each epoch need not compute it.

        report   called with what is done, how much of it is done, and how much there is
        """

    def rates(self, model: nn.Module) -> dict[nn.Module, float]:
        """Return the learning rates of parts of a model that have one of their own."""
        return {}

    def notes(self) -> list[str]:
        """Return what was found in the data and decided for the user, a line each, to be said first."""
        return []

    def describe(self) -> dict[str, Any]:
        """Return what must be equal for a checkpoint to fit, as JSON values: the vocabulary, the labels."""
        return {}

    @classmethod
    def files_kept(cls, model: Any) -> tuple[str, ...]:
        """Return the names of what `assets` returns with these settings of the model (None: with any)."""
        return cls.asset_files

    @classmethod
    def defaults_with(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults of a run for which the user gave these options, if they decide others.

        A recipe and the settings of another run replace them. `defaults_note` tells the reader of --help.
        """
        return cls.defaults

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given settings and those that follow from them: --path implies a corpus "text"."""
        return dict(given)

    @classmethod
    def selected_by(cls, data: Any) -> Metric:
        """Return the metric that selects the best checkpoint, for tasks in which a setting decides it."""
        return cls.selects

    @classmethod
    def figures(cls, data: Any) -> tuple[Figure, ...]:
        """Return the figures that tables and reports show, the most important one first."""
        name, higher = cls.selected_by(data)
        main = Figure(
            name, name, f"It selects the best checkpoint; {'higher' if higher else 'lower'} is better."
        )
        return (LOSS,) if name == "loss" else (main._replace(higher=higher), LOSS)

    @classmethod
    def data_name(cls, data: Any) -> str:
        """Return the name of the data for folders: `runs/<data_name>-<unit>`."""
        return cls.name

    @classmethod
    def title(cls, data: Any) -> str:
        """Return a short description of the problem; plots show runs with the same title together."""
        return cls.data_name(data)

    @classmethod
    def variants(cls, data: Any) -> Mapping[str, Variant]:
        """Return forms of units that `linnet compare` accepts by name, besides the units themselves."""
        return {}

    @classmethod
    def fold_settings(cls, data: Any, folds: int) -> list[dict[str, Any]]:
        """Return the settings of each run of a cross-validation with `folds` folds."""
        raise ValueError(f"{cls.name} has no folds; leave out --folds, or repeat runs with --seeds")

    @classmethod
    def unit_name(cls, model: Any) -> str:
        """Return the name of a model's unit, or of its form in `variants`."""
        return getattr(model, "unit", cls.name)

    @classmethod
    def carry_option(cls, data: Any) -> str:
        """Return the option that makes each batch start from a zero state; "" if each does already."""
        return ""

    # ----------------------------------------------------------------------------- models of any size

    @classmethod
    def resized(cls, model: Any, hidden_size: int) -> Any:
        """Return the settings of the same model with another hidden size."""
        return dataclasses.replace(model, hidden_size=hidden_size)

    def with_model(self, model: Any) -> Any:
        """Return the same task, its data included, for another model."""
        other = copy.copy(self)
        other.model = model
        return other

    def with_settings(self, data: Any, model: Any, seed: int) -> Any:
        """Return the task with other settings; the data is reused if `data` and `seed` are the same."""
        if (data, seed) == (self.data, self.seed):
            return self.with_model(model)
        return type(self)(data, model, seed)

    def parameters(self) -> int:
        """Return the number of parameters of the model; it is built on the meta device."""
        with sketching():
            return sum(weight.numel() for weight in self.build().parameters())

    def fitted(self, budget: int) -> Any:
        """Return the settings of the model whose hidden size comes closest to `budget` parameters."""

        def count(size: int) -> int:
            return self.with_model(self.resized(self.model, size)).parameters()

        return self.resized(self.model, closest_size(budget, count, self.smaller()))

    def smaller(self) -> str:
        """Return advice, for an error, if a model of hidden size 1 has too many parameters already."""
        return "smaller options of the model"


@contextmanager
def unit_options_checked() -> Iterator[None]:
    """Turn the TypeError for an option that the unit does not have into a ValueError."""
    try:
        yield
    except TypeError as error:
        raise ValueError(error) from None
