"""Files to tensors: corpora, vocabularies, windows of text and padded batches. It knows no models."""

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
from linnet.data.padded import BatchPlan, Example, PaddedBatch, Sequences, collate, padded_batches
from linnet.data.sources import CORPORA, Source
from linnet.data.vocabulary import EOS, UNK, Vocabulary

__all__ = [
    "BatchPlan",
    "collate",
    "CORPORA",
    "Corpus",
    "DataError",
    "EOS",
    "epoch_generator",
    "Example",
    "IGNORE",
    "load_corpus",
    "MissingDataError",
    "padded_batches",
    "PaddedBatch",
    "Sequences",
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
