"""What the tasks over texts share: a vocabulary, and inputs with two texts.

Besides the settings of `linnet.tasks.examples`, their data has data_dir and vectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from linnet.data.vectors import vector_size
from linnet.data.vocabulary import Vocabulary
from linnet.tasks.base import Task
from linnet.tasks.examples import ExampleTask

VOCABULARY = "vocabulary.json"


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
    """A task whose splits are lists of texts."""

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the files imply, and vectors have a size."""
        follows: dict[str, Any] = {}
        if given.get("vectors") is not None and "embedding_size" not in given:
            follows["embedding_size"] = vector_size(given["vectors"], given.get("data_dir"))
        return {**follows, **super().implied(given)}


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
