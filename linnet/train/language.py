"""Language modelling as a kind of task: what is read, how it is cut, and what a run keeps for later use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from linnet.data.batches import TAILS
from linnet.data.corpora import ORDERS, Corpus, load_corpus
from linnet.data.errors import DataError
from linnet.data.vocabulary import LEVELS, Vocabulary
from linnet.models.language import LanguageModel, LanguageModelConfig, hidden_size_for, with_hidden_size
from linnet.tasks.language import LanguageTask
from linnet.train import checkpoints
from linnet.train.checkpoints import Checkpoint
from linnet.train.config import Checked, RunConfig, fingerprint, option
from linnet.train.errors import Damaged, Mismatch, room_for
from linnet.train.kinds import Comparison, Variant
from linnet.train.records import read_config
from linnet.train.untrusted import LARGE, check, has_file, read_bytes

VOCABULARY = "vocabulary.json"
SETTINGS = {
    **{"corpus": "kjv", "tied": True, "num_layers": 1, "input_dropout": 0.1, "output_dropout": 0.1},
    **{"optimiser": "adam", "lr": 0.003, "clip": 1.0, "steps": 300, "evaluate_every": 100, "log_every": 20},
}
"""What a comparison starts from: a few minutes on two cores for six units, too few for LSTM to be deep."""


@dataclass(frozen=True)
class LanguageData(Checked):
    """A corpus, and how it is cut into batches."""

    corpus: str = option("kjv", "a name of `linnet list corpora`")
    path: str | None = option(None, "of --corpus text: a UTF-8 file, or a folder of *.txt")
    data_dir: str | None = option(None, "where the files of a corpus are looked for first")
    level: str | None = option(None, "word, char, byte or bpe (the corpus's first)", choices=LEVELS)
    vocabulary_size: int | None = option(None, "the most tokens there are; rare ones become <unk>", least=2)
    lowercase: bool = option(False, "read capitals as small letters")
    order: str = option("frequency", "of the vocabulary; appearance: that of all parts", choices=ORDERS)
    batch: int = option(20, "columns of text that are read side by side, over all processes", least=1)
    length: int = option(35, "steps through which gradients go back", least=1)
    varied: bool = option(False, "windows of random length around --length, as in AWD-LSTM")
    delta: int = option(40, "varied: how much longer than --length a window may be", least=0)
    carry: bool = option(True, "the state goes on from window to window; else each begins from zeros")
    tail: str | None = option(None, "what does not divide: keep, trim or drop it", choices=TAILS)
    eval_batch: int = option(10, "columns in evaluation", least=1)
    eval_length: int | None = option(None, "steps of a window in evaluation (--length)", least=1)
    eval_tail: str = option("keep", "keep: every token counts; trim, drop: as some authors do", choices=TAILS)
    test_batch: int | None = option(None, "columns in the test, where it is not --eval-batch", least=1)
    test_tail: str | None = option(None, "the same for --eval-tail", choices=TAILS)

    @property
    def window(self) -> int | None:
        """The most tokens that a state of such a model has read; None: there is no such bound."""
        return None if self.carry else self.length


class Language(LanguageTask):
    """A language task whose test may be cut otherwise than its validation."""

    def __init__(self, corpus: Corpus, config: LanguageModelConfig, data: LanguageData, seed: int):
        super().__init__(
            corpus,
            config,
            batch=data.batch,
            length=data.length,
            varied=data.varied,
            delta=data.delta,
            carry=data.carry,
            tail=data.tail,
            eval_batch=data.eval_batch,
            eval_length=data.eval_length,
            eval_tail=data.eval_tail,
            seed=seed,
        )
        self.data = data

    def build(self) -> LanguageModel:
        try:
            return super().build()
        except TypeError as error:
            # An option that the unit does not have: a wrong setting, not a mistake in the program.
            raise ValueError(error) from None

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        usual = self.eval_batch, self.eval_tail
        if split == "test":
            self.eval_batch = self.data.test_batch or self.eval_batch
            self.eval_tail = self.data.test_tail or self.eval_tail
        try:
            return super().evaluate(model, split)
        finally:
            self.eval_batch, self.eval_tail = usual

    def describe(self) -> dict[str, Any]:
        """The model by its fingerprint; its settings stand in the run's config."""
        told = super().describe()
        return {**told, "model": fingerprint(told["model"])}


def build(data: LanguageData, model: LanguageModelConfig, seed: int) -> Language:
    return Language(read(data), model, data, seed)


def fitting(data: LanguageData) -> Callable[[LanguageModelConfig, int], LanguageModelConfig]:
    size = len(read(data).vocabulary)
    return lambda model, budget: with_hidden_size(model, hidden_size_for(budget, size, model))


# Nothing saturates in NRU, and over a text whose state is never forgotten its memory grows without bound.
VARIANTS = {"nru": Variant("nru", {}, {"carry": False})}
COMPARISON = Comparison(
    ("lstm", "sru", "lrn", "ran", "scrn", "nru"), 2_500_000, SETTINGS, fitting, lambda data: VARIANTS
)


def read(data: LanguageData) -> Corpus:
    return load_corpus(
        data.corpus,
        level=data.level,
        data_dir=data.data_dir,
        path=data.path,
        vocabulary_size=data.vocabulary_size,
        lowercase=data.lowercase,
        order=data.order,
    )


def keep(task: Language, folder: Path) -> None:
    """The vocabulary stays with the run: a trained model can be used without its corpus."""
    path = folder / VOCABULARY
    if has_file(path):
        refuse_other_vocabulary(path, read_vocabulary(path), task.corpus.vocabulary)
    else:
        with room_for(path):
            task.corpus.vocabulary.save(path)


def read_vocabulary(path: Path) -> Vocabulary:
    content = read_bytes(path, LARGE)
    check(content is not None, path, "it is missing")
    try:
        return Vocabulary.parse(str(path), content or b"")
    except DataError as error:
        raise Damaged(str(error)) from None


def refuse_other_vocabulary(path: Path, there: Vocabulary, here: Vocabulary) -> None:
    if there.fingerprint != here.fingerprint:
        raise Mismatch(
            f"{path} is the vocabulary {there.fingerprint} of {len(there)} tokens, and the corpus has "
            f"{here.fingerprint} of {len(here)}: the text is not the one that the run began with, or it is "
            "read otherwise (--level, --vocabulary-size, --lowercase, --order)"
        )


def load_run(folder: Path, name: str = "best") -> tuple[RunConfig, LanguageModel, Vocabulary]:
    """A trained model with its vocabulary, from its run directory alone."""
    config = read_config(folder)
    if config.task != "lm":
        raise ValueError(f"{folder} is a run of {config.task!r} and no language model")
    checkpoint = checkpoints.must_find(folder, name)
    vocabulary = read_vocabulary(folder / VOCABULARY)
    refuse_foreign_vocabulary(folder / VOCABULARY, vocabulary, checkpoint)
    # What the run says of its text stands there alone: the corpus may be far away.
    described = {
        **checkpoints.guard_of(checkpoint),
        "vocabulary_size": len(vocabulary),
        "model": fingerprint(dataclasses.asdict(config.model)),
    }

    def build(device: str) -> LanguageModel:
        return LanguageModel(len(vocabulary), config.model, device=device)

    return config, checkpoints.load_model(checkpoint, config, described, build), vocabulary


def refuse_foreign_vocabulary(path: Path, vocabulary: Vocabulary, checkpoint: Checkpoint) -> None:
    there = checkpoints.guard_of(checkpoint).get("vocabulary")
    check(there == vocabulary.fingerprint, path, f"{checkpoint.path} was written with another vocabulary")
