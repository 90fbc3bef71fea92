"""Labelled series of numbers: a class or a number for each series, or for each of its steps.

    linnet train series --path gestures.csv --group id --label kind
    linnet train series --path X_TRAIN.ts --test-path X_TEST.ts
    linnet predict runs/gestures-gru new.csv "0.1 0.3 0.2"

Series have any length and any number of channels. The channels are scaled inside the model, so that it
reads the numbers of the file. By default, the best checkpoint is the one with the lowest loss on the
validation set.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from linnet.base.settings import Checked, option
from linnet.data.batches import IGNORE, epoch_generator
from linnet.data.columnar import FORMATS as TABLES
from linnet.data.columnar import MISSING, split_names
from linnet.data.errors import DataError
from linnet.data.frames import as_frame, frame_like, kind_of_frame, name_columns
from linnet.data.labelled import FOLDS, Splits
from linnet.data.labelled_series import (
    ANSWERS,
    LabelledSeries,
    LongColumns,
    SeriesRows,
    series_of_arrays,
    series_of_inputs,
)
from linnet.data.labelled_series_files import ENDINGS, read_labelled_series
from linnet.data.labelled_series_sets import (
    LABELLED_SERIES_SETS,
    LabelledSeriesSet,
    LoadedSeries,
    SeriesSplits,
    WantedSeries,
    load_labelled_series,
)
from linnet.data.padded import ORDERS, BatchPlan, Example, PaddedBatch, batch_count, padded_batches
from linnet.data.tables import Labelled, format_of
from linnet.data.text import parse_json
from linnet.data.ts_file import found_value
from linnet.models.series import SeriesModel, SeriesModelConfig, SeriesSizes, reads_time
from linnet.models.stream_step import Axis, StreamStep
from linnet.recurrent.modes import evaluating
from linnet.tasks.base import Comparison, unit_options_checked
from linnet.tasks.baselines import Baseline
from linnet.tasks.examples import ExampleTask
from linnet.tasks.mistakes import class_mistakes, confusion, shortened
from linnet.tasks.results import AnswerTable, Chart, Figure, Metric, Metrics, Section, StepResult
from linnet.tasks.series_baselines import (
    STEP,
    SUMMARY,
    class_baselines,
    step_features,
    summaries,
    value_baselines,
)
from linnet.tasks.series_charts import channel_chart, mistaken_series, mistaken_steps
from linnet.tasks.targets import ACCURACY, KINDS, ClassMetrics, Target

FOUND = "series.json"
FEWEST_BATCHES = 50
"""Of an epoch of training."""
SAMPLES = 20
"""Steps of the series with which exported code is compared with Python."""
MOST_STEPS = 2**32
"""The number of a step is that of its series, times this, and its number in the series."""


@dataclass(frozen=True)
class SeriesData(Checked):
    """Labelled series."""

    set: str = option(
        "japanese_vowels",
        "a name of `linnet list sets`; own: the file --path",
        choices=(*LABELLED_SERIES_SETS,),
    )
    path: str | None = option(None, "your own .csv, .tsv, .parquet (a row for each step), .ts or .npz")
    valid_path: str | None = option(None, "the validation set (default: taken from --path)")
    test_path: str | None = option(None, "the test set (default: taken from --path)")
    label: str | None = option(None, "own: the column with the class (label); .npz: the array (y)")
    value: str | None = option(None, "own: the column with a number to predict, instead of a class")
    group: str = option("", "the columns that tell the series apart, separated by commas")
    channels: str = option("", "the columns that are read (all others with numbers)")
    time: str = option("", "the column with the times of the steps, if their distances matter")
    time_format: str = option("", "of strptime, for unusual times")
    answers: str = option(
        "auto",
        "sequence: one answer for a series; steps: one at every step; auto: steps if labels change within a "
        "series",
        choices=ANSWERS,
    )
    class_weights: tuple[str, ...] = option(
        (),
        "factors of the loss: balanced (rare classes count more), or those of classes, as in walk=5 run=1",
    )
    fold: int = option(
        0, "the fold that is the test set (or the validation set, if there is a test file)", least=0
    )
    fold_count: int = option(FOLDS, "parts of equal size from which --fold is taken", least=2)
    split_seed: int = option(1, "the seed of the folds", least=0)
    batch: int = option(16, "series in a batch, over all processes", least=1)
    eval_batch: int = option(256, "series in a batch in evaluation", least=1)
    order: str = option("buckets", "how series are put into batches, see docs/classify.md", choices=ORDERS)
    best_by: str = option(
        "loss",
        "what selects the best checkpoint on the validation set: the loss, or the accuracy (of numbers: the "
        "RMSE)",
        choices=("accuracy", "loss"),
    )
    label_smoothing: float = option(
        0.0, "the share of the target that the other classes get", least=0, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("label", "value"):
            if getattr(self, name) is not None and self.set != "own":
                raise ValueError(
                    f"--{name} is for files of your own (--path); the set {self.set} has its own"
                )
        if self.label is not None and self.value is not None:
            raise ValueError("--label is for classes and --value for numbers; give one of them")

    @property
    def kind(self) -> str:
        """The kind of target, a key of KINDS."""
        return "value" if self.value is not None or LABELLED_SERIES_SETS[self.set].value else "class"

    @property
    def columns(self) -> LongColumns:
        return LongColumns(
            group=split_names(self.group),
            channels=split_names(self.channels),
            answer=self.value or self.label or "label",
            option="value" if self.value else "label",
            time=self.time,
            time_format=self.time_format,
        )


class Found(NamedTuple):
    """What was found in the training data; it stays with the run."""

    sizes: SeriesSizes
    channels: tuple[str, ...]
    columns: LongColumns
    target: Target
    data: str  # a fingerprint of the series: a run is not continued with others

    def to_bytes(self) -> bytes:
        kept = {
            "sizes": self.sizes._asdict(),
            "channels": self.channels,
            "columns": self.columns._asdict(),
            "target": self.target.kept(),
            "data": self.data,
        }
        return json.dumps(kept, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes, kind: str) -> Found:
        kept = parse_json(FOUND, content.decode("utf-8", "replace"))
        try:
            sizes = SeriesSizes(**kept["sizes"])
            if not all(isinstance(value, int) and value >= 0 for value in sizes):
                raise ValueError(f"the sizes are {tuple(sizes)}")
            columns: dict[str, Any] = {
                name: tuple(map(str, value)) if isinstance(value, list) else str(value)
                for name, value in kept["columns"].items()
            }
            target = KINDS[kind].from_kept(FOUND, kept["target"])
            channels = tuple(map(str, kept["channels"]))
            return cls(sizes, channels, LongColumns(**columns), target, str(kept["data"]))
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise DataError(f"{FOUND} is not what a run of series keeps: {error}") from None


class SeriesTask(ExampleTask):
    """Labelled series, and a model that answers them."""

    name, about = "series", "classification of series of numbers, or a number for each"
    Data: ClassVar[type] = SeriesData
    Model: ClassVar[type] = SeriesModelConfig
    sets: ClassVar[Mapping[str, LabelledSeriesSet]] = LABELLED_SERIES_SETS
    selects = Metric()
    answers_tables = True
    asset_files = (FOUND,)
    defaults = {
        **{"optimiser": "adamw", "lr": 3e-3, "weight_decay": 0.01, "clip": 1.0, "schedule": "cosine"},
        **{"warmup": 20, "updates": 1000, "patience": 0},
    }
    comparison = Comparison(("gru", "lstm", "sru", "lrn", "mingru"), budget=50_000)
    remedies = "more labelled series, another --scale, more --noise or a longer training (--minutes)"
    ranges = {"dropout": (0.05, 0.6), "noise": (0.01, 0.5), "lr": (1e-3, 1e-2)}

    is_new = True  # False: a trained run, whose data may not be there

    # ------------------------------------------------------------------------------------------ data

    def prepare(self) -> None:
        loaded = self.loaded
        target = KINDS[self.data.kind].of(self.labelled(loaded), self.data, self.noun_of(loaded.steps))
        sizes = SeriesSizes(
            channels=len(loaded.rows.channels),
            outputs=len(target.names),
            steps=loaded.steps,
            gaps=any(bool(np.isnan(each.values).any()) for each in loaded.splits.train),
            times=bool(self.data.time),
            value=self.data.kind == "value",
        )
        columns = loaded.rows.columns
        self.found = Found(sizes, loaded.rows.channels, columns, target, fingerprint_of(loaded.splits))
        target.noun = self.noun

    @cached_property
    def loaded(self) -> LoadedSeries:
        return self.load(self.data)

    def load(self, data: SeriesData) -> LoadedSeries:
        again = not self.is_new
        return load_labelled_series(
            data.set,
            WantedSeries(
                path=data.path,
                valid_path=data.valid_path,
                test_path=data.test_path,
                columns=self.columns_again(data, data.path) if again else data.columns,
                answers=("steps" if self.found.sizes.steps else "sequence") if again else data.answers,
                value=data.kind == "value",
                fold_count=data.fold_count,
                fold=data.fold,
                split_seed=data.split_seed,
            ),
        )

    def columns_again(self, data: SeriesData, path: Any = None) -> LongColumns:
        """Return the columns of another file: as in training, unless they are given."""
        if path is not None and not is_table(path):
            return self.found.columns._replace(group=(), channels=())
        given = {name: value for name, value in data.columns._asdict().items() if value}
        if data.label is None and data.value is None:
            given.pop("answer")
        return self.found.columns._replace(**given)

    def read_splits(self, data: Any) -> SeriesSplits:
        return self.checked(self.load(data)).splits

    def checked(self, loaded: LoadedSeries) -> LoadedSeries:
        """Return the series if a model of this run can read them."""
        channels = self.found.sizes.channels
        if len(loaded.rows.channels) != channels:
            raise DataError(
                f"the run reads {channels} channels ({', '.join(self.found.channels)}), and the data has "
                f"{len(loaded.rows.channels)}"
            )
        return loaded

    def rows(self, split: str) -> list[LabelledSeries]:
        if split == "all":
            return self.every_row
        return getattr(self.checked(self.loaded).splits, split)

    def labelled(self, loaded: LoadedSeries) -> Splits:
        """Return the answers of all splits, as targets read them."""
        return Splits(*([row for each in part for row in answers_of(each)] for part in loaded.splits))

    @property
    def noun(self) -> str:
        return self.noun_of(self.found.sizes.steps)

    @staticmethod
    def noun_of(steps: bool) -> str:
        """What has an answer."""
        return "step" if steps else "series"

    @property
    def target(self) -> Target:
        return self.found.target

    # -------------------------------------------------------------------------------------- examples

    def examples(self, split: str) -> list[Example]:
        return [self.example(each, self.answer(split, each)) for each in self.rows(split)]

    def new_batches(self, split: str, epoch: int, first: int) -> Iterator[PaddedBatch]:
        if not epoch:
            yield from super().new_batches(split, epoch, first)
            return
        generator, size = epoch_generator(self.seed, epoch), batch_count(self.training_examples, self.plan)
        for number in range(self.passes):
            done = number * size
            start = min(max(first - done, 0), size)
            for batch in padded_batches(self.training_examples, self.plan, generator, start):
                yield replace(batch, index=done + batch.index)

    @property
    def passes(self) -> int:
        """The passes over the training set in an epoch: a small set would end after a few updates."""
        return -(-FEWEST_BATCHES // batch_count(self.training_examples, self.plan))

    def batches_per_epoch(self, epoch: int) -> int:
        return self.passes * super().batches_per_epoch(epoch)

    def example(self, series: LabelledSeries, answer: Any = None) -> Example:
        parts = [series.values]
        if self.found.sizes.times:
            parts.append(time_between(series)[:, None])
        # Numbers keep the precision of the file until they are scaled.
        return Example(torch.from_numpy(np.concatenate(parts, 1)), answer)

    def answer(self, split: str, series: LabelledSeries) -> Any:
        if not self.found.sizes.steps:
            return self.target.encode(split, Labelled("", series.label, series.where))
        none: Any = float("nan") if self.found.sizes.value else IGNORE
        known = {row.label: self.target.encode(split, row) for row in answers_of(series)}
        answers = [known.get(label, none) for label in series.labels]
        return torch.tensor(answers, dtype=torch.float64 if self.found.sizes.value else torch.int64)

    # ----------------------------------------------------------------------------------------- model

    def build(self) -> SeriesModel:
        with unit_options_checked():
            model = SeriesModel(self.found.sizes, self.model)
        if self.is_new and not model.example.is_meta:
            model.set_scales(*self.scales)
            if self.found.sizes.value:
                model.set_answers(self.target.mean, self.target.deviation)  # type: ignore[attr-defined]
        return model

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """The arguments of `set_scales`."""
        train = self.loaded.splits.train
        mean, deviation = channel_moments([each.values for each in train])
        if self.model.scale == "none":
            mean, deviation = np.zeros_like(mean), np.ones_like(deviation)
        filled = [np.where(np.isnan(each.values), mean, each.values) / deviation for each in train]
        squares = np.concatenate([np.diff(each, axis=0) for each in filled]) ** 2
        change = np.sqrt(squares.sum(0) / max(len(squares), 1))
        change = np.where(change > 0, change, 1.0)
        times = [np.diff(each.times) for each in train if each.times is not None]
        distances = np.concatenate(times) if times else np.zeros(0)
        return mean, deviation, change, float(np.median(distances)) if len(distances) else 1.0

    def step(self, model: nn.Module, batch: PaddedBatch, carry: Any) -> StepResult:
        assert batch.labels is not None
        logits, labels, rows = self.outputs(model, batch), batch.labels, batch.rows
        if self.found.sizes.steps:
            steps = torch.arange(len(labels), device=rows.device)[:, None]
            rows = (rows * MOST_STEPS + steps).flatten()
            logits, labels = logits.flatten(0, 1), labels.flatten()
        smoothing = self.data.label_smoothing if model.training else 0.0
        total, count = self.target.losses(logits, labels, smoothing)
        kept = None if model.training else (logits, labels, rows)
        return StepResult(total / max(count, 1), total.detach(), count, batch.tokens, outputs=kept)

    def outputs(self, model: nn.Module, batch: PaddedBatch) -> Tensor:
        return model(batch.inputs.steps, batch.inputs.lengths)

    # --------------------------------------------------------------------------------------- results

    def metrics(self) -> Metrics:
        return self.target.metrics()

    @classmethod
    def selected_by(cls, data: Any) -> Metric:
        main = KINDS[data.kind].figures[0]
        return Metric() if data.best_by == "loss" else Metric(main.name, main.higher)

    @classmethod
    def figures(cls, data: Any) -> tuple[Figure, ...]:
        about = "The share of series, or of their steps, with the right class; higher is better."
        figures = KINDS[data.kind].figures
        return tuple(each._replace(about=about) if each is ACCURACY else each for each in figures)

    def details(self, split: str, metrics: Any) -> list[Section]:
        if not isinstance(metrics, ClassMetrics):
            return []
        series = self.rows(split)

        def of_series(number: int) -> tuple[str, ...]:
            return (series[number].name, f"{len(series[number]):,}")

        def of_step(number: int) -> tuple[str, ...]:
            row, step = divmod(number, MOST_STEPS)
            return (series[row].name, f"{step + 1:,}")

        names = self.target.names
        columns, describe = (
            (("series", "step"), of_step) if self.found.sizes.steps else (("series", "steps"), of_series)
        )
        return [
            confusion(names, metrics.confusion, self.noun),
            class_mistakes(names, metrics.mistakes, columns, describe),
        ]

    def charts(self, model: Any, split: str, metrics: Any) -> list[Chart]:
        """Return charts of the most confidently mistaken series, or of those with the most wrong steps."""
        if not isinstance(metrics, ClassMetrics):
            return []
        series, names = self.rows(split), self.target.names
        if self.found.sizes.steps:
            wrong = [(*divmod(number, MOST_STEPS), answer) for _, number, _, answer in metrics.mistakes]
            return mistaken_steps(series, wrong, names)
        return mistaken_series(series, metrics.mistakes, names, self.found.channels, scales_of(model))

    def baselines(self, split: str, figures: Mapping[str, float]) -> list[Baseline]:
        train, asked = self.rows("train"), self.rows(split)
        mean = channel_moments([each.values for each in train])[0]
        features, reads = (step_features, STEP) if self.found.sizes.steps else (summaries, SUMMARY)
        known, wanted = (self.asked(rows, features, mean) for rows in (train, asked))
        found = value_baselines if self.found.sizes.value else class_baselines
        return found(*known, *wanted, reads)

    def asked(self, rows: Sequence[LabelledSeries], features: Any, mean: np.ndarray) -> tuple[Any, Any]:
        """Return the features of the examples of a split, and their answers."""
        inputs = features([each.values for each in rows], mean)
        labels = [label for each in rows for label in (each.labels or (each.label,))]
        has_label = np.array([bool(label) for label in labels])
        given = [label for label in labels if label]
        return inputs[has_label], [*map(float, given)] if self.found.sizes.value else given

    # --------------------------------------------------------------------------------- a trained run

    def stream_step(self, model: Any) -> StreamStep:
        """Return a step whose answer is that for the series so far; raise if the model has none."""
        model.check_streaming()
        found, sizes = self.found, self.found.sizes
        axis = Axis("value" if sizes.value else "class", found.target.names, scores=not sizes.value)
        said = [
            "Values are in the unit of the training data; the scaling is inside.",
            "The answer is a number." if sizes.value else "The answer has the score of each class.",
        ]
        if sizes.times:
            said.append("The last input is the time since the step before; NaN at the first step.")
        time = (f"{found.columns.time} since the step before",) if sizes.times else ()
        return StreamStep(model, (*found.channels, *time), (axis,), sample_of(model), said)

    def assets(self) -> dict[str, bytes]:
        return {FOUND: self.found.to_bytes()}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        self.is_new, self.found = False, Found.parse(assets[FOUND], self.data.kind)
        self.target.noun = self.noun

    def describe(self) -> dict[str, Any]:
        found = self.found
        return {
            "sizes": list(found.sizes),
            "channels": list(found.channels),
            "classes": list(found.target.names),
        }

    def notes(self) -> list[str]:
        sizes, loaded = self.found.sizes, self.loaded
        counts = " / ".join(f"{len(part):,}" for part in loaded.splits)
        lengths = [len(each) for part in loaded.splits for each in part]
        what = "a number" if sizes.value else f"{sizes.outputs} classes"
        said = [
            f"{counts} series for training, validation and test, of {min(lengths):,} to {max(lengths):,} "
            f"steps with {sizes.channels} channel{'s' * (sizes.channels > 1)}; {what} for each {self.noun}",
            *loaded.rows.notes,
        ]
        if sizes.steps and self.data.answers == "auto":
            said.append("labels change within series: an answer at every step (--answers steps)")
        if sizes.gaps:
            said.append("values are missing: they are the mean of their channel, and an input says where")
        if sizes.times:
            said.append(self.time_note())
        return said

    def time_note(self) -> str:
        typical = f"(typical: {self.scales[3]:g})" if self.is_new else ""
        if reads_time(self.model.unit):
            return f"{self.model.unit} is given the time between steps {typical}".rstrip()
        return (
            f"the time between steps {typical}".rstrip()
            + f" is a further input, its logarithm, as {self.model.unit} does not read times"
        )

    # ----------------------------------------------------------------------------------- predictions

    def check_input(self, raw: Any) -> None:
        if isinstance(raw, str) and not is_file(raw):
            self.typed_series(raw)

    def predict(self, model: Any, raw: Any, *, batch: int = 256) -> Any:  # type: ignore[override]
        """Return the answer to each series.

        A frame of pandas or polars, or a dict of arrays, gives a frame of the same kind with a row for each
        series, or for each step. An array [T, channels] is one series, a list of them are several. Texts are
        files, or numbers such as "3 5 4 6" or "1,2 3,4" with the channels of a step separated by commas.

        batch   series that are answered at once
        """
        if isinstance(raw, str | os.PathLike):
            raw = [raw]
        if isinstance(raw, list | tuple) and raw and all(isinstance(each, str | os.PathLike) for each in raw):
            return [self.typed_answer(model, each, batch) for each in raw]
        raw = as_frame(raw)
        rows = series_of_inputs(raw, self.columns_again(self.data), self.found.sizes.channels)
        self.checked_rows("the input", rows)
        answers = self.answers(model, rows.series, batch)
        return frame_like(self.answer_columns(rows, answers), raw) if kind_of_frame(raw) else answers

    def typed_answer(self, model: Any, raw: Any, batch: int) -> dict[str, Any]:
        if not is_file(raw):
            return self.answers(model, self.typed_series(raw).series, batch)[0]
        rows = self.file_rows(raw)
        answers = self.answers(model, rows.series, batch)
        named = zip(rows.series, answers, strict=True)
        return {"series": [{"name": series.name, **answer} for series, answer in named]}

    def file_rows(self, path: Any) -> SeriesRows:
        """Return the series of a file, whose labels are not read."""
        columns = self.columns_again(self.data, path)._replace(answer="")
        return self.checked_rows(path, read_labelled_series(path, columns))

    def checked_rows(self, path: Any, rows: SeriesRows) -> SeriesRows:
        if len(rows.channels) != self.found.sizes.channels:
            raise DataError(
                f"{path} has {len(rows.channels)} channels; the run reads {self.found.sizes.channels}: "
                f"{', '.join(self.found.channels)}"
            )
        return rows

    def typed_series(self, text: str) -> SeriesRows:
        """Return the series of numbers such as "3 5 4 6" or "1,2 3,4"."""
        width = self.found.sizes.inputs
        words = text.replace(",", " ").split() if width == 1 else text.split()
        try:
            steps = [[typed_number(each) for each in word.split(",")] for word in words]
        except ValueError:
            steps = []
        if not steps or any(len(step) != width for step in steps):
            names = [*self.found.channels, *([self.found.columns.time] if self.found.sizes.times else [])]
            form = '"3 5 4 6"' if width == 1 else '"' + " ".join([",".join(["1"] * width)] * 2) + '"'
            raise DataError(
                f"expected a file, or the steps of a series with {width} numbers each ({', '.join(names)}), "
                f"like {form}; got {text!r}"
            )
        return series_of_arrays(np.array(steps), self.found.columns, self.found.sizes.channels)

    @torch.no_grad()
    def answers(self, model: Any, series: Sequence[LabelledSeries], batch: int) -> list[dict[str, Any]]:
        examples = [self.example(each) for each in series]
        found: list[Any] = [None] * len(examples)
        with evaluating(model):
            for each in padded_batches(examples, BatchPlan(batch, order="sorted")):
                logits = self.outputs(model, each.to(model.example.device)).cpu()
                for place, row in enumerate(each.rows.tolist()):
                    found[row] = self.answer_of(logits, place, len(series[row]))
        return found

    def answer_of(self, logits: Tensor, place: int, length: int) -> dict[str, Any]:
        """Return the answer to one series of a batch."""
        if self.found.sizes.steps:
            return {"steps": self.target.answers(logits[:length, place])}
        return self.target.answers(logits[place, None])[0]

    def answer_columns(self, rows: SeriesRows, answers: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Return columns with a row for each answer: the name of its series, the answer, probabilities."""
        repeats = [len(each.get("steps", (each,))) for each in answers]
        flat = [one for each in answers for one in each.get("steps", (each,))]
        named = name_columns([each.name for each in rows.series], rows.columns.group)
        contents = {name: np.repeat(np.array(names, dtype=object), repeats) for name, names in named.items()}
        if self.found.sizes.steps:
            contents["step"] = np.concatenate([np.arange(1, count + 1) for count in repeats])
        answer = self.found.columns.answer or ("value" if self.found.sizes.value else "label")
        if self.found.sizes.value:
            return {**contents, answer: np.array([each["value"] for each in flat])}
        contents[answer] = np.array([each["label"] for each in flat], dtype=object)
        for name in self.target.names:
            contents[f"{answer}_{name}"] = np.array([each["probabilities"][name] for each in flat])
        return contents

    def answer_table(self, model: Any, path: str | None, *, charts: int = 0, batch: int = 256) -> AnswerTable:
        """Return the answers to the series of a file, or to the test set of the run."""
        rows = self.file_rows(path) if path else self.test_rows
        answers = self.answers(model, rows.series, batch)
        columns = {name: each.tolist() for name, each in self.answer_columns(rows, answers).items()}
        count, scales = len(rows.series), scales_of(model)
        shown = [
            channel_chart(
                f"{each.name}: {shortened(self.show(answer), 60)}", each, self.found.channels, scales
            )
            for each, answer in zip(rows.series[:charts], answers[:charts], strict=True)
        ]
        return AnswerTable(f"the answers to {count:,} series", columns, count, tuple(shown), count)

    @property
    def test_rows(self) -> SeriesRows:
        return SeriesRows(tuple(self.rows("test")), self.found.channels, self.found.columns)

    def show(self, answer: Mapping[str, Any]) -> str:
        if "series" in answer:
            return "\n".join(f"{each['name']}  {self.show(each)}" for each in answer["series"])
        if "steps" in answer:
            key = "value" if self.found.sizes.value else "label"
            return " ".join(str(each[key]) for each in answer["steps"])
        return self.target.show(answer)

    # --------------------------------------------------------------------------------- in comparisons

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """A .ts file of numbers implies --value."""
        path, follows = given.get("path"), {}
        if path and not given.get("value") and format_of(Path(path)) == ".ts" and found_value(path):
            follows["value"] = "target"
        return {**follows, **super().implied(given)}

    @classmethod
    def fold_settings(cls, data: Any, folds: int) -> list[dict[str, Any]]:
        """Equal parts of the file --path, or of the training set if there is a test set."""
        return [{"fold_count": max(folds, 2), "fold": fold} for fold in range(folds)]


