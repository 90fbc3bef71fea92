"""The memory tasks as kinds of task: their settings, how units are compared at them, trained models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from linnet.data.digits import SOURCES, Digits, load_digits, read_order
from linnet.data.memory import Adding, Copying, Denoising
from linnet.models.sequence import SequenceModel, SequenceModelConfig, hidden_size_for
from linnet.tasks.memory import MemoryTask, Source
from linnet.train import checkpoints
from linnet.train.config import Checked, RunConfig, fingerprint, option
from linnet.train.kinds import Comparison, Kind, Variant, kind
from linnet.train.records import read_config


@dataclass(frozen=True)
class EndlessData(Checked):
    """Sequences that are made as they are needed."""

    span: int = option(100, "T: the steps over which something is to be remembered", least=1)
    batch: int = option(10, "sequences side by side, over all processes", least=1)
    data_seed: int | None = option(None, "of the sequences (--seed)", least=0)
    eval_examples: int = option(200, "sequences of an evaluation, the same each time", least=1)
    reset_every: int = option(
        1, "sequences after which the state starts anew: 1, or more to test forgetting", least=1
    )


@dataclass(frozen=True)
class RecallData(EndlessData):
    """Symbols to be remembered, made as they are needed."""

    symbols: int = option(8, "n: how many different symbols there are", least=2)
    recalled: int = option(10, "k: how many symbols are to be remembered", least=1)
    random_labels: bool = option(False, "ask for symbols that were not shown: a test of stability")


@dataclass(frozen=True)
class ImageData(Checked):
    """Images of digits, pixel by pixel."""

    images: str = option("auto", "mnist, the small digits, or those if MNIST is not there", choices=SOURCES)
    data_dir: str | None = option(None, "where the files of MNIST are looked for first")
    batch: int = option(100, "images side by side, over all processes", least=1)
    data_seed: int | None = option(None, "of the order of the images in each epoch (--seed)", least=0)
    cut_seed: int = option(50, "of what is held out for validation, and of the permutation", least=0)
    permutation: str | None = option(None, "psmnist: a file with the order of the pixels, .npy or text")
    eval_batch: int = option(500, "images side by side in evaluation", least=1)
    eval_examples: int = option(0, "images of an evaluation (0: all of them)", least=0)


def copying(data: RecallData) -> Copying:
    return Copying(data.span, data.symbols, data.recalled, data.random_labels)


def variable(data: RecallData) -> Copying:
    return replace(copying(data), variable=True)


def denoising(data: RecallData) -> Denoising:
    return Denoising(data.span, data.symbols, data.recalled, data.random_labels)


def adding(data: EndlessData) -> Adding:
    return Adding(data.span)


def images(data: ImageData) -> Digits:
    if data.permutation is not None:
        raise ValueError(
            "memory.smnist reads the pixels in their own order; a permutation is for memory.psmnist"
        )
    return load_digits(data.images, seed=data.cut_seed, data_dir=data.data_dir)


def permuted_images(data: ImageData) -> Digits:
    order = None if data.permutation is None else read_order(data.permutation)
    return load_digits(data.images, permuted=True, seed=data.cut_seed, order=order, data_dir=data.data_dir)


SOURCES_OF: dict[str, tuple[type, Callable[[Any], Source]]] = {
    "memory.copy": (RecallData, copying),
    "memory.variable": (RecallData, variable),
    "memory.denoise": (RecallData, denoising),
    "memory.adding": (EndlessData, adding),
    "memory.smnist": (ImageData, images),
    "memory.psmnist": (ImageData, permuted_images),
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "optimiser": {"optimiser": "adam", "lr": 1e-3, "clip": 1.0},
}
ENDLESS = {"loop": {"steps": 2000, "evaluate_every": 200, "log_every": 20}}
UNITS = ("nru", "lstm-chrono", "janet-chrono", "gru", "sru", "lrn", "ran", "scrn")


def make_kind(name: str) -> Kind:
    data, source = SOURCES_OF[name]
    pixels = data is ImageData

    def build(data: Any, model: SequenceModelConfig, seed: int) -> Memory:
        return Memory(name, source(data), model, data, seed)

    def fitting(data: Any) -> Callable[[SequenceModelConfig, int], SequenceModelConfig]:
        made = source(data)
        sizes = made.input_size, made.output_size
        return lambda model, budget: replace(model, hidden_size=hidden_size_for(budget, *sizes, model))

    budget = 165_000 if pixels else 23_500
    compared = Comparison(UNITS, budget, {}, fitting, lambda data: variants(source(data).length))
    defaults = DEFAULTS if pixels else {**DEFAULTS, **ENDLESS}
    return Kind(data, SequenceModelConfig, build, keep, defaults, compared)


class Memory(MemoryTask):
    """A memory task by its settings."""

    def __init__(self, name: str, source: Source, config: SequenceModelConfig, data: Any, seed: int):
        super().__init__(
            name,
            source,
            config,
            batch=data.batch,
            eval_batch=getattr(data, "eval_batch", None),
            eval_examples=data.eval_examples,
            reset_every=getattr(data, "reset_every", 1),
            seed=seed if data.data_seed is None else data.data_seed,
        )

    def build(self, device: str | None = None) -> SequenceModel:
        try:
            return super().build(device)
        except TypeError as error:
            # An option that the unit does not have: a wrong setting, not a mistake in the program.
            raise ValueError(error) from None

    def describe(self) -> dict[str, Any]:
        """The model by its fingerprint; its settings stand in the run's config."""
        told = super().describe()
        return {**told, "model": fingerprint(told["model"])}


def keep(task: Memory, folder: Path) -> None:
    """Nothing: the settings of a run are all that its model needs."""


def load_run(folder: Path, name: str = "best") -> tuple[RunConfig, Memory, SequenceModel]:
    """A trained model with its task, from its run directory."""
    config = read_config(folder)
    if config.task not in SOURCES_OF:
        raise ValueError(f"{folder} is a run of {config.task!r} and no memory task")
    checkpoint = checkpoints.must_find(folder, name)
    task = kind(config.task).build(config.data, config.model, config.loop.seed)
    model = checkpoints.load_model(checkpoint, config, task.describe(), task.build)
    return config, task, model


# ------------------------------------------------------------------------------------------ rivals


def variants(length: int) -> dict[str, Variant]:
    """The rivals as the NRU authors have them, where they are not our units as they come.

    `length`: the steps of a sequence, which chrono initialisation wants to know.
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
