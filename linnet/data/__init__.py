"""Files to tensors: corpora, vocabularies and batches for language models. Knows no models."""

from linnet.data.batches import (
    IGNORE,
    Window,
    epoch_generator,
    streams,
    varied_lengths,
    varied_windows,
    window_count,
    windows,
)
from linnet.data.corpora import Corpus, load_corpus
from linnet.data.errors import DataError, MissingDataError
from linnet.data.sources import CORPORA, Source
from linnet.data.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "CORPORA",
    "Corpus",
    "DataError",
    "EOS",
    "epoch_generator",
    "IGNORE",
    "load_corpus",
    "MissingDataError",
    "Source",
    "streams",
    "UNK",
    "varied_lengths",
    "varied_windows",
    "Vocabulary",
    "Window",
    "window_count",
    "windows",
]
