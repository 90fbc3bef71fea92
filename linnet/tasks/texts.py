"""What the tasks over texts share: a vocabulary, and inputs with two texts.

Besides the settings of `linnet.tasks.examples`, their data has data_dir and vectors.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from linnet.data.encoders import parse
from linnet.data.padded import PaddedBatch
from linnet.data.vectors import vector_size
from linnet.data.vocabulary import Vocabulary
from linnet.layers.context import Context, ContextShape
from linnet.models.config import ContextConfig
from linnet.tasks.base import SPLITS, Task
from linnet.tasks.contexts import CONTEXT, Contexts, Report
from linnet.tasks.examples import ExampleTask

SomeTask = TypeVar("SomeTask", bound="TextTask")
VOCABULARY = "vocabulary.json"
WORDS = "context"  # the feature of a step that is the number of its word in `contexts`


class VocabularyTask(Task):
    """A task with a vocabulary, which is kept with the run."""

    vocabulary: Any
    asset_files: ClassVar[tuple[str, ...]] = (VOCABULARY,)

    def assets(self) -> dict[str, bytes]:
        return {VOCABULARY: self.vocabulary.to_json().encode()}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        self.vocabulary = self.parse_vocabulary(VOCABULARY, assets[VOCABULARY])

    @staticmethod
    def parse_vocabulary(where: str, contents: bytes) -> Any:
        return Vocabulary.parse(where, contents)


class TextTask(VocabularyTask, ExampleTask):
    """A task whose splits are lists of texts. Its models may read the vectors of an encoder."""

    is_new = True  # False: a trained run, which can be used without its data

    @cached_property
    def contexts(self) -> Contexts | None:
        """The vectors of words by an encoder; None: the model reads none."""
        return None if self.model.context is None else Contexts.of(self.model)

    def context_numbers(self, *texts: Sequence[str]) -> list[dict[str, Tensor]]:
        """Return, as a feature of each text of an example, the numbers of its words in `contexts`."""
        if self.contexts is None:
            return [{} for _ in texts]
        return [{WORDS: numbers} for numbers in self.contexts.numbers(*texts)]

    def apart(self: SomeTask) -> SomeTask:
        """This task with texts of its own: a service that reads new texts for weeks keeps none of them."""
        other = copy.copy(self)
        if self.contexts is not None:
            other.contexts = self.contexts.apart()
        return other

    def context_of(self, model: nn.Module, batch: PaddedBatch) -> list[Context | None]:
        """Return the vectors of the words of a batch, for each text of an example."""
        texts = [batch.inputs, *([] if batch.second is None else [batch.second])]
        known = [text.features[WORDS] for text in texts if WORDS in text.features]
        if self.contexts is None:
            return [None for _ in texts]
        found = iter(self.contexts.look_up(known, model))
        return [next(found) if WORDS in text.features else None for text in texts]

    @property
    def context_shape(self) -> ContextShape | None:
        return None if self.contexts is None else self.contexts.shape

    def start_context(self, model: Any) -> None:
        """Give the encoder of a new model, which is tuned with it, its weights."""
        if self.contexts is not None and self.is_new:
            self.contexts.start(model)

    def compute_files(self, folder: Path, report: Report) -> None:
        if self.contexts is None or self.model.context_tuned:
            return
        for split in SPLITS:
            self.examples(split)
        given = self.model.context_file
        path = Path(given) if given else folder.parent / self.contexts.file_name(self.data_name(self.data))
        self.contexts.compute(path, report)

    def rates(self, model: Any) -> dict[nn.Module, float]:
        return {model.context.encoder: self.model.context_lr} if self.model.context_tuned else {}

    # -------------------------------------------------------------------------------- a trained run

    @classmethod
    def files_kept(cls, model: Any) -> tuple[str, ...]:
        reads = model is None or model.context is not None
        return (*cls.asset_files, CONTEXT) if reads else cls.asset_files

    def assets(self) -> dict[str, bytes]:
        kept = {} if self.contexts is None else {CONTEXT: self.contexts.encoder.to_json().encode()}
        return {**super().assets(), **kept}

    def restore(self, assets: Mapping[str, bytes]) -> None:
        super().restore(assets)
        self.is_new = False
        if CONTEXT in assets:
            self.contexts = Contexts(self.model, parse(CONTEXT, assets[CONTEXT]))

    def describe(self) -> dict[str, Any]:
        code = {} if self.contexts is None else {"context": self.contexts.encoder.code}
        return {**super().describe(), **code}

    def with_model(self, model: Any) -> Any:
        """The examples of a model that reads another encoder have other numbers."""
        if context_settings(model) != context_settings(self.model):
            return type(self)(self.data, model, self.seed)
        return super().with_model(model)

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the files imply, and vectors have a size."""
        follows: dict[str, Any] = {}
        if given.get("vectors") is not None and "embedding_size" not in given:
            follows["embedding_size"] = vector_size(given["vectors"], given.get("data_dir"))
        return {**follows, **super().implied(given)}


def context_settings(model: ContextConfig) -> tuple[Any, ...]:
    return tuple(getattr(model, each.name) for each in fields(ContextConfig))


# ------------------------------------------------------------------------------- inputs with two texts

SEPARATOR = "|||"


def two_texts(raw: Any, first: str, second: str) -> tuple[str, str]:
    """Return the two texts of an input of `linnet predict`, which are called `first` and `second`.

    It is a string with a separator, an object with both names, also as JSON, or a pair of strings.
    """
    expected = f'expected \'the {first} {SEPARATOR} the {second}\' or {{"{first}": ..., "{second}": ...}}'
    try:
        found = texts_of(raw, (first, second))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{expected}; {raw!r} is not JSON: {error}") from None
    if len(found) != 2 or not all(isinstance(each, str) and each.strip() for each in found):
        raise ValueError(f"{expected}; got {raw!r}")
    return found[0].strip(), found[1].strip()


def texts_of(raw: Any, names: Sequence[str]) -> Sequence[Any]:
    if isinstance(raw, str) and not raw.lstrip().startswith("{"):
        return raw.split(SEPARATOR)
    found = json.loads(raw) if isinstance(raw, str) else raw
    if isinstance(found, Mapping):
        return [found.get(name) for name in names]
    return found if isinstance(found, (list, tuple)) else ()