# --------------------------------------------------------------------------------------------- helpers


def answers_of(series: LabelledSeries) -> list[Labelled]:
    """Return the answer of a series, or those of its steps; the first of each has its place."""
    if not series.labels:
        return [Labelled("", series.label, series.where)]
    places: dict[str, int] = {}
    for step, label in enumerate(series.labels):
        places.setdefault(label, step)
    where = {label: series.place(step) for label, step in places.items()}
    return [Labelled("", label, where[label]) for label in series.labels if label]


def time_between(series: LabelledSeries) -> np.ndarray:
    """Return the time before each step; that before the first is not known, NaN."""
    assert series.times is not None
    return np.diff(series.times, prepend=np.nan)


def channel_moments(values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each channel; those of a channel without values are 0 and 1."""
    both = np.concatenate(values)
    known = ~np.isnan(both)
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, both, 0).sum(0) / count
    deviation = np.sqrt(np.where(known, both - mean, 0).__pow__(2).sum(0) / count)
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def scales_of(model: SeriesModel) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of the channels in the training set."""
    return model.mean.double().cpu().numpy(), model.deviation.double().cpu().numpy()


def fingerprint_of(splits: SeriesSplits) -> str:
    code = hashlib.sha256()
    for each in (series for part in splits for series in part):
        code.update(json.dumps([each.name, each.label, each.labels]).encode())
        for values in (each.values, each.times):
            code.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
    return code.hexdigest()[:12]


def sample_of(model: SeriesModel) -> Tensor:
    """Return steps of a series as the training set may have had them; times are typical."""
    source = torch.Generator().manual_seed(0)
    drawn = torch.randn(SAMPLES, model.sizes.channels, generator=source)
    values = model.mean.cpu() + model.deviation.cpu() * drawn
    return torch.cat([values, model.distance.cpu().expand(SAMPLES, int(model.sizes.times))], 1)


def is_table(path: Any) -> bool:
    return format_of(Path(path)) in TABLES


def is_file(raw: Any) -> bool:
    """Whether an input is a path; one of a file that is not there is refused when it is read."""
    return not isinstance(raw, str) or format_of(Path(raw)) in ENDINGS


def typed_number(text: str) -> float:
    missing = text.strip().lower() in (*MISSING, "?")
    return float("nan") if missing else float(text)
